"""Positions: `change 42` is the place right behind the change of that number.

time of change N        STEP x N          between two times there is room for marks of ours
position behind it      STEP x N + 1
text                    change N last T   T is the moment of the change: another file's change N has another
"""

from __future__ import annotations

import re

from headrace.core.position import RECOGNISED, STEP, Position, Spelling

_TEXT = re.compile(rf"\s*change (\d+)(?:{RECOGNISED}(\d+))?\s*")


def position(change: int, at: int) -> Position:
    return Position(STEP * change + 1, f"change {change}{RECOGNISED}{at}")


def change_of(text: str) -> tuple[int, int]:
    """The newest change that a position covers, and its moment."""
    found = _TEXT.fullmatch(text)
    assert found is not None
    return int(found[1]), int(found[2] or 0)


class ToySpelling(Spelling):
    """The spelling, for readers of a lake."""

    def reads(self, text: str) -> bool:
        return _TEXT.fullmatch(text) is not None

    def time(self, text: str, near: Position) -> int | None:
        return STEP * change_of(text)[0] + 1

    def text(self, time: int, near: Position) -> str | None:
        return near.text if time == near.time else None  # only the file knows the moment of a change


SPELLING = ToySpelling()
