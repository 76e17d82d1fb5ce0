"""The places of the stream at which a mark may be made, by their times.

    a source that counts in its positions   any place: it tells each by its time
    a source whose positions are sets       where its stream said one, and nowhere else (`Received.positions`)

Called by `batches`, which ends an epoch at such a place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.core.position import Position
from headrace.spool.places import Places


@dataclass(frozen=True, slots=True)
class CutPlaces:
    """The places where the source can tell a position, or its stream has said one."""

    said: Places
    exactly_at: Callable[[int], Position | None]  # the source's own word

    def within(self, before: Position, reached: int, confirmed: int | None) -> Position:
        """The last place that is not behind `reached`.

        Where that is none behind `before` it is the first one there that is confirmed, or else `before`: then
        nothing can be taken yet.
        """
        last = self.exactly_at(reached) or self.said.upto(reached)
        if last is not None and (last > before or last.time == reached):
            return last
        first = self.said.behind(before.time)
        return before if first is None or (confirmed is not None and first.time > confirmed) else first
