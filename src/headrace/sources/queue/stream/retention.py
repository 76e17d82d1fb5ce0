"""Retention: a queue keeps what its slowest reader needs, and deletes what every reader has passed.

    ticks         delete those below the slowest reader's, from where the last call ended: while a snapshot
                  is open for days, deleted ones stay in the index, and must not be passed over each time
    event tables  three, of which one is current; the others are emptied as a whole, and take turns

        current 0     1  2          written: 0
        current 1     0  2          written: 1; 0 is emptied once all that it holds is visible to every reader
        current 2     0  1   ...    an empty one becomes current when the present one holds enough

A table is emptied by TRUNCATE under a lock with NOWAIT. While the lock is held, no session has an uncommitted
event in the table, not even one that found it current a moment ago. So the statement after the lock sees all
of its events, and compares them with the snapshot of the slowest reader's tick. No single row is ever
deleted, so nothing needs VACUUM.

An open transaction keeps the table that it wrote to; the others go on taking turns. A reader that died keeps
everything (`health`).
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
OLD = 60.0  # seconds, after which a table with any event is no longer current


def tend(connection: Session, objects: Objects, since: int = 0) -> int:
    """Delete what no reader needs; quick if there is nothing to do.

    Ticks below `since` are deleted already: pass what the last call returned.
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
    """Delete the ticks from `since` on that every reader has passed; returns the first that is left."""
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
    """The event table that writers should write to."""

    number: int
    seconds: float  # since it became that
    switched_at: datetime
    in_step: bool  # the sequence agrees; not if somebody set it, or a turn was interrupted


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
    """Empty a table, if no session uses it and no reader needs it."""
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
    """Switch writers to another table, unless another session has done so meanwhile.

    A sequence is not transactional: writers switch at once, whatever their snapshots show, and even if this
    transaction rolls back. A wrong table does no harm: reading and emptying do not depend on the choice.
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
