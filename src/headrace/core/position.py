"""Positions in the stream of a source: a time, which we count with, and a text, which the source reads.

    time    grows for ever within a source; batches, events and history carry it
    text    the source's own spelling of the place, from which its stream resumes

A position is exclusive, like every frontier: it covers every transaction whose time is smaller, none whose
time is equal. (The position that a source reports may equal the next commit: an inclusive reading claims a
transaction that has not come.) Times of two transactions differ by at least `STEP`, which leaves places
between them. A mark that replaces a table's contents by those of a new copy uses such a place
(`pipeline.state.epoch`).

Between our marks the order of a source's transactions is total, so positions are compared by their times.
Only the source knows how its texts compare: `Spelling` has the part of that which reading a lake needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from headrace.core import records
from headrace.core.errors import Misconfigured

if TYPE_CHECKING:
    import pyarrow as pa

STEP = 8
RECOGNISED = " last "  # behind it is text for the source alone, by which it recognises the place


def plain(text: str) -> str:
    """Return the part of a text that people see."""
    return text.partition(RECOGNISED)[0].rstrip()


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in the stream of one source: behind all transactions of smaller times."""

    time: int
    text: str = field(compare=False)

    def __str__(self) -> str:
        return plain(self.text)

    @property
    def last(self) -> int:
        """Return the newest time that it covers."""
        return self.time - 1

    def covers(self, time: int) -> bool:
        """Tell whether a transaction of this time lies before the position."""
        return time < self.time

    def mask(self, times: Any) -> pa.BooleanArray:
        """Do `covers` for an array of times."""
        # A receiver uses positions too, and must start faster than Arrow loads.
        import pyarrow as pa
        import pyarrow.compute as pc

        from headrace.core.columns import contiguous

        times = contiguous(times)
        if times.null_count:
            raise ValueError("an update without a time")
        return pc.less(times, pa.scalar(self.time, times.type))

    def shift(self, by: int) -> Position:
        """Shift the time of this place; the source's own text stays."""
        return Position(self.time + by, self.text)


def _write(position: Position) -> dict[str, Any]:
    return {"time": position.time, "text": position.text}


def _read(record: Mapping[str, Any]) -> Position:
    try:
        return Position(int(record["time"]), str(record["text"]))
    except (KeyError, TypeError, ValueError) as error:
        raise Misconfigured(
            "POSITION_MALFORMED",
            f"{str(record)[:100]!r} is not a position as it is written down",
            hint="use the version of headrace that wrote it, or a newer one",
        ) from error


records.register(Position, _write, _read)

ORIGIN = Position(0, "")  # the position of a source of which nothing is known yet


class Spelling(Protocol):
    """The way a kind of source spells its positions. `near` is a position of the same life of the source."""

    def reads(self, text: str) -> bool:
        """Tell whether a text is a position of this kind."""

    def time(self, text: str, near: Position) -> int | None:
        """Return the time of a position; None if only the source itself knows it."""

    def text(self, time: int, near: Position) -> str | None:
        """Return the text of the position at a time; None if only the source itself knows it."""

    def agree(self, text: str, other: str) -> bool:
        """Tell whether one of two positions holds the other, as for any two of one history."""
        return True

    def covering(self, text: str) -> Callable[[pa.ChunkedArray], pa.BooleanArray] | None:
        """Return the test that finds transactions before a position by name; None if only times tell."""
        return None
