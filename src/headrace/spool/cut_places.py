"""The places of the stream at which a mark may be made, by their times.

a source whose positions are numbers   any place: each follows from its time
a source whose positions are sets      only where its stream named a position (`StreamRead.positions`)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.core.position import Position
from headrace.spool.places import Places


@dataclass(frozen=True, slots=True)
class CutPlaces:
    """The places whose position follows from their time, or was named by the stream."""

    places: Places
    exactly_at: Callable[[int], Position | None]  # from the source

    def within(self, before: Position, received_until: int, confirmed_until: int | None) -> Position:
        """Return the last place that is not behind `received_until`.

        If that place is not behind `before`, return the first confirmed place behind `before`, or else
        `before`: then no epoch can take anything yet.
        """
        last = self.exactly_at(received_until) or self.places.upto(received_until)
        if last is not None and (last > before or last.time == received_until):
            return last
        first = self.places.behind(before.time)
        return (
            before
            if first is None or (confirmed_until is not None and first.time > confirmed_until)
            else first
        )
