"""Readers: the lakes that read a queue, each with the tick that it has passed.

The queue keeps what the slowest reader has not passed.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.queue.position import TickPlace
from headrace.sources.queue.tick import Tick
from headrace.sources.queue.upstream import Objects, QueueUpstream


@dataclass(frozen=True, slots=True)
class QueueLake:
    """A lake that reads."""

    lake: str
    tick: int  # the newest one that it has passed
    silent: float  # seconds since it last reported


def list_readers(connection: Session, objects: Objects) -> list[QueueLake]:
    """The lakes that read the queue, the slowest first."""
    rows = query(
        connection,
        "SELECT lake, tick, extract(epoch FROM pg_catalog.clock_timestamp() - seen)::float8"
        f" FROM {objects.reader} WHERE queue = %s ORDER BY tick, lake".encode(),
        [objects.name],
    )
    return [QueueLake(*row) for row in rows]


def register(connection: Session, upstream: QueueUpstream, tick: Tick) -> None:
    """Read from a tick on, whatever was read before."""
    query(
        connection,
        f"INSERT INTO {upstream.objects.reader} AS r (queue, lake, tick, seen)"
        " VALUES (%s, %s, %s, pg_catalog.clock_timestamp())"
        " ON CONFLICT (queue, lake) DO UPDATE SET tick = excluded.tick, seen = excluded.seen".encode(),
        [upstream.queue, upstream.lake, tick.number],
    )


def is_registered(connection: Session, upstream: QueueUpstream) -> bool:
    """Tell whether the queue holds for this lake what it has not read."""
    rows = query(
        connection,
        f"SELECT 1 FROM {upstream.objects.reader} WHERE queue = %s AND lake = %s".encode(),
        [upstream.queue, upstream.lake],
    )
    return bool(rows)


def passed_tick(connection: Session, upstream: QueueUpstream) -> int | None:
    """The tick that this lake has passed; None where it does not read the queue."""
    rows = query(
        connection,
        f"SELECT tick FROM {upstream.objects.reader} WHERE queue = %s AND lake = %s".encode(),
        [upstream.queue, upstream.lake],
    )
    return rows[0][0] if rows else None


def advance(connection: Session, upstream: QueueUpstream, place: TickPlace) -> None:
    """Record that this lake has passed a place; a place that is not of this queue is ignored."""
    objects = upstream.objects
    query(
        connection,
        f"UPDATE {objects.reader} r SET tick = t.tick, seen = pg_catalog.clock_timestamp()"
        f" FROM {objects.tick} t WHERE r.queue = %s AND r.lake = %s AND r.tick < t.tick"
        " AND t.queue = r.queue AND t.tick = %s AND t.nonce::pg_catalog.text = %s".encode(),
        [upstream.queue, upstream.lake, place.tick, place.nonce],
    )


def leave(connection: Session, upstream: QueueUpstream) -> None:
    """Remove this lake as a reader: the queue keeps nothing for it any more."""
    query(
        connection,
        f"DELETE FROM {upstream.objects.reader} WHERE queue = %s AND lake = %s".encode(),
        [upstream.queue, upstream.lake],
    )
