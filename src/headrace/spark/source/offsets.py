"""Offsets of a stream of changes: marks of a lake, as JSON in Spark's checkpoint.

    {"lake": lake's id, "source": "main", "epoch": 48, "plan_id": "…", "time": 123456}

A batch holds the updates with `start.time < _time <= end.time`, so it is of whole transactions, and batches
of any limits partition a stream. The lake's id, the epoch and the plan's id say whether the lake is still the
one that the checkpoint was made with. Epoch 0 is the beginning of a query that has read nothing: its first
batch is the contents at the mark where it ends. A start that a user names may be between two marks: then the
epoch is that of the mark before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.core.errors import Misconfigured


@dataclass(frozen=True, slots=True, order=True)
class Offset:
    """A place in the changes of a source; ordered as its commits are."""

    time: int
    epoch: int
    lake: str = field(compare=False)
    source: str = field(compare=False)
    plan_id: str = field(compare=False, default="")

    @property
    def begins(self) -> bool:
        """Tell whether nothing was read yet, the table's contents included."""
        return self.epoch == 0

    def is_mark(self, other: Offset) -> bool:
        """Tell whether both are of one mark, whatever place behind it a user named."""
        parts = [(each.lake, each.source, each.epoch, each.plan_id) for each in (self, other)]
        return parts[0] == parts[1]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Offset:
        """The inverse of `as_json`; raises for an offset that another source wrote into the checkpoint."""
        try:
            return cls(
                time=int(record["time"]),
                epoch=int(record["epoch"]),
                lake=str(record["lake"]),
                source=str(record["source"]),
                plan_id=str(record["plan_id"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise malformed_error(record) from error


def beginning(lake: str, source: str) -> Offset:
    """The offset before the contents of a table."""
    return Offset(-1, 0, lake, source)


def malformed_error(record: Mapping[str, Any]) -> Misconfigured:
    """The error of an offset that another source wrote."""
    return Misconfigured(
        "STREAM_OFFSET_MALFORMED",
        "the checkpoint holds an offset that is none of ours",
        detail=str(sorted(record))[:200],
        hint="give each query a checkpointLocation of its own",
    )
