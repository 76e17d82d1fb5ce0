"""Changes of a table's shape that were followed: one entry each, in the table's record.

    "alteration": {"epoch": 41, "way": "rewritten", "what": "...", "at": {"time": ..., "text": "..."}}

The epoch's own plan brings the entry, so whoever reads the lake finds it in the catalog of that mark and of
those after it, until another takes its place. Made by whoever follows a change (`stream.widening`,
`stream.rewriting`, `arrivals`, the deed `resync`); told by the status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headrace.core.errors import HeadraceError, ShapeChanged
from headrace.core.position import Position


class Way(StrEnum):
    """The way in which the table's rows follow."""

    ADDED = "added"  # nothing: columns came that are NULL in them
    REWRITTEN = "rewritten"  # they are written again in the lake
    COPIED = "copied"  # they are read at the source anew


@dataclass(frozen=True, slots=True)
class Alteration:
    """A change that was followed from a position on; `epoch` is the one that tells of it first."""

    epoch: int
    at: Position
    way: Way
    what: str

    def as_record(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "at": self.at.as_record(), "way": self.way.value, "what": self.what}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Alteration:
        at = Position.from_record(record["at"])
        return cls(record["epoch"], at, Way(record["way"]), record["what"])


def copied(epoch: int, at: Position, error: HeadraceError | None) -> Alteration | None:
    """The entry of a table that is copied anew after it stopped with this error; None if that is no DDL."""
    return Alteration(epoch, at, Way.COPIED, error.primary) if isinstance(error, ShapeChanged) else None
