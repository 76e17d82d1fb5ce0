"""Retention: what every reader has passed is let go; a queue holds what its slowest reader needs.

    ticks         below the slowest reader's are deleted, from where the last time ended: while a snapshot is
                  open for days the deleted ones stay in the index, and are not to be passed over each time
    event tables  three, of which one is current; the others are emptied as a whole, and take turns

        current 0     1  2          written: 0
        current 1     0  2          written: 1; 0 is emptied once all that it holds is visible to every reader
        current 2     0  1   ...    an empty one becomes current when the present one holds enough

A table is emptied by TRUNCATE under a lock that is never waited for (NOWAIT). While it is held nobody has an
event in it that is not committed, not even one that had asked for the current table when it was this. So
whatever is in it is visible to the statement behind the lock, and is held against the snapshot of the slowest
reader's tick. No row is ever deleted by itself, and nothing has to be vacuumed.

A transaction that is open keeps the table that it wrote to; the others go on taking turns. A reader that died
keeps everything (`health`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from headrace.core.failpoint import failpoint
from headrace.sources.postgres.session.statements import Session, in_transaction, query
from headrace.sources.queue.statements import ROTATING, current_place, turning
from headrace.sources.queue.upstream import EVENT_TABLES, Objects
from headrace.sources.shared.refusals import LockTimeout

ENOUGH = 16 << 20  # bytes of events in the current table, until another one becomes current
OLD = 60.0  # seconds, after which one that holds anything at all is no longer current


def tend(connection: Session, objects: Objects, since: int = 0) -> int:
    """Let go of what nobody needs; quick where there is nothing to do.

    Ticks below `since` are gone: it is what the last call returned.
    """
    forgotten = _forget_ticks(connection, objects, since)
    sizes = _sizes(connection, objects)
    current = _current(connection, objects)
    if not current.in_step:
        _switch(connection, objects, current, current.number)
    for number in range(EVENT_TABLES):
        if number != current.number and sizes[number] > 0 and _empty(connection, objects, number):
            sizes[number] = 0
    ahead = (current.number + 1) % EVENT_TABLES
    size = sizes[current.number]
    enough = size >= ENOUGH or (size > 0 and current.seconds >= OLD)
    if enough and sizes[ahead] == 0:
        _switch(connection, objects, current, ahead)
    return forgotten


def _forget_ticks(connection: Session, objects: Objects, since: int) -> int:
    """Delete the ticks from one on that every reader has passed; the first that is left."""
    slowest = f"SELECT min(r.tick) FROM {objects.reader} r WHERE r.queue = %s"
    [(until,)] = query(connection, slowest.encode(), [objects.name])
    if until is None or until <= since:
        return since
    query(
        connection,
        f"DELETE FROM {objects.tick} t WHERE t.queue = %s AND t.tick >= %s AND t.tick < %s".encode(),
        [objects.name, since, until],
    )
    return int(until)


def _sizes(connection: Session, objects: Objects) -> list[int]:
    """The bytes of each event table; TRUNCATE leaves none."""
    listed = ", ".join(f"coalesce(pg_catalog.pg_relation_size('{table}'), 0)" for table in objects.events)
    [row] = query(connection, f"SELECT {listed}".encode())
    return list(row)


@dataclass(frozen=True, slots=True)
class _Current:
    """The event table that writers are to write to."""

    number: int
    seconds: float  # since it became that
    switched_at: datetime
    in_step: bool  # the sequence says so; not where somebody set it, or was killed amid a turn


def _current(connection: Session, objects: Objects) -> _Current:
    [row] = query(
        connection,
        "SELECT current, extract(epoch FROM pg_catalog.clock_timestamp() - switched)::float8, switched,"
        f" current = coalesce({current_place(objects)}, 0) FROM {objects.queue} WHERE name = %s".encode(),
        [objects.name],
    )
    return _Current(*row)


# All that a table holds is visible to whoever has passed the slowest reader's tick. An event of a transaction
# below that snapshot's xmin is; few others are asked about one by one.
_NEEDED = """
SELECT EXISTS (
    SELECT 1 FROM {table} e
     WHERE e.tx >= pg_catalog.pg_snapshot_xmin(s.snapshot)
       AND NOT pg_catalog.pg_visible_in_snapshot(e.tx, s.snapshot))
  FROM (SELECT t.snapshot FROM {tick} t WHERE t.queue = %(queue)s AND t.tick =
       (SELECT min(r.tick) FROM {reader} r WHERE r.queue = %(queue)s)) s
"""


def _empty(connection: Session, objects: Objects, number: int) -> bool:
    """Empty a table, if nobody is at it and no reader needs it."""
    table = objects.events[number]
    needed = _NEEDED.format(table=table, tick=objects.tick, reader=objects.reader).encode()
    if query(connection, needed, {"queue": objects.name}) != [(False,)]:
        return False  # seen without a lock, which would be taken for nothing
    try:
        with in_transaction(connection):
            query(connection, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE")
            query(connection, f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE NOWAIT".encode())
            if query(connection, needed, {"queue": objects.name}) != [(False,)]:
                return False
            failpoint("queue.rotate.before")
            named = [ROTATING, objects.event_names[number]]
            query(connection, "SELECT pg_catalog.set_config(%s, %s, true)", named)
            query(connection, f"TRUNCATE {table}".encode())
    except LockTimeout:
        return False  # somebody writes it, or reads it; it is tried again
    return True


def _switch(connection: Session, objects: Objects, current: _Current, ahead: int) -> None:
    """Have writers write to another table, unless somebody else did so meanwhile.

    A sequence is in no transaction: they do at once, whatever their snapshots show, and whatever becomes of
    this one. Which table they write to need not be right, for that takes no part in what is read or emptied.
    """
    with in_transaction(connection):
        query(connection, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE")
        turned = query(
            connection,
            f"UPDATE {objects.queue} SET current = %s, switched = pg_catalog.clock_timestamp()"
            " WHERE name = %s AND switched = %s RETURNING 1".encode(),
            [ahead, objects.name, current.switched_at],
        )
        if turned:
            failpoint("queue.turn.before")
            query(connection, turning(objects).encode(), [ahead])
            failpoint("queue.turn.after")
