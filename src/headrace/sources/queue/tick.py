"""Ticks: the cuts of a queue. One is taken by whoever wants one; nobody has to be running for it.

    BEGIN READ COMMITTED
    lock the queue's ticks                            one statement
    INSERT the tick, with the statement's snapshot    another one: its snapshot is younger than the lock
    COMMIT                                            on the disk, with all that the snapshot shows

The snapshots of two ticks are therefore in the order of their numbers, and what the one shows the other
shows too. A snapshot that was taken before the lock might be older than that of the tick before.

Ticks are numbered without gaps. The clock of a tick (`taken`) is later than that of the one before, whatever
the server's clock does, and not before any commit that it shows.

Where nothing has come since the newest tick none is taken, and nothing is written to the source. That is
asked of the events: is there one in the batch up to now (`Newest.moved`)? The snapshot alone does not tell:
it ends (`xmax`) behind the last transaction that had ended, and later ones that ran are not in its list.

Called by the receiver as often as its options say, and by the driver where it asks how far the source is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.core.failpoint import failpoint
from headrace.core.position import Position
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.queue.batch import Batch, Snapshot
from headrace.sources.queue.objects import Objects
from headrace.sources.queue.position import Log, Place

_LOCK = 0x7469636B  # with a hash of the queue's name: of those that take its ticks

_TICK = (
    "t.tick, (pg_catalog.date_part('epoch', t.taken) * 1000000)::pg_catalog.int8, "
    "t.snapshot::pg_catalog.text, t.nonce::pg_catalog.text"
)


@dataclass(frozen=True, slots=True)
class Tick:
    """One cut."""

    number: int
    taken: int  # microseconds since 1970
    snapshot: Snapshot
    nonce: str

    @property
    def place(self) -> Place:
        return Place(self.number, self.nonce)

    def position(self, log: Log) -> Position:
        """The position right behind it."""
        return log.position(self.place)


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest tick, the source's clock, and whether something has come since."""

    tick: Tick | None
    moved: bool
    clock: int  # microseconds since 1970, read before it was asked whether something came


def newest(connection: Session, objects: Objects) -> Newest:
    """Ask for the newest tick."""
    [(clock,)] = query(
        connection,
        "SELECT (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000)::pg_catalog.int8",
    )
    rows = query(
        connection,
        f"SELECT {_TICK}, pg_catalog.pg_current_snapshot()::pg_catalog.text"
        f" FROM {objects.tick} t WHERE t.queue = %s ORDER BY t.tick DESC LIMIT 1".encode(),
        [objects.name],
    )
    if not rows:
        return Newest(None, True, clock)
    found = _tick(rows[0][:4])
    since = Batch.between(found.snapshot, Snapshot.parse(rows[0][4]))
    moved = not since.is_empty and query(connection, since.question(objects).encode()) != [(False,)]
    return Newest(found, moved, clock)


def after(connection: Session, objects: Objects, number: int, most: int) -> list[Tick]:
    """The ticks behind this one, in their order."""
    rows = query(
        connection,
        f"SELECT {_TICK} FROM {objects.tick} t WHERE t.queue = %s AND t.tick > %s"
        " ORDER BY t.tick LIMIT %s".encode(),
        [objects.name, number, most],
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
    with connection.transaction():
        # Whatever the role's default is: each statement is to have a snapshot of its own.
        query(connection, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE")
        query(
            connection,
            f"SELECT pg_catalog.pg_advisory_xact_lock({_LOCK}, pg_catalog.hashtext(%s))".encode(),
            [f"{objects.schema}.{objects.name}"],
        )
        failpoint("queue.tick.before")
        [row] = query(connection, _insertion(objects).encode(), [objects.name, objects.name])
        yield _tick(row)
    failpoint("queue.tick.after")


def _insertion(objects: Objects) -> str:
    clock = "pg_catalog.clock_timestamp()"
    return f"""
        INSERT INTO {objects.tick} AS t (queue, tick, taken, snapshot, nonce)
        SELECT %s, coalesce(max(k.tick), 0) + 1,
               greatest({clock}, max(k.taken) + '1 us'::pg_catalog.interval),
               pg_catalog.pg_current_snapshot(), pg_catalog.gen_random_uuid()
          FROM (SELECT k.tick, k.taken FROM {objects.tick} k
                 WHERE k.queue = %s ORDER BY k.tick DESC LIMIT 1) k
        RETURNING {_TICK}
    """


def reach(connection: Session, objects: Objects) -> Tick:
    """A tick that shows all that is committed by now: the newest, where nothing has come since."""
    found = newest(connection, objects)
    if found.tick is not None and not found.moved:
        return found.tick
    return take(connection, objects)


def _tick(row: tuple[int, int, str, str]) -> Tick:
    number, taken, snapshot, nonce = row
    return Tick(number, taken, Snapshot.parse(snapshot), nonce)
