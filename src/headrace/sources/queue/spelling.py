"""The spelling of a queue's positions, for readers of a lake: nothing else of the source is loaded."""

from __future__ import annotations

from headrace.core.position import STEP, Position
from headrace.sources.queue.position import QueueTimeline, TickPlace


class TickSpelling:
    """The spelling of queues (`core.position.Spelling`): numbers of ticks."""

    def reads(self, text: str) -> bool:
        return TickPlace.matches(text.strip())

    def time(self, text: str, near: Position) -> int | None:
        return QueueTimeline(_base(near)).position(TickPlace.parse(text.strip())).time

    def text(self, time: int, near: Position) -> str | None:
        if time == near.time:
            return near.text
        tick = QueueTimeline(_base(near)).tick(time)
        return None if tick < 0 else str(TickPlace(tick))

    def agree(self, text: str, other: str) -> bool:
        return True

    def covering(self, text: str) -> None:
        return None


def _base(near: Position) -> int:
    # Marks of tables that were copied anew lie a little behind the tick in their text.
    return near.time // STEP * STEP - STEP * TickPlace.parse(near.text).tick if near.text else near.time


SPELLING = TickSpelling()
