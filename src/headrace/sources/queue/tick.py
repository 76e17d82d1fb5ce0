"""Ticks: the cuts of a queue. One is taken by whoever wants one; nobody has to be running for it.

    BEGIN READ COMMITTED
    lock the queue's row                              one statement
    INSERT the tick, with the statement's snapshot    another one: its snapshot is younger than the lock
    COMMIT                                            on the disk, with all that the snapshot shows

The snapshots of two ticks are therefore in the order of their numbers, and what the one shows the other
shows too. A snapshot that was taken before the lock might be older than that of the tick before. The lock can
be had by those alone who may write the row, unlike an advisory one, by which anybody could end all ticks.

Ticks are numbered without gaps. The clock of a tick (`taken_at`) is later than that of the one before,
whatever the server's clock does, and not before any commit that it shows.

Where nothing has come since the newest tick none is taken, and nothing is written to the source. That is
asked of the events: is there one in the batch up to now (`Newest.has_more`)? The snapshot alone does not
tell: it ends (`xmax`) behind the last transaction that had ended; later ones that ran are not in its list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.core.failpoint import failpoint
from headrace.core.position import Position
from headrace.sources.postgres.catalog.locks import transaction
from headrace.sources.postgres.session.statements import Session, in_transaction, query
from headrace.sources.queue import attachments
from headrace.sources.queue.batch import TickBatch, TxidSnapshot
from headrace.sources.queue.loss import gone_error
from headrace.sources.queue.objects import Objects
from headrace.sources.queue.position import QueueTimeline, TickPlace
from headrace.sources.shared.refusals import LockTimeout

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
        """The first transaction that the snapshot does not show, nor any later one."""
        return self.now.xmax


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest tick, the source's clock, and whether something has come since."""

    tick: Tick | None
    has_more: bool
    clock: int  # microseconds since 1970, read before it was asked whether something came


def see(connection: Session, objects: Objects) -> Sight:
    """Find the newest tick."""
    # A transaction has its time before its first snapshot. A statement may not: that of the message that
    # executes it comes behind the one that binds its parameters, which took the snapshot.
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
    """The tick of this number, if it is there."""
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
    """Take a tick; committed, with what else is done in the block, when it ends well."""
    with _naming_holders(connection, objects), in_transaction(connection):
        # Whatever the role's default is: each statement is to have a snapshot of its own.
        query(connection, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE")
        _lock(connection, objects)
        failpoint("queue.tick.before")
        [row] = query(connection, _insertion(objects).encode(), [objects.name] * 4, prepare=True)
        yield _tick(row)
    failpoint("queue.tick.after")


class QueueLocked(LockTimeout):
    """Somebody who may write the queue's row holds it, so that no tick can be taken."""

    codes = ("QUEUE_LOCKED",)


class _NotHad(LockTimeout):
    """The lock of ticks was not had in time."""


def _lock(connection: Session, objects: Objects) -> None:
    """Let nobody else take a tick until the transaction ends."""
    statement = f"SELECT 1 FROM {objects.queue} WHERE name = %s FOR NO KEY UPDATE"
    try:
        rows = query(connection, statement.encode(), [objects.name])
    except LockTimeout as error:
        raise _NotHad(error.code, error.primary, hint=error.hint) from None
    if not rows:
        raise gone_error(objects)


@contextmanager
def _naming_holders(connection: Session, objects: Objects) -> Iterator[None]:
    """Say who holds the lock, once the transaction that waited for it has ended."""
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


# Those who lock the row are in it (several who share it, as one number of which nothing is told); those who
# lock the whole table keep us from reading it.
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
    """Name the transactions that keep ticks from being taken and are open for so long."""
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
               {attachments.expression(objects)}
          FROM (SELECT k.tick, k.taken FROM {objects.tick} k
                 WHERE k.queue = %s ORDER BY k.tick DESC LIMIT 1) k
        RETURNING {_TICK}
    """


def last(connection: Session, objects: Objects) -> int:
    """The number of the newest tick; 0 where none was taken."""
    statement = f"SELECT coalesce(max(t.tick), 0) FROM {objects.tick} t WHERE t.queue = %s"
    [(number,)] = query(connection, statement.encode(), [objects.name])
    return int(number)


def reach(connection: Session, objects: Objects) -> Tick:
    """A tick that shows all that is committed by now: the newest, where nothing has come since."""
    found = newest(connection, objects)
    if found.tick is not None and not found.has_more:
        return found.tick
    return take(connection, objects)


def _tick(row: tuple[int, int, str, str]) -> Tick:
    number, taken, snapshot, nonce = row
    return Tick(number, taken, TxidSnapshot.parse(snapshot), nonce)
