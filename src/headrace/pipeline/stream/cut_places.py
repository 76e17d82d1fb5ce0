"""The places of the stream at which a mark may be made, by their times.

a source that counts in its positions   any place: it tells each by its time
a source whose positions are sets       where its stream said one, and nowhere else (`StreamRead.positions`)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.core.position import Position
from headrace.spool.places import Places


@dataclass(frozen=True, slots=True)
class CutPlaces:
    """The places where the source can tell a position, or its stream has said one."""

    places: Places
    exactly_at: Callable[[int], Position | None]  # the source's own word

    def within(self, before: Position, received_until: int, confirmed_until: int | None) -> Position:
        """The last place that is not behind `reached`.

        Where that is none behind `before` it is the first one there that is confirmed, or else `before`: then
        nothing can be taken yet.
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
