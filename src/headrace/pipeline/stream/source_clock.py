"""Up to which moment of the source's own clock a mark holds everything: for `at(timestamp=...)`.

    reading    (at, position): what is committed at the position or behind it bears a later time than `at`
    mark       its frontier has reached the positions of some readings; the latest of their moments is its own

A reading is taken before each mark of the stream and every few seconds; it becomes of use once a frontier has
come as far as its position. Until then the marks go on saying what those before them did.

Where the source replicates from elsewhere, its transactions bear the times of their first commits. That takes
nothing from what marks say (`headrace.lake.read.resolve`), but each mark behind which such a one follows has
to be kept. So from then on readings are taken to be as much earlier as transactions were seen to be dated
back, within `MOST_BACK`.

Asks nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.core.position import Position
from headrace.sources.contract.mirror import ClockReading

MOST_READINGS = 1024
MOST_BACK = 60_000_000  # microseconds


@dataclass(slots=True)
class SourceClock:
    """The readings of one attempt, and what came of them."""

    readings: list[ClockReading] = field(default_factory=list)  # whose positions no mark has reached
    began: bool = False  # a mark has reached the position of one
    end: Position | None = None  # how far the source's log went at the newest reading
    _latest: int | None = None  # of those whose positions were reached
    _back: int = 0  # how far transactions were dated back

    def add(self, reading: ClockReading) -> None:
        """Note a reading; while the stream is far behind, every other one will do."""
        self.readings.append(reading)
        self.end = reading.position
        if len(self.readings) > MOST_READINGS:
            del self.readings[1::2]

    def reaches(self, time: int) -> bool:
        """Tell whether a mark at this time would be complete until a later moment than those before."""
        return bool(self.readings) and self.readings[0].position.time <= time

    def until(self, frontier: Position, earliest: int | None) -> int | None:
        """Until when a mark is complete, by its frontier and the earliest timestamp of what it brings."""
        if earliest is not None and self._latest is not None:
            self._back = max(self._back, min(self._latest - earliest, MOST_BACK))
        while self.reaches(frontier.time):
            self.began = True
            at = self.readings.pop(0).at
            self._latest = at if self._latest is None else max(self._latest, at)
        return None if self._latest is None else self._latest - self._back
