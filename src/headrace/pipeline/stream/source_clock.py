"""The source's clock: the moment until which a mark is complete, for `at(timestamp=...)`.

    reading    (at, position): all that is committed at or behind the position has a later time than `at`
    mark       is complete until the latest `at` of the readings whose positions its frontier has reached

The loop takes a reading before each mark of the stream and every few seconds. A reading becomes useful once a
frontier has reached its position. Until then each mark repeats the moment of the mark before.

If the source replicates from elsewhere, its transactions have the times of their first commits. Marks stay
true (`headrace.lake.read.resolve`), but the lake has to keep each mark that such a transaction follows. So
from then on readings count as earlier, by as much as transactions were seen to be dated back, up to
`MOST_BACK`.

This module asks no server.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.core.position import Position
from headrace.sources.contract.mirror import ClockReading

MOST_READINGS = 1024
MOST_BACK = 60_000_000  # microseconds


@dataclass(slots=True)
class SourceClock:
    """The readings of one attempt, and the latest moment that a mark has reached."""

    readings: list[ClockReading] = field(default_factory=list)  # whose positions no mark has reached
    began: bool = False  # a mark has reached the position of one
    end: Position | None = None  # the end of the source's log at the newest reading
    _latest: int | None = None  # the latest `at` of readings whose positions were reached
    _back: int = 0  # how far transactions were dated back

    def add(self, reading: ClockReading) -> None:
        """Note a reading; while the stream is far behind, keep only every other one."""
        self.readings.append(reading)
        self.end = reading.position
        if len(self.readings) > MOST_READINGS:
            del self.readings[1::2]

    def reaches(self, time: int) -> bool:
        """Tell whether a mark at this time would be complete until a later moment than the marks before."""
        return bool(self.readings) and self.readings[0].position.time <= time

    def until(self, frontier: Position, earliest: int | None) -> int | None:
        """Find until when a mark is complete, by its frontier and the earliest timestamp in its epoch."""
        if earliest is not None and self._latest is not None:
            self._back = max(self._back, min(self._latest - earliest, MOST_BACK))
        while self.reaches(frontier.time):
            self.began = True
            at = self.readings.pop(0).at
            self._latest = at if self._latest is None else max(self._latest, at)
        return None if self._latest is None else self._latest - self._back
