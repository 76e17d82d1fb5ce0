"""Our slot: its state, its making, its end.

Making a slot waits for every transaction that has an xid, in all databases of the server, and then again for
those that run by then. If writers overlap, many short attempts would never succeed. So we make one long
attempt (`Waiting`). It reports all the while which transactions it waits for, and it is cancelled on the
server when it is no longer wanted. If we are gone, the server notices (`bound_wait`). The server removes a
slot whose making was cancelled, so no half-made slot is left.

`quiet` looks into a slot that nobody reads: does its stream hold a commit between two frontiers?

    confirmed ──────── reached ─ ─ ─ ─ ─ ─ wanted        quiet: no transaction of the publication commits
                                 ? ? ?                    in [reached, wanted)

The server decodes the changes and does not move the slot. It answers only up to what it has flushed. A
transaction without synchronous commit is visible before it is flushed, so we wait for the flush. The server
collects all that it decodes before it answers, so we first ask for one transaction.

A transaction that is still not flushed is missing in the answer. A comparison that takes the stream for quiet
then finds that transaction as a difference.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from psycopg import pq

from headrace.core.errors import Definite, PositionDoubtful, Transient
from headrace.core.names import quote_identifier
from headrace.core.position import Position
from headrace.sources.contract.mirror import Health
from headrace.sources.contract.values import ALONE, Waiting
from headrace.sources.postgres.position import Lsn
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect, replication
from headrace.sources.postgres.session.log_end import WAL_END
from headrace.sources.postgres.session.statements import Session, ask, ask_within, query
from headrace.sources.postgres.session.stream_errors import slot_lost, slot_taken, slot_unfit
from headrace.sources.postgres.upstream import PostgresUpstream
from headrace.sources.postgres.writers import blockers
from headrace.sources.shared.refusals import LockTimeout, StatementCancelled

PLUGIN = "pgoutput"
FAILOVER_SINCE = 170000
SLOT_SECONDS = 600.0  # for one attempt to make a slot
TELL_SECONDS = 2.0
TRAFFIC = ("stream_txns", "stream_count", "stream_bytes", "spill_txns", "spill_count", "spill_bytes")


@dataclass(frozen=True, slots=True)
class SlotState:
    """The state of a logical slot, as the server reports it."""

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
    failover: bool  # standbys that synchronise slots keep a copy (17+)
    is_copy: bool  # one that a standby keeps, or kept before its promotion
    # The server's statistics of streamed and spilled data (14+): stream_txns, spill_bytes and so on.
    traffic: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_lost(self) -> bool:
        return self.wal_status == "lost" or self.invalidation is not None


def slot_state(connection: Session, name: str) -> SlotState | None:
    """The slot of that name, or None. The row is read as JSON, since newer versions add columns."""
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
        failover=bool(slot.get("failover")),
        is_copy=bool(slot.get("synced")),
        traffic=_traffic(connection, name),
    )


class TooMuchRetained(Definite, PositionDoubtful):
    """The source holds back more log for us than max_wal allows."""

    codes = ("PG_MAX_WAL",)


def _excess(retained: int | None, limit: int | None) -> TooMuchRetained | None:
    if limit is None or retained is None or retained <= limit:
        return None
    return TooMuchRetained(
        "PG_MAX_WAL",
        "the source holds back more log for us than max_wal allows",
        detail=f"{retained} bytes, {limit} allowed",
        hint="raise max_wal to keep the mirror, or free the source with `headrace drop`",
    )


def health(slot: SlotState | None, limit: int | None) -> Health:
    """Judge the log that the slot holds back, with the figures and lines for `status`."""
    if slot is None:
        return Health()
    figures = {
        "restart_lsn": None if slot.restart_lsn is None else str(slot.restart_lsn),
        "confirmed_flush_lsn": None if slot.confirmed_flush_lsn is None else str(slot.confirmed_flush_lsn),
        "wal_status": slot.wal_status,
        "safe_wal_size": slot.safe_wal_size,
        "retained_bytes": slot.retained_bytes,
        "catalog_xmin_age": slot.catalog_xmin_age,
        **slot.traffic,
    }
    return Health(
        figures,
        tuple(_figures(figures)),
        _excess(slot.retained_bytes, limit),
        retained_bytes=slot.retained_bytes,
        limit_bytes=_lower(limit, slot),
    )


def _lower(limit: int | None, slot: SlotState) -> int | None:
    """The bytes that may be retained: our limit or the server's, whichever is lower."""
    if slot.safe_wal_size is None or slot.retained_bytes is None:
        return limit
    servers = slot.retained_bytes + max(0, slot.safe_wal_size)
    return servers if limit is None else min(limit, servers)


def _figures(slot: Mapping[str, Any]) -> Iterator[str]:
    """The figures of a slot as a line."""
    yield (
        f"slot {slot['wal_status']} · restart {slot['restart_lsn']} · "
        f"confirmed {slot['confirmed_flush_lsn']} · {slot['retained_bytes'] or 0:,} bytes retained · "
        f"catalog_xmin age {slot['catalog_xmin_age']}"
    )
    if slot.get("stream_txns") is not None:
        yield (
            f"streamed by the server: {slot['stream_txns']:,} transactions, "
            f"{slot['stream_bytes']:,} bytes · spilled to its disk: {slot['spill_txns']:,}, "
            f"{slot['spill_bytes']:,} bytes"
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
    """Refuse a slot that can't serve our stream, whoever made it."""
    if state.plugin != PLUGIN or state.temporary:
        raise slot_unfit(name, f"it is not a permanent {PLUGIN} slot")
    if state.database != database:
        raise slot_unfit(name, f'it belongs to database "{state.database}"')
    if state.two_phase:
        raise slot_unfit(name, "two_phase is on: prepared transactions would come without their rows")
    if state.is_lost:
        raise slot_lost(name, f"wal_status {state.wal_status}, reason {state.invalidation or 'not given'}")


class SlotWaits(Transient):
    """A slot could not be made in time: other transactions are open."""


def ensure_slot(
    address: PostgresAddress,
    name: str,
    *,
    failover: bool = False,
    seconds: float = SLOT_SECONDS,
    waiting: Waiting = ALONE,
) -> Lsn:
    """Make sure that our slot exists; return the start of its stream, which has every later commit.

    The start of a new slot is its consistent point; that of an existing slot is its acknowledged position.
    With `failover` a new slot is one that standbys may keep a copy of, where the server can make such a slot.
    """
    with closing(connect(address, role="slot")) as connection:
        state = slot_state(connection, name)
        if state is None:
            pgconn = replication(address, role="slot")
            try:
                bound_wait(pgconn, seconds)
                options = "SNAPSHOT 'nothing'"
                if failover and knows_failover(connection):
                    options += ", FAILOVER"
                description = f"{quote_identifier(name)} LOGICAL {PLUGIN} ({options})"
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


def knows_failover(connection: Session) -> bool:
    """Tell whether this server can make a slot that its standbys keep a copy of."""
    if connection.info.server_version < FAILOVER_SINCE:
        return False
    [(standby,)] = query(connection, "SELECT pg_catalog.pg_is_in_recovery()")
    return not standby


def ensure_failover(address: PostgresAddress, connection: Session, name: str) -> None:
    """Let standbys keep a copy of our slot, which may be older than that option of ours.

    A slot that somebody reads can't be altered; the next start does it.
    """
    state = slot_state(connection, name)
    if state is None or state.failover or state.active_pid is not None or not knows_failover(connection):
        return
    pgconn = replication(address, role="slot")
    try:
        ask(pgconn, f"ALTER_REPLICATION_SLOT {quote_identifier(name)} (FAILOVER true)")
    finally:
        pgconn.finish()


def bound_wait(pgconn: pq.abc.PGconn, seconds: float) -> None:
    """Let the server end the wait for a slot by itself when its time is over, or when we are gone.

    Call it right before the walsender's command. Only an ordinary statement starts the timer by which the
    server checks that we are still there (`session.connection.WISHES`); the command itself does not.
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
    """Make a slot; return its consistent point. `observer` finds the transactions that it waits for."""
    told_at = time.monotonic()

    def waits() -> SlotWaits:
        return SlotWaits(
            "PG_SLOT_WAITS",
            "a replication slot cannot be made yet: it waits for open transactions",
            detail="; ".join(blockers(observer)) or "none is open now",
            hint=f"end them (COMMIT, ROLLBACK PREPARED, pg_terminate_backend), or wait{instead}; "
            "on a standby run SELECT pg_log_standby_snapshot() on its primary",
        )

    def check() -> None:
        nonlocal told_at
        waiting.check()
        if time.monotonic() - told_at >= TELL_SECONDS:
            told_at = time.monotonic()
            waiting.tell(waits())

    try:
        rows = ask_within(pgconn, f"CREATE_REPLICATION_SLOT {description}", seconds, check)
    except (LockTimeout, StatementCancelled):
        raise waits() from None
    return Lsn.parse(rows[0][1] or "")


def free_slot(connection: Session, slot: str, application: str) -> bool:
    """End a session of ours that still reads the slot; True if there was one."""
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


def drop_slot(connection: Session, slot: str, seconds: float) -> bool:
    """Drop the slot as soon as nobody reads it; False if there is none."""
    return _until(lambda: _drop(connection, slot), seconds)


def _drop(connection: Session, slot: str) -> bool | None:
    """Try to drop the slot: True if it was dropped, False if there is none, None if it is in use."""
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
    """Drop a slot that this connection made, even inside its transaction."""
    ask(pgconn, f"DROP_REPLICATION_SLOT {quote_identifier(slot)}")


_FLUSH_SECONDS = 2.0  # the server promises a flush within three times wal_writer_delay (0.2 s by default)
_MOST_CHANGES = (1, 100_000)  # changes to ask for; transactions before `reached` may come again

_PEEK = """
SELECT count(*), count(*) FILTER (WHERE get_byte(data, 0) = ascii('B')
                                    AND substring(data FROM 2 FOR 8) >= decode(%s, 'hex'))
  FROM pg_catalog.pg_logical_slot_peek_binary_changes(
       %s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', pg_catalog.quote_ident(%s))
"""


def quiet(connection: Session, upstream: PostgresUpstream, start: Position, stop: Position) -> bool:
    """Tell whether no transaction of the publication commits in [start, stop)."""
    log, slot, publication = upstream.log, upstream.slot, upstream.publication
    return _quiet(connection, slot, publication, log.lsn(start), log.lsn(stop))


def _quiet(connection: Session, slot: str, publication: str, reached: Lsn, wanted: Lsn) -> bool:
    _await_flush(connection, wanted)
    for most in _MOST_CHANGES:
        [(changes, new)] = query(
            connection, _PEEK, [f"{int(reached):016x}", slot, str(wanted), most, publication]
        )
        if new:
            return False
        if changes < most:
            return True
    return False


def _await_flush(connection: Session, wanted: Lsn) -> None:
    """Wait until the log is flushed up to `wanted`, but not for ever: without a commit its end may stay
    unflushed for long."""
    deadline = time.monotonic() + _FLUSH_SECONDS
    while time.monotonic() < deadline:
        [(done,)] = query(
            connection, "SELECT pg_catalog.pg_current_wal_flush_lsn() >= %s::pg_lsn", [str(wanted)]
        )
        if done:
            return
        time.sleep(0.05)
