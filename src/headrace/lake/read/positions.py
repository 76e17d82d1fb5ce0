"""Finds out how the positions of a source are spelled, for those who read its lake.

A mark has the text of its position, as the source spells it. What lies between two marks has a time only; its
text, and the time of a text that somebody gives us, are the business of the kind of source that the records
of the lake name. The source itself is never asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.core.position import Position, Spelling, plain
from headrace.sources import registry

if TYPE_CHECKING:  # they load Arrow and Delta
    from headrace.lake.log.marks import Mark
    from headrace.lake.read.catalogs import Catalogs

_SOURCE = "source"  # the source's own record in the catalog


class NoSpelling:
    """Positions of a source of which nothing is recorded yet."""

    def reads(self, text: str) -> bool:
        return False

    def time(self, text: str, near: Position) -> int | None:
        return None

    def text(self, time: int, near: Position) -> str | None:
        return None

    def agree(self, text: str, other: str) -> bool:
        return True

    def covering(self, text: str) -> None:
        return None


def spelling_of(records: Mapping[str, Any]) -> Spelling:
    """Find the spelling of the source whose catalog this is."""
    record = records.get(_SOURCE)
    return NoSpelling() if record is None else registry.spelling(record["kind"])


def spelling_at(catalogs: Catalogs, source: str, mark: Mark | None) -> Spelling:
    """Find the spelling of the source as of a mark."""
    return NoSpelling() if mark is None else spelling_of(catalogs.at(source, mark))


def show_position(spelling: Spelling, time: int, near: Position) -> str:
    """A place in time as a person is told it, who may give it back as a position."""
    text = spelling.text(time, near)
    return f"_time {time - 1}" if text is None else plain(text)
