"""What we make upstream: a publication and a slot, named after the lake, and removed with it.

    publication first, committed ──► slot ──► W (`writers`) ──► snapshot

The order is the proof. Changes are captured one by one: a transaction that was open while its table
got into the publication arrives in part. So the slot is made when the publication has committed, and
the transactions that then hold a write lock on a table to be copied are noted as W: no snapshot is
accepted in which one of them still runs (`snapshot.Leader`).

What belongs to the user (`--publication`, `slot =`) never comes here to be altered or dropped.

Making a slot waits for every transaction that has an xid, in all databases of the server, and then again
for those that run by then: many short attempts never succeed where writers overlap. So it is one long
attempt (`Waiting`), which tells all the while whom it waits for and is cancelled, on the server, when
nobody wants it any more. When we are gone the server notices (`bound`). It removes a slot whose making was
cancelled, so that no half-made one is left.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field

from psycopg import pq

from headrace.core.errors import HeadraceError, Misconfigured, Transient
from headrace.core.names import TableName, quote_identifier
from headrace.sources.postgres.catalog.definitions import look_by_name
from headrace.sources.postgres.catalog.locks import of_publication, transaction
from headrace.sources.postgres.catalog.table_def import identity_flaw
from headrace.sources.postgres.lsn import Lsn
from headrace.sources.postgres.protocol.stream_errors import (
    publication_missing,
    slot_lost,
    slot_taken,
    slot_unfit,
)
from headrace.sources.postgres.session.address import Address
from headrace.sources.postgres.session.connection import connect, replication
from headrace.sources.postgres.session.minor_releases import late_tables_lost
from headrace.sources.postgres.session.refusals import Cancelled, LockTimeout, PrivilegeMissing
from headrace.sources.postgres.session.statements import Session, ask, ask_within, query

PLUGIN = "pgoutput"
SLOT_SECONDS = 600.0  # for one attempt to make a slot
TELL_SECONDS = 2.0
OURS = "^headrace_[0-9a-f]{8}_"  # what slots and publications of a lake's own are called (`object_name`)
_NAME_LIMIT = 63
_WITHDRAWAL_LOCK = "200ms"  # it is tried again
# How far the log goes that can be decoded, on a primary and on a standby.
WAL_END = """
(CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
      ELSE pg_catalog.pg_current_wal_lsn() END)
"""


def object_name(lake_id: str, source: str) -> str:
    """The name of both slot and publication: `headrace_<lake>_<source>`, fit for a slot."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in source.lower())
    name = f"headrace_{lake_id[:8].lower()}_{plain}"
    if plain == source and len(name) <= _NAME_LIMIT:
        return name
    # Two sources must not become one by losing what a slot's name cannot hold.
    mark = f"_{zlib.crc32(source.encode()):08x}"
    return name[: _NAME_LIMIT - len(mark)] + mark


# --- publication --------------------------------------------------------------------------------


def publication_statement(name: str, tables: Sequence[TableName]) -> str:
    """The statement that makes our publication, for us or for somebody with more privileges to run."""
    return f"CREATE PUBLICATION {quote_identifier(name)} FOR TABLE {_listed(tables)}"


def ensure_publication(
    connection: Session,
    name: str,
    tables: Sequence[TableName],
    *,
    make: bool = True,
    anew: Collection[TableName] = (),
) -> None:
    """See that our publication exists and holds these tables; committed when this returns.

    A table is checked for a usable identity after its lock is held: one without would make the
    application's own UPDATE and DELETE fail from the commit on. One that must be there is not made anew
    (`make`): that would hide what it did not publish meanwhile. Those of the tables that come `anew` lose
    what somebody else gave them there, a filter or a list of columns.
    """
    with _altering(connection, tables):
        held = published(connection, name)
        if held is None and not make:
            raise publication_missing(f'"{name}"')
        leaving = [table for table in tables if held is not None and table in held and table in anew]
        missing = [table for table in tables if held is None or table not in held or table in leaving]
        if missing and not make and (lost := late_tables_lost(connection.info.server_version)) is not None:
            raise lost
        if leaving:
            _execute(connection, f"ALTER PUBLICATION {quote_identifier(name)} DROP TABLE {_listed(leaving)}")
        if held is None:
            _execute(connection, publication_statement(name, tables))
        elif missing:
            _execute(connection, f"ALTER PUBLICATION {quote_identifier(name)} ADD TABLE {_listed(missing)}")
        _refuse_without_identity(connection, missing)


def withdraw(connection: Session, name: str, tables: Sequence[TableName]) -> None:
    """Take tables out of our publication; one that it does not hold is nothing to do."""
    with _altering(connection, tables):
        held = published(connection, name) or frozenset()
        leaving = [table for table in tables if table in held]
        if leaving:
            statement = f"ALTER PUBLICATION {quote_identifier(name)} DROP TABLE {_listed(leaving)}"
            _execute(connection, statement, then="")


def withdraw_by_oid(connection: Session, name: str, oids: Collection[int]) -> None:
    """Take tables out of our publication at once, whatever they are called now, or give up in a moment.

    Nothing of ours rests on the commit, so that it need not wait for a synchronous standby.
    """
    with connection.transaction():
        query(connection, f"SET LOCAL lock_timeout = '{_WITHDRAWAL_LOCK}'")
        query(connection, "SET LOCAL synchronous_commit = 'local'")
        rows = query(
            connection,
            "SELECT n.nspname, c.relname FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid"
            " JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE p.pubname = %s AND c.oid = ANY (%s::oid[])",
            [name, list(oids)],
        )
        leaving = [TableName(schema, table) for schema, table in rows]
        if leaving:
            _execute(connection, f"ALTER PUBLICATION {quote_identifier(name)} DROP TABLE {_listed(leaving)}")


_WITHOUT_IDENTITY = """
SELECT c.oid::int8 FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid
  JOIN pg_class c ON c.oid = r.prrelid
 WHERE p.pubname = %s AND CASE c.relreplident
       WHEN 'f' THEN %s AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
                                       AND NOT a.attisdropped AND a.attgenerated <> '')
       ELSE NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
                           AND CASE c.relreplident WHEN 'i' THEN i.indisreplident
                                                   WHEN 'd' THEN i.indisprimary ELSE false END) END
"""


def without_identity(connection: Session, name: str) -> frozenset[int]:
    """The tables, by oid, whose UPDATE and DELETE the server refuses because our publication names them."""
    generated = connection.info.server_version >= 180000  # columns that the server does not publish
    return frozenset(oid for (oid,) in query(connection, _WITHOUT_IDENTITY, [name, generated]))


@contextmanager
def _altering(connection: Session, tables: Sequence[TableName]) -> Iterator[None]:
    """A transaction that alters our publication; where it waits too long for a lock, whose that is.

    Its commit waits for no standby (`session.PINS`), and no longer than an answer may take.
    """
    try:
        query(connection, "BEGIN")
        yield
        query(connection, "COMMIT")
    except HeadraceError as error:
        _roll_back(connection)
        if isinstance(error, LockTimeout):
            raise of_publication(connection, _oids(connection, tables), error) from None
        raise


def _roll_back(connection: Session) -> None:
    """As far as there is somebody to tell; the server does the same for a connection that is lost."""
    with suppress(Transient):
        query(connection, "ROLLBACK")


def _oids(connection: Session, tables: Sequence[TableName]) -> dict[int, TableName]:
    found = query(
        connection,
        "SELECT pg_catalog.to_regclass(name)::oid::bigint"
        " FROM unnest(%s::text[]) WITH ORDINALITY t(name, place) ORDER BY place",
        [[str(table) for table in tables]],
    )
    return {oid: table for (oid,), table in zip(found, tables, strict=True) if oid is not None}


def _listed(tables: Sequence[TableName]) -> str:
    # ONLY: the children of an inheritance parent are tables of their own here.
    return ", ".join(f"ONLY {table}" for table in tables)


def publication_oid(connection: Session, name: str) -> int:
    """What tells a publication from one of the same name that is made after it; 0 where there is none."""
    rows = query(connection, "SELECT oid::int8 FROM pg_publication WHERE pubname = %s", [name])
    return int(rows[0][0]) if rows else 0


def published(connection: Session, name: str) -> frozenset[TableName] | None:
    """The tables that the publication lists, or None where there is no such publication."""
    rows = query(
        connection,
        "SELECT p.puballtables, p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate"
        " AND NOT p.pubviaroot, n.nspname, c.relname FROM pg_publication p"
        " LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid"
        " LEFT JOIN pg_class c ON c.oid = r.prrelid"
        " LEFT JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname = %s",
        [name],
    )
    if not rows:
        return None
    if rows[0][0] or not rows[0][1]:
        raise Misconfigured(
            "PG_PUBLICATION_ALTERED",
            f'the publication "{name}" is not as headrace made it',
            hint=f"ALTER PUBLICATION {quote_identifier(name)} SET (publish = 'insert, update, delete, "
            "truncate', publish_via_partition_root = false), or drop it and run again",
        )
    return frozenset(TableName(schema, table) for _, _, schema, table in rows if schema is not None)


def _refuse_without_identity(connection: Session, tables: Sequence[TableName]) -> None:
    for table, look in look_by_name(connection, tables).items():
        flaw = identity_flaw(look, connection.info.server_version)
        if flaw is not None:
            raise Misconfigured(
                "PG_IDENTITY_MISSING",
                f"table {table} has no identity by which UPDATE and DELETE could be published",
                detail=flaw,
                hint=f"ALTER TABLE {table} ADD PRIMARY KEY (...), or "
                f"ALTER TABLE {table} REPLICA IDENTITY FULL",
            )


def _execute(
    connection: Session, statement: str, *, then: str = "; then give its name with --publication"
) -> None:
    """Run DDL of ours; a missing privilege is answered with the statement for somebody who has it."""
    try:
        query(connection, statement.encode())
    except PrivilegeMissing as error:
        raise Misconfigured(
            "PG_PUBLICATION_PRIVILEGE",
            "the server does not let this user make, alter or drop the publication",
            detail=error.detail,
            hint=f"let {'its owner' if not then else 'the owner of the tables'} run: {statement}{then}",
        ) from None


def wal_end(connection: Session) -> Lsn:
    """How far the log goes."""
    [(end,)] = query(connection, f"SELECT {WAL_END}::text")
    return Lsn.parse(end)


def behind_all(connection: Session) -> Lsn:
    """A position behind everything that has happened, written or not; on a standby, that is seen there."""
    [(end,)] = query(
        connection,
        "SELECT (CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()"
        " ELSE pg_catalog.pg_current_wal_insert_lsn() END)::text",
    )
    return Lsn.parse(end)


def stir(connection: Session) -> None:
    """Move the end of the log a little, on a primary where nobody else does: an empty transaction."""
    query(connection, "SELECT pg_current_xact_id()")


# --- slot ---------------------------------------------------------------------------------------


TRAFFIC = ("stream_txns", "stream_count", "stream_bytes", "spill_txns", "spill_count", "spill_bytes")


@dataclass(frozen=True, slots=True)
class SlotState:
    """What the server says of a logical slot."""

    plugin: str | None
    database: str | None
    temporary: bool
    two_phase: bool
    active_pid: int | None
    restart_lsn: Lsn | None
    confirmed_flush_lsn: Lsn | None
    wal_status: str | None  # reserved, extended, unreserved, lost
    safe_wal_size: int | None
    catalog_xmin_age: int | None
    invalidation: str | None
    retained_bytes: int | None
    # What the server has streamed and spilled for it (14+): stream_txns, spill_bytes and so on.
    traffic: Mapping[str, int] = field(default_factory=dict)

    @property
    def lost(self) -> bool:
        return self.wal_status == "lost" or self.invalidation is not None


def slot_state(connection: Session, name: str) -> SlotState | None:
    """The slot of that name, or None. The row is asked for as JSON: its columns grow with the versions."""
    rows = query(
        connection,
        "SELECT to_jsonb(s), age(s.catalog_xmin),"
        f" pg_wal_lsn_diff({WAL_END}, s.restart_lsn)::bigint"
        " FROM pg_replication_slots s WHERE s.slot_name = %s",
        [name],
    )
    if not rows:
        return None
    slot, age, retained = rows[0]
    return SlotState(
        plugin=slot["plugin"],
        database=slot["database"],
        temporary=slot["temporary"],
        two_phase=bool(slot.get("two_phase")),
        active_pid=slot["active_pid"],
        restart_lsn=_lsn(slot["restart_lsn"]),
        confirmed_flush_lsn=_lsn(slot["confirmed_flush_lsn"]),
        wal_status=slot["wal_status"],
        safe_wal_size=slot["safe_wal_size"],
        catalog_xmin_age=age,
        invalidation=slot.get("invalidation_reason") or ("conflicting" if slot.get("conflicting") else None),
        retained_bytes=retained,
        traffic=_traffic(connection, name),
    )


def _traffic(connection: Session, name: str) -> dict[str, int]:
    if connection.info.server_version < 140000:
        return {}
    asked = f"SELECT {', '.join(TRAFFIC)} FROM pg_stat_replication_slots WHERE slot_name = %s"
    rows = query(connection, asked, [name])
    return dict(zip(TRAFFIC, rows[0], strict=True)) if rows else {}


def _lsn(text: str | None) -> Lsn | None:
    return None if text is None else Lsn.parse(text)


def check_slot(name: str, state: SlotState, database: str) -> None:
    """Refuse a slot that cannot carry our stream, whoever made it."""
    if state.plugin != PLUGIN or state.temporary:
        raise slot_unfit(name, f"it is not a permanent {PLUGIN} slot")
    if state.database != database:
        raise slot_unfit(name, f'it belongs to database "{state.database}"')
    if state.two_phase:
        raise slot_unfit(name, "two_phase is on: prepared transactions would come without their rows")
    if state.lost:
        raise slot_lost(name, f"wal_status {state.wal_status}, reason {state.invalidation or 'not given'}")


def _nobody() -> None:
    """Nobody wants to end the wait before its time."""


def _unheard(reason: Transient) -> None:
    """Nobody asks what is waited for."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """How a wait for other transactions is borne by whoever wants what comes after it."""

    check: Callable[[], None] = _nobody  # raises when it is not wanted any more
    tell: Callable[[Transient], None] = _unheard  # hears every few seconds what is waited for


ALONE = Waiting()


class SlotWaits(Transient):
    """The making of a slot took longer than it may: other transactions are open."""


def ensure_slot(
    address: Address, name: str, *, seconds: float = SLOT_SECONDS, waiting: Waiting = ALONE
) -> Lsn:
    """See that our slot exists; where its stream starts: every later commit is in it.

    For a new slot that is its consistent point, for one that exists the position that it was
    acknowledged to.
    """
    with closing(connect(address, role="slot")) as connection:
        state = slot_state(connection, name)
        if state is None:
            pgconn = replication(address, role="slot")
            try:
                bound(pgconn, seconds)
                description = f"{quote_identifier(name)} LOGICAL {PLUGIN} NOEXPORT_SNAPSHOT"
                return create_slot(pgconn, connection, description, seconds, waiting)
            finally:
                pgconn.finish()
        check_slot(name, state, connection.info.dbname)
        if state.confirmed_flush_lsn is None:
            raise Transient(
                "PG_SLOT_UNREADY",
                f'the slot "{name}" is still being made by another session',
                hint="it is tried again",
            )
        return state.confirmed_flush_lsn


def bound(pgconn: pq.abc.PGconn, seconds: float) -> None:
    """Let the server end the wait for a slot by itself, at last when its time is over.

    An ordinary statement, right before the walsender's command: it sets the clock by which the server looks
    whether we are still there (`session.WISHES`), which the command itself would not.
    """
    ask(pgconn, f"SET lock_timeout = '{math.ceil(seconds * 1000)}ms'")


def create_slot(
    pgconn: pq.abc.PGconn,
    observer: Session,
    description: str,
    seconds: float,
    waiting: Waiting = ALONE,
    *,
    instead: str = "",
) -> Lsn:
    """CREATE_REPLICATION_SLOT; its consistent point. `observer` names whom it waits for."""
    told = time.monotonic()

    def waits() -> SlotWaits:
        return SlotWaits(
            "PG_SLOT_WAITS",
            "a replication slot cannot be made yet: it waits for open transactions",
            detail="; ".join(blockers(observer)) or "none is open now",
            hint=f"end them (COMMIT, ROLLBACK PREPARED, pg_terminate_backend), or wait{instead}; "
            "on a standby run SELECT pg_log_standby_snapshot() on its primary",
        )

    def check() -> None:
        nonlocal told
        waiting.check()
        if time.monotonic() - told >= TELL_SECONDS:
            told = time.monotonic()
            waiting.tell(waits())

    try:
        rows = ask_within(pgconn, f"CREATE_REPLICATION_SLOT {description}", seconds, check)
    except (LockTimeout, Cancelled):
        raise waits() from None
    return Lsn.parse(rows[0][1] or "")


_BLOCKERS = """
WITH writing AS (  -- with its sub-transactions, each of which has an xid, a transaction is one line
    SELECT pid, virtualtransaction, max(age(transactionid)) AS age, array_agg(transactionid) AS xids
      FROM pg_locks WHERE locktype = 'transactionid' AND granted AND mode = 'ExclusiveLock'
     GROUP BY pid, virtualtransaction)
SELECT w.pid, p.gid, a.usename, a.application_name, COALESCE(a.datname, p.database), a.state,
       round(EXTRACT(epoch FROM clock_timestamp() - COALESCE(a.xact_start, p.prepared)))::bigint
  FROM writing w
  LEFT JOIN pg_stat_activity a ON a.pid = w.pid
  LEFT JOIN pg_prepared_xacts p ON w.pid IS NULL AND p.transaction = ANY (w.xids)
 WHERE w.pid IS DISTINCT FROM pg_backend_pid()
 ORDER BY w.age DESC LIMIT 5
"""


def blockers(connection: Session, *, older_than: int = 0) -> list[str]:
    """The oldest open transactions that write, in all databases, as a message names them.

    Without pg_read_all_stats the age of other users' transactions is unknown, and counts as old.
    """
    rows = query(connection, _BLOCKERS)
    return [transaction(*row) for row in rows if row[-1] is None or row[-1] >= older_than]


# --- W ------------------------------------------------------------------------------------------

_WRITERS = """
WITH now AS MATERIALIZED (
    SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next)
SELECT DISTINCT held.transactionid::text::bigint, now.next
  FROM now, pg_locks wrote JOIN pg_locks held USING (virtualtransaction)
 WHERE wrote.locktype = 'relation' AND wrote.granted
   AND wrote.database = (SELECT oid FROM pg_database
                          WHERE datname = current_database())
   AND wrote.relation = ANY (%s::oid[])
   -- ShareUpdateExclusive (vacuum) and Share (create index) let nobody write.
   AND wrote.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
   AND held.locktype = 'transactionid' AND held.granted AND held.mode = 'ExclusiveLock'
"""


def writers(connection: Session, oids: Sequence[int]) -> set[int]:
    """W: the transactions, as 64-bit xids, that hold a write lock on one of the tables, prepared ones too.

    Sub-transactions are among them and do no harm: a snapshot lists top-level ones only. A
    transaction that has the lock and no xid has written nothing yet, so all of it is captured.
    """
    # Twice: PREPARE hands a transaction's locks over one by one, and between two of them the join misses it.
    rows = [row for _ in range(2) for row in query(connection, _WRITERS, [list(oids)])]
    return {widen(xid, near) for xid, near in rows}


def widen(xid: int, near: int) -> int:
    """The 64-bit xid whose low half this is, next to `near`."""
    return near + ((xid - near + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


# --- removing -----------------------------------------------------------------------------------


def drop_upstream(
    address: Address, *, publication: str | None, slot: str | None, application: str, seconds: float = 30.0
) -> list[str]:
    """Remove the slot and the publication that are ours; what was removed, for people.

    A session that still reads the slot is ended if it is provably ours: it reads our slot and calls
    itself `application`. Any other is named and left alone.
    """
    removed: list[str] = []
    with closing(connect(address, role="drop")) as connection:
        if slot is not None:
            if _free_slot(connection, slot, application):
                removed.append(f'the walsender of "{application}" was ended')
            if _until(lambda: _drop_slot(connection, slot), seconds):
                removed.append(f'slot "{slot}"')
        if publication is not None and _published_at_all(connection, publication):
            with _altering(connection, ()):
                _execute(connection, f"DROP PUBLICATION {quote_identifier(publication)}", then="")
            removed.append(f'publication "{publication}"')
    return removed


def _published_at_all(connection: Session, name: str) -> bool:
    return bool(query(connection, "SELECT 1 FROM pg_publication WHERE pubname = %s", [name]))


def _free_slot(connection: Session, slot: str, application: str) -> bool:
    """End our own zombie on the slot; True if there was one."""
    rows = query(
        connection,
        "SELECT s.active_pid, a.application_name FROM pg_replication_slots s"
        " LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid"
        " WHERE s.slot_name = %s AND s.active_pid IS NOT NULL",
        [slot],
    )
    for pid, found in rows:
        if found != application:
            raise slot_taken(slot, pid, f'application "{found}"')
        query(connection, "SELECT pg_terminate_backend(%s)", [pid])
        return True
    return False


def _drop_slot(connection: Session, slot: str) -> bool | None:
    """Drop the slot: True when done, False when there is none, None while it is still in use."""
    rows = query(
        connection,
        "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s",
        [slot],
    )
    if not rows:
        return False
    if rows[0][0] is not None:
        return None
    query(connection, "SELECT pg_drop_replication_slot(%s)", [slot])
    return True


def _until(attempt: Callable[[], bool | None], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while (done := attempt()) is None:
        if time.monotonic() > deadline:
            raise Transient(
                "PG_SLOT_BUSY",
                "a slot did not become free in time",
                hint="try again when the session that reads it has ended",
            )
        time.sleep(0.05)
    return done


def release_slot(pgconn: pq.abc.PGconn, slot: str) -> None:
    """Drop a slot of this very connection, also within its transaction."""
    ask(pgconn, f"DROP_REPLICATION_SLOT {quote_identifier(slot)}")
