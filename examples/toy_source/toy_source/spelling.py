"""Positions: `change N` is the place right behind the change of that number.

time of change N        STEP x N          between two times there is room for marks of ours
position behind it      STEP x N + 1
"""

from __future__ import annotations

from headrace.core.position import STEP, Position

PREFIX = "change "


def position(change: int) -> Position:
    return Position(STEP * change + 1, f"{PREFIX}{change}")


def change_of(position: Position) -> int:
    """The newest change that a position covers, whatever room it was given behind it."""
    return (position.time - 1) // STEP


class ToySpelling:
    """The spelling, for readers of a lake."""

    def reads(self, text: str) -> bool:
        return text.strip().startswith(PREFIX) and text.strip()[len(PREFIX) :].isdigit()

    def time(self, text: str, near: Position) -> int | None:
        return STEP * int(text.strip()[len(PREFIX) :]) + 1

    def text(self, time: int, near: Position) -> str | None:
        return f"{PREFIX}{(time - 1) // STEP}"

    def agree(self, text: str, other: str) -> bool:
        return True

    def covering(self, text: str) -> None:
        return None


SPELLING = ToySpelling()
