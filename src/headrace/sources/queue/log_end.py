"""The end of a queue: the position behind everything that is committed, and the clock there.

If events may have come, a tick is taken, so that every earlier commit lies before the answer. If none has
come, nothing is written (`tick.reach`).
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
    """The position behind everything that is committed by now."""
    with translate_missing_queue(connection, upstream):
        return ticks.reach(connection, upstream.objects).position(upstream.log)


def advance(connection: Session, upstream: QueueUpstream) -> None:
    """Take a tick even if no event has come: after each tick there is room for a few marks only."""
    with translate_missing_queue(connection, upstream):
        ticks.take(connection, upstream.objects)


def clock(connection: Session, upstream: QueueUpstream) -> ClockReading:
    """Read the source's clock: later ticks have later times, and so have their transactions.

    If events have come since the newest tick, the reading is that tick's own time. No new tick is taken for a
    reading, since there is one before each mark.
    """
    with translate_missing_queue(connection, upstream):
        found = ticks.newest(connection, upstream.objects)
        tick = ticks.take(connection, upstream.objects) if found.tick is None else found.tick
    return ClockReading(
        tick.taken_at if found.has_more else max(found.clock, tick.taken_at), tick.position(upstream.log)
    )


def is_quiet(connection: Session, upstream: QueueUpstream, start: Position, stop: Position) -> bool:
    """Tell whether no event lies between two positions; False if one of their ticks is gone."""
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
