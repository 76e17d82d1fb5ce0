"""Changes of a table's shape that were followed: one entry each, in the table's record.

    "alteration": {"epoch": 41, "way": "rewritten", "what": "...", "at": {"time": ..., "text": "..."}}

The epoch's own plan brings the entry, so whoever reads the lake finds it in the catalog of that mark and of
those after it, until another takes its place. Made by whoever follows a change (`stream.widening`,
`stream.rewriting`, `arrivals`, the deed `resync`); told by the status.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from headrace.core.errors import HeadraceError, LayoutUnknown, ShapeChanged
from headrace.core.position import Position
from headrace.core.records import on_disk

MOST_COPIES = 2  # of a table whose stream is read otherwise than its catalog


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
    # How often in a row it was copied for this reason.
    times: int = field(default=1, metadata=on_disk(sparse=True))


def entry_of_copy(
    epoch: int, at: Position, error: HeadraceError | None, last: Alteration | None
) -> Alteration | None:
    """The entry of a table that is copied anew after this error; the last one if that is no DDL."""
    if not isinstance(error, ShapeChanged):
        return last
    again = last is not None and (last.way, last.what) == (Way.COPIED, error.primary)
    return Alteration(epoch, at, Way.COPIED, error.primary, last.times + 1 if last and again else 1)


def copied_in_vain(error: HeadraceError | None, last: Alteration | None) -> bool:
    """Tell whether a table was copied as often as may help for the reason for which it stopped again."""
    known = isinstance(error, LayoutUnknown) and last is not None and last.way is Way.COPIED
    return bool(known and last and error and last.what == error.primary and last.times >= MOST_COPIES)
