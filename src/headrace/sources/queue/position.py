"""Positions in a queue: its ticks, and the times that we make of them.

    tick N         cuts the stream: batch N has the events that its snapshot shows and the one before does not
    time           8 x N + base: of all events in batch N
    position       8 x N + base + 1, text "tick N last NONCE": right behind it

So after a tick there is room for marks of tables that are copied anew, even if nothing happens at the source.
People see `tick N`. The nonce is drawn at random when the tick is taken: a queue that was set back uses
numbers again, but never nonces.

A new queue begins to count from the start. The base in `QueueTimeline` makes times grow all the same, as for
PostgreSQL (`sources.postgres.position`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.core.errors import Misconfigured
from headrace.core.position import RECOGNISED, STEP, Position

FURTHER = 1 << 32  # a base grows by multiples of this
_TEXT = re.compile(rf"tick (\d{{1,18}})(?:{RECOGNISED}([0-9a-f-]{{36}}))?\Z")


@dataclass(frozen=True, slots=True)
class TickPlace:
    """A place right behind a tick; without a nonce only its number is known."""

    tick: int
    nonce: str = ""

    def __str__(self) -> str:
        return f"tick {self.tick}{RECOGNISED}{self.nonce}" if self.nonce else f"tick {self.tick}"

    @staticmethod
    def matches(text: str) -> bool:
        """Tell whether a text is a place."""
        return _TEXT.match(text) is not None

    @classmethod
    def parse(cls, text: str) -> TickPlace:
        """Read a text that `str` made."""
        found = _TEXT.match(text)
        if found is None:
            raise Misconfigured(
                "POSITION_MALFORMED",
                f"{text[:100]!r} is not a position of a queue",
                hint="write it as headrace prints it, for example tick 1234",
            )
        return cls(int(found[1]), found[2] or "")


@dataclass(frozen=True, slots=True)
class QueueTimeline:
    """One life of a queue: the base that is added to make times of its ticks."""

    base: int = 0

    def time(self, tick: int) -> int:
        """The time of all events of a tick."""
        return STEP * tick + self.base

    def position(self, place: TickPlace) -> Position:
        """The position right behind a tick."""
        return Position(self.time(place.tick) + 1, str(place))

    def tick(self, time: int) -> int:
        """The newest tick that a position of this time covers."""
        return (time - 1 - self.base) // STEP

    def behind(self, frontier: Position, start: TickPlace) -> QueueTimeline:
        """The next life, which begins with this tick: all its times are later than `frontier`."""
        missing = max(0, frontier.time - self.time(start.tick))
        return QueueTimeline(self.base + (missing // FURTHER + 1) * FURTHER)
