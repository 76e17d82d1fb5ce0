"""The pace of a source over the last minute: bytes a second of each copy, marks and changes a minute.

It is computed from the sums in each status: `see` takes a status, and keeps a point every five seconds. No
rate is known before two points are two seconds apart. If a sum falls, because the lake was set back, the
minute begins anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.lake.format.status import SourceStatus

WINDOW_SECONDS = 60.0
_STEP_SECONDS = 5.0
_LEAST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of one source; None, or no entry, for a rate that is not known yet."""

    copies: Mapping[str, float] = field(default_factory=dict)  # bytes a second, by table
    marks: float | None = None  # a minute
    changes: float | None = None  # a minute


@dataclass(frozen=True, slots=True)
class _Point:
    at: float
    copies: Mapping[str, int]
    marks: int
    changes: int

    def follows(self, before: _Point) -> bool:
        return self.at > before.at and self.marks >= before.marks and self.changes >= before.changes


@dataclass(slots=True)
class Pace:
    """The last minute of one source."""

    _points: deque[_Point] = field(default_factory=deque)

    def see(self, at: float, status: SourceStatus) -> None:
        """Take the source's status at a time, in seconds of any clock that never goes back."""
        totals, points = status.totals, self._points
        copies = {name: table.copy.bytes_done for name, table in (status.tables or {}).items() if table.copy}
        marks, changes = (0, 0) if totals is None else (sum(totals.marks.values()), totals.changes)
        point = _Point(at, copies, marks, changes)
        if points and not point.follows(points[-1]):
            points.clear()
        if len(points) > 1 and at - points[-2].at < _STEP_SECONDS:
            points.pop()
        points.append(point)
        while len(points) > 2 and at - points[1].at >= WINDOW_SECONDS:
            points.popleft()

    def rates(self) -> Rates:
        """The rates between the oldest and the newest point."""
        if not self._points:
            return Rates()
        first, last = self._points[0], self._points[-1]
        seconds = last.at - first.at
        if seconds < _LEAST_SECONDS:
            return Rates()
        copies = {
            name: max(0, done - first.copies[name]) / seconds
            for name, done in last.copies.items()
            if name in first.copies
        }
        per_minute = 60 / seconds
        return Rates(
            copies, per_minute * (last.marks - first.marks), per_minute * (last.changes - first.changes)
        )
