"""Ticks: the cuts of a queue. Any lake may take one at any time; no process has to run for it.

    BEGIN READ COMMITTED
    lock the queue's row                              one statement
    INSERT the tick, with the statement's snapshot    another one: its snapshot is younger than the lock
    COMMIT                                            on the disk, with all that the snapshot shows

So the snapshots of two ticks are in the order of their numbers, and the later one shows all that the earlier
one shows. A snapshot that was taken before the lock might be older than that of the tick before. Only roles
that may write the row can take the lock. An advisory lock would let anybody stop all ticks.

Ticks are numbered without gaps. The clock of a tick (`taken_at`) is later than that of the tick before,
whatever the server's clock does, and not before any commit that it shows.

If nothing has come since the newest tick, none is taken, and nothing is written to the source. The events
decide that: is there one in the batch up to now (`Newest.has_more`)? The snapshot alone can't tell: it ends
(`xmax`) behind the last transaction that had ended, and does not list later ones that run.

`QueueLost` means that the position reached is no place of this queue any more; a reconcile goes on from
there. The session raises it before it begins (`proof`), streams do after each batch, and the schema check
does (`ddl.schema_check`).

Ticks also record attached partitions, so that one that came and went between two looks is noticed. A
partition that is attached with rows brings them without a statement, and takes them along when it goes. The
catalog keeps no trace of one that went. So the statement that takes a tick also lists, by its snapshot, the
partitions that came beneath captured roots since the tick before (`tick.attached`):

    look ── D ─── tick: p came ─── tick ─── look: p is not there      its rows are in the tick's time: the
                                                                      lake lacks them: copied anew
    look ── D ─── tick ─────────── tick ─── look                      it came and went between two ticks, or
                  within one transaction: no tick shows it            in vain: nothing is missing anywhere

    came       the row of its place in the tree, or of a place above it, is of a transaction no older than all
               that ran at the tick before. A few may be listed twice, none is left out. A snapshot names no
               subtransactions, so a finer test is not possible
    D          the newest tick of the recorded look (`LOOKED`): partitions that came by then were there
    owed       a locked root gets no record of a new look. Marks pass its ticks meanwhile, and those are
               deleted. So the partitions that they listed, and those that came by this look, are added to
               its old record (`OWED`), and must be in the tree that the next look finds

If a tick's list is NULL, a program that does not know of this took it: then its roots are copied again. A
root that waits for its copy is looked at once the copy is in. Ticks that listed a partition that came and
went meanwhile may be deleted by then. So no mark from before that look names such a root (`unproven`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from headrace.core.errors import Definite, PositionLost
from headrace.core.failpoint import failpoint
from headrace.core.position import Position
from headrace.sources.contract.values import TableDef
from headrace.sources.postgres.catalog.locks import transaction
from headrace.sources.postgres.catalog.partition_tree import Branch
from headrace.sources.postgres.session.statements import Session, in_transaction, query
from headrace.sources.queue.batch import TickBatch, TxidSnapshot
from headrace.sources.queue.position import QueueTimeline, TickPlace
from headrace.sources.queue.upstream import Objects
from headrace.sources.shared.refusals import LockTimeout

LOOKED = "looked"  # of a root's record: the newest tick of its look
OWED = "owed"  # of a root's record: partitions that came since, and who attached them

_IS_NEW = "((n.next - i.xmin::text::int8) & 4294967295) <= n.span"


def expression(objects: Objects) -> str:
    """The value of a tick that is being taken; its parameters are the queue's name, twice."""
    return f"""(
        WITH RECURSIVE n(next, span) AS (
            SELECT x.next, x.next - coalesce((
                SELECT pg_catalog.pg_snapshot_xmin(k.snapshot)::text::int8 FROM {objects.tick} k
                 WHERE k.queue = %s ORDER BY k.tick DESC LIMIT 1), 0)
              FROM (SELECT pg_catalog.pg_snapshot_xmax(
                    pg_catalog.pg_current_snapshot())::text::int8) x(next)),
        roots(oid) AS (
            SELECT DISTINCT w.relation FROM {objects.tracked_name} w
              JOIN pg_catalog.pg_partitioned_table p ON p.partrelid = w.relation WHERE w.queue = %s),
        beneath(root, oid, made, new) AS (
            SELECT r.oid, i.inhrelid, i.xmin, {_IS_NEW}
              FROM roots r JOIN pg_catalog.pg_inherits i ON i.inhparent = r.oid CROSS JOIN n
             WHERE EXISTS (SELECT FROM pg_catalog.pg_inherits i, n WHERE {_IS_NEW})
             UNION ALL
            SELECT b.root, i.inhrelid, i.xmin, b.new OR {_IS_NEW}
              FROM beneath b JOIN pg_catalog.pg_inherits i ON i.inhparent = b.oid CROSS JOIN n)
        SELECT coalesce(json_agg(json_build_array(b.root::int8, b.oid::int8, b.made::text::int8)
                                 ORDER BY b.root, b.oid), '[]')
          FROM beneath b WHERE b.new)"""


Places = frozenset[tuple[int, int]]  # partitions, each with the transaction that attached it


def shown_places(
    connection: Session, objects: Objects, newest: int, records: Mapping[str, TableDef]
) -> dict[str, Places | None]:
    """The places beneath roots, by key, that ticks list since their last looks; None if a list is NULL.

    Call it within the look. The record has the places that deleted ticks listed.
    """
    looked = {key: table.details[LOOKED] for key, table in records.items() if LOOKED in table.details}
    if not looked:
        return {}
    rows = query(
        connection,
        f"SELECT t.tick, t.attached FROM {objects.tick} t WHERE t.queue = %s AND t.tick > %s AND t.tick <= %s"
        " AND coalesce(t.attached::text, '') <> '[]'".encode(),
        [objects.name, min(looked.values()), newest],
        prepare=True,
    )
    found: dict[str, Places | None] = {key: _owed_places(records[key]) for key in looked}
    for tick, attached in rows:
        for key, places in found.items():
            if tick > looked[key] and places is not None:
                beneath = None if attached is None else _beneath(records[key].number, attached)
                found[key] = None if beneath is None else places | beneath
    return found


def unproven(
    connection: Session, objects: Objects, newest: int, records: Mapping[str, TableDef]
) -> frozenset[str]:
    """The roots, by key, for which a tick after the look of their record is deleted already."""
    following = {
        key: t.details[LOOKED] + 1 for key, t in records.items() if t.details.get(LOOKED, newest) < newest
    }
    if not following:
        return frozenset()
    # Don't ask for the oldest tick: if a snapshot is open for days, all deleted ones lie before it in the
    # index.
    statement = f"SELECT t.tick FROM {objects.tick} t WHERE t.queue = %s AND t.tick = ANY (%s::int8[])"
    rows = query(
        connection, statement.encode(), [objects.name, sorted(set(following.values()))], prepare=True
    )
    there = {tick for (tick,) in rows}
    return frozenset(key for key, tick in following.items() if tick not in there)


def passing(
    places: Mapping[str, Places | None],
    records: Mapping[str, TableDef],
    trees: Mapping[int, Iterable[Branch]],
) -> frozenset[str]:
    """The roots, by key, beneath which a tick shows a partition that the look does not."""
    there = {number: {(each.oid, each.attached_by) for each in tree} for number, tree in trees.items()}
    return frozenset(
        key
        for key, those in places.items()
        if (tree := there.get(records[key].number)) is not None and (those is None or not those <= tree)
    )


def places_since(before: Iterable[Branch], now: Iterable[Branch]) -> Places:
    """The places beneath a root that a look shows, and the look before did not."""
    first, then = (frozenset((each.oid, each.attached_by) for each in tree) for tree in (before, now))
    return then - first


def owing(table: TableDef, places: Places) -> TableDef | None:
    """The record of a locked root, with the partitions that came; None if it has them already."""
    if places == _owed_places(table):
        return None
    return replace(table, details={**table.details, OWED: sorted(map(list, places))})


def _owed_places(table: TableDef) -> Places:
    return frozenset((oid, made) for oid, made in table.details.get(OWED, ()))


def _beneath(root: int, attached: Iterable[tuple[int, int, int]]) -> Places:
    return frozenset((oid, made) for number, oid, made in attached if number == root)


RECONCILE = "headrace run --reconcile copies its tables anew and writes the difference"


class QueueLost(Definite, PositionLost):
    """The reached position is no place of this queue."""

    codes = (
        "QUEUE_GONE",
        "QUEUE_REMADE",
        "QUEUE_TICK_UNKNOWN",
        "QUEUE_XIDS_BEHIND",
        "QUEUE_READER_GONE",
        "QUEUE_HISTORY_CHANGED",
    )


def gone_error(objects: Objects) -> QueueLost:
    """The error of a queue that does not exist."""
    return QueueLost(
        "QUEUE_GONE",
        f'there is no queue "{objects.name}" in the schema "{objects.schema}"',
        detail="it is gone: changes that were made meanwhile are in no batch",
        hint=RECONCILE,
    )


def remade(objects: Objects, detail: str) -> QueueLost:
    """The error of a queue that was replaced, or that lost events because somebody removed them."""
    return QueueLost(
        "QUEUE_REMADE",
        f'the queue "{objects.name}" in the schema "{objects.schema}" is not the one that was read',
        detail=f"{detail}: changes that were made meanwhile may be in no batch",
        hint=RECONCILE,
    )


def reader_gone(objects: Objects, lake: str) -> QueueLost:
    """The error of a queue in which this lake is no reader any more."""
    return QueueLost(
        "QUEUE_READER_GONE",
        f'the queue "{objects.name}" does not know this lake any more',
        detail=f'reader "{lake}" was dropped: what it had not read may be gone',
        hint=RECONCILE,
    )


def tick_unknown(objects: Objects, number: int) -> QueueLost:
    """The error of a queue without the tick that was reached last."""
    return QueueLost(
        "QUEUE_TICK_UNKNOWN",
        f'the queue "{objects.name}" does not have what was reached: tick {number}',
        detail="the server was set back, restored, or is another one; or its ticks were removed by hand",
        hint=RECONCILE,
    )


_TICK = (
    "t.tick, (pg_catalog.date_part('epoch', t.taken) * 1000000)::pg_catalog.int8, "
    "t.snapshot::pg_catalog.text, t.nonce::pg_catalog.text"
)


@dataclass(frozen=True, slots=True)
class Tick:
    """One cut."""

    number: int
    taken_at: int  # microseconds since 1970
    snapshot: TxidSnapshot
    nonce: str

    @property
    def place(self) -> TickPlace:
        return TickPlace(self.number, self.nonce)

    def position(self, log: QueueTimeline) -> Position:
        """The position right behind it."""
        return log.position(self.place)


@dataclass(frozen=True, slots=True)
class Sight:
    """The newest tick, and the moment at which it was that."""

    tick: Tick | None
    clock: int  # microseconds since 1970 by the source, read before the snapshot was taken
    now: TxidSnapshot

    @property
    def stop(self) -> int:
        """The xmax of the snapshot: it shows neither this transaction nor a later one."""
        return self.now.xmax


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest tick, the source's clock, and whether something has come since."""

    tick: Tick | None
    has_more: bool
    clock: int  # microseconds since 1970, read before it was asked whether something came


def see(connection: Session, objects: Objects) -> Sight:
    """Find the newest tick."""
    # A transaction gets its time before its first snapshot. A statement may get it later: its time is that of
    # the message that executes it, but the earlier message that binds its parameters took the snapshot.
    [(clock, now, *tick)] = query(
        connection,
        "SELECT (pg_catalog.date_part('epoch', pg_catalog.transaction_timestamp()) * 1000000)"
        "::pg_catalog.int8,"
        f" pg_catalog.pg_current_snapshot()::pg_catalog.text, n.* FROM (SELECT) one LEFT JOIN"
        f" (SELECT {_TICK} FROM {objects.tick} t WHERE t.queue = %s ORDER BY t.tick DESC LIMIT 1) n"
        " ON true".encode(),
        [objects.name],
        prepare=True,
    )
    number, taken, snapshot, nonce = tick
    return Sight(
        None if number is None else _tick((number, taken, snapshot, nonce)), clock, TxidSnapshot.parse(now)
    )


def newest(connection: Session, objects: Objects) -> Newest:
    """Find the newest tick, and ask whether something has come since."""
    seen = see(connection, objects)
    if seen.tick is None:
        return Newest(None, True, seen.clock)
    since = TickBatch.between(seen.tick.snapshot, seen.now)
    moved = not since.is_empty and query(connection, since.question(objects).encode()) != [(False,)]
    return Newest(seen.tick, moved, seen.clock)


def after(connection: Session, objects: Objects, number: int, most: int) -> list[Tick]:
    """The ticks behind this one, in their order."""
    rows = query(
        connection,
        f"SELECT {_TICK} FROM {objects.tick} t WHERE t.queue = %s AND t.tick > %s"
        " ORDER BY t.tick LIMIT %s".encode(),
        [objects.name, number, most],
        prepare=True,
    )
    return [_tick(row) for row in rows]


def find(connection: Session, objects: Objects, number: int) -> Tick | None:
    """The tick of this number, if it still exists."""
    rows = query(
        connection,
        f"SELECT {_TICK} FROM {objects.tick} t WHERE t.queue = %s AND t.tick = %s".encode(),
        [objects.name, number],
    )
    return _tick(rows[0]) if rows else None


def take(connection: Session, objects: Objects) -> Tick:
    """Take a tick; committed when this returns."""
    with taking(connection, objects) as tick:
        return tick


@contextmanager
def taking(connection: Session, objects: Objects) -> Iterator[Tick]:
    """Take a tick, in one transaction with the block; committed if the block ends without an error."""
    with _naming_holders(connection, objects), in_transaction(connection):
        # Each statement must have a snapshot of its own, whatever the role's default is.
        query(connection, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE")
        _lock(connection, objects)
        failpoint("queue.tick.before")
        [row] = query(connection, _insertion(objects).encode(), [objects.name] * 4, prepare=True)
        yield _tick(row)
    failpoint("queue.tick.after")


class QueueLocked(LockTimeout):
    """Another session holds the queue's row, so no tick can be taken."""

    codes = ("QUEUE_LOCKED",)


class _NotHad(LockTimeout):
    """The lock for ticks was not granted in time."""


def _lock(connection: Session, objects: Objects) -> None:
    """Prevent other ticks until the transaction ends."""
    statement = f"SELECT 1 FROM {objects.queue} WHERE name = %s FOR NO KEY UPDATE"
    try:
        rows = query(connection, statement.encode(), [objects.name])
    except LockTimeout as error:
        raise _NotHad(error.code, error.primary, hint=error.hint) from None
    if not rows:
        raise gone_error(objects)


@contextmanager
def _naming_holders(connection: Session, objects: Objects) -> Iterator[None]:
    """Add the lock's holder to the error, after the transaction that waited for the lock has ended."""
    try:
        yield
    except _NotHad:
        raise QueueLocked(
            "QUEUE_LOCKED",
            f'no tick of the queue "{objects.name}" can be taken: a transaction holds its row',
            detail="; ".join(held_by(connection, objects)) or "nobody holds it any more",
            hint="nothing to do: it is tried again; end that transaction (COMMIT, ROLLBACK PREPARED, "
            "pg_terminate_backend) if it lasts too long",
        ) from None


# A transaction that locks the row is in the row (several at once as one multixact, which names nobody). One
# that locks the whole table keeps us from reading the row.
_TABLE_HOLDERS = """
SELECT l.pid, NULL, a.usename, a.application_name, a.datname, a.state,
       round(extract(epoch FROM pg_catalog.clock_timestamp() - a.xact_start))::int8, 'holds ' || l.mode
  FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'relation' AND l.granted AND l.mode IN ('ExclusiveLock', 'AccessExclusiveLock')
   AND l.relation = %s::pg_catalog.regclass AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
"""
_ROW_HOLDERS = """
SELECT l.pid, p.gid, a.usename, a.application_name, coalesce(a.datname, p.database), a.state,
       round(extract(epoch FROM pg_catalog.clock_timestamp() - coalesce(a.xact_start, p.prepared)))::int8
  FROM {queue} q JOIN pg_catalog.pg_locks l
    ON l.locktype = 'transactionid' AND l.transactionid = q.xmax AND l.granted
  LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
  LEFT JOIN pg_catalog.pg_prepared_xacts p ON p.transaction = l.transactionid
 WHERE q.name = %s
"""


def held_by(connection: Session, objects: Objects, seconds: float = 0.0) -> Sequence[str]:
    """Name the transactions that prevent ticks and have been open for so long."""
    rows = query(connection, _TABLE_HOLDERS.encode(), [objects.queue])
    if not rows:
        rows = query(connection, _ROW_HOLDERS.format(queue=objects.queue).encode(), [objects.name])
    return [transaction(*row) for row in rows if (row[6] or 0) >= seconds]


def _insertion(objects: Objects) -> str:
    clock = "pg_catalog.clock_timestamp()"
    return f"""
        INSERT INTO {objects.tick} AS t (queue, tick, taken, snapshot, nonce, attached)
        SELECT %s, coalesce(max(k.tick), 0) + 1,
               greatest({clock}, max(k.taken) + '1 us'::pg_catalog.interval),
               pg_catalog.pg_current_snapshot(), pg_catalog.gen_random_uuid(),
               {expression(objects)}
          FROM (SELECT k.tick, k.taken FROM {objects.tick} k
                 WHERE k.queue = %s ORDER BY k.tick DESC LIMIT 1) k
        RETURNING {_TICK}
    """


def last(connection: Session, objects: Objects) -> int:
    """The number of the newest tick; 0 if there is none."""
    statement = f"SELECT coalesce(max(t.tick), 0) FROM {objects.tick} t WHERE t.queue = %s"
    [(number,)] = query(connection, statement.encode(), [objects.name])
    return int(number)


def reach(connection: Session, objects: Objects) -> Tick:
    """Return a tick that shows everything committed by now: the newest one, if no event has come since."""
    found = newest(connection, objects)
    if found.tick is not None and not found.has_more:
        return found.tick
    return take(connection, objects)


def _tick(row: tuple[int, int, str, str]) -> Tick:
    number, taken, snapshot, nonce = row
    return Tick(number, taken, TxidSnapshot.parse(snapshot), nonce)
