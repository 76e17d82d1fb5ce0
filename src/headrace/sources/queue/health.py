"""The end of a queue, its clock, and its health: how much it holds, for which lake, and why.

If events may have come, `position` takes a tick, so that every earlier commit lies before the answer. If none
has come, nothing is written (`tick.reach`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.core.errors import Definite, PositionDoubtful
from headrace.core.position import Position
from headrace.sources.contract.mirror import ClockReading, Health
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.queue import capture, readers
from headrace.sources.queue import tick as ticks
from headrace.sources.queue.batch import TickBatch
from headrace.sources.queue.position import TickPlace
from headrace.sources.queue.proof import translate_missing_queue
from headrace.sources.queue.readers import QueueLake
from headrace.sources.queue.upstream import Objects, QueueUpstream

HELD_SECONDS = 5.0  # of a transaction that holds the queue's row
_SILENT = 300.0  # seconds, after which a reader that holds back others is named
_OPEN = 60.0  # seconds of a transaction that keeps its events


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


# --- health ---------------------------------------------------------------------------------------


def health(connection: Session, upstream: QueueUpstream, limit: int | None = None) -> Health:
    """Say what the queue holds."""
    with translate_missing_queue(connection, upstream):
        return _health(connection, upstream, limit)


def _health(connection: Session, upstream: QueueUpstream, limit: int | None) -> Health:
    objects = upstream.objects
    held, newest, seconds = _measure_events(connection, objects)
    there = readers.list_readers(connection, objects)
    own = next((reader for reader in there if reader.lake == upstream.lake), None)
    figures: dict[str, Any] = {
        "held_bytes": held,
        "ticks_behind": 0 if own is None else max(0, newest - own.tick),
        "readers": {reader.lake: reader.tick for reader in there},
        "oldest_writer_seconds": seconds,
    }
    half = capture.with_inactive_triggers(connection, upstream)
    flawed = capture.half_triggered(connection, upstream)
    return Health(
        figures=figures,
        lines=(
            f"queue {held} bytes, {figures['ticks_behind']} ticks behind",
            *_slow(there, upstream, newest),
            *(f"no tick can be taken: {who}" for who in ticks.held_by(connection, objects, HELD_SECONDS)),
            *([f"a transaction that writes is open for {seconds:.0f} s"] if seconds > _OPEN else []),
            *(
                [f"sessions in the replica role are not captured: {', '.join(map(str, half))}"]
                if half
                else []
            ),
            *([f"changes are not captured of: {', '.join(map(str, flawed))}"] if flawed else []),
        ),
        excess=_excess(held, limit, there, upstream),
        retained_bytes=held,
        limit_bytes=limit,
    )


def _measure_events(connection: Session, objects: Objects) -> tuple[int, int, float]:
    """Measure the events; find the newest tick, and how long the oldest transaction that wrote is open."""
    sizes = " + ".join(
        f"coalesce(pg_catalog.pg_total_relation_size('{table}'), 0)" for table in objects.events
    )
    relations = ", ".join(f"'{table}'::pg_catalog.regclass" for table in objects.events)
    [row] = query(
        connection,
        f"SELECT {sizes}, (SELECT coalesce(max(t.tick), 0) FROM {objects.tick} t WHERE t.queue = %s),"
        " (SELECT coalesce(max(extract(epoch FROM pg_catalog.clock_timestamp() - a.xact_start)), 0)::float8"
        " FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid"
        " WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.database ="
        " (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())"
        f" AND l.relation IN ({relations}))".encode(),
        [objects.name],
    )
    return row[0], row[1], row[2]


def _slow(there: Sequence[QueueLake], upstream: QueueUpstream, newest: int) -> list[str]:
    """Other lakes that hold what we have passed."""
    return [
        f"reader {reader.lake} is {newest - reader.tick} ticks behind, last heard {reader.silent:.0f} s ago"
        for reader in there
        if reader.lake != upstream.lake and reader.silent > _SILENT
    ]


class QueueTooLarge(Definite, PositionDoubtful):
    """The queue holds more than it may."""

    codes = ("QUEUE_MAX_WAL",)


def _excess(
    held: int, limit: int | None, there: Sequence[QueueLake], upstream: QueueUpstream
) -> QueueTooLarge | None:
    if limit is None or held <= limit:
        return None
    slowest = there[0].lake if there else upstream.lake
    return QueueTooLarge(
        "QUEUE_MAX_WAL",
        "the queue holds more events than max_wal allows",
        detail=f'{held} bytes, {limit} allowed; the slowest reader is "{slowest}"',
        hint="raise max_wal to keep the mirror, or free the source with `headrace drop`",
    )
