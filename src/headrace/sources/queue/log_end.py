"""The end of a queue: the position behind all that is committed, and the clock there.

If something may have come, a tick is taken, so that every earlier commit lies before the answer. If nothing
has come, nothing is written (`tick.reach`).
"""

from __future__ import annotations

from headrace.core.position import Position
from headrace.sources.contract.mirror import ClockReading
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.queue import tick as ticks
from headrace.sources.queue.batch import TickBatch
from headrace.sources.queue.position import TickPlace
from headrace.sources.queue.proof import translate_missing_queue
from headrace.sources.queue.upstream import QueueUpstream


def position(connection: Session, upstream: QueueUpstream) -> Position:
    """The position behind all that is committed by now."""
    with translate_missing_queue(connection, upstream):
        return ticks.reach(connection, upstream.objects).position(upstream.log)


def advance(connection: Session, upstream: QueueUpstream) -> None:
    """Take a tick even if nothing has come: behind each tick there is room for a few marks only."""
    with translate_missing_queue(connection, upstream):
        ticks.take(connection, upstream.objects)


def clock(connection: Session, upstream: QueueUpstream) -> ClockReading:
    """Read the source's clock: later ticks bear later times, and so do their transactions.

    Where something has come since the newest tick, its own time is the latest of which that is known. None is
    taken for it: a reading comes before each mark.
    """
    with translate_missing_queue(connection, upstream):
        found = ticks.newest(connection, upstream.objects)
        tick = ticks.take(connection, upstream.objects) if found.tick is None else found.tick
    return ClockReading(
        tick.taken_at if found.has_more else max(found.clock, tick.taken_at), tick.position(upstream.log)
    )


def is_quiet(connection: Session, upstream: QueueUpstream, start: Position, stop: Position) -> bool:
    """Tell whether no event lies between two positions; without their ticks it can't be told."""
    with translate_missing_queue(connection, upstream):
        return _is_quiet(connection, upstream, start, stop)


def _is_quiet(connection: Session, upstream: QueueUpstream, reached: Position, wanted: Position) -> bool:
    first, last = (
        ticks.find(connection, upstream.objects, TickPlace.parse(each.text).tick)
        for each in (reached, wanted)
    )
    if first is None or last is None:
        return False
    batch = TickBatch.between(first.snapshot, last.snapshot)
    if batch.is_empty:
        return True
    statement = f"SELECT EXISTS ({batch.query(upstream.objects, 'e.id')})"
    return query(connection, statement.encode()) == [(False,)]
