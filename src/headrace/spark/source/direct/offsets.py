"""Offsets of a direct stream: batches of a state folder, as JSON in Spark's checkpoint.

    {"state": folder's id, "batch": 7}

Batch 0 is the beginning of a query that has read nothing, batch 1 the snapshot. A batch holds whole
transactions, so batches of any size partition the stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.spark.source.offsets import malformed_error


@dataclass(frozen=True, slots=True, order=True)
class DirectOffset:
    """A place in a direct stream: behind a batch."""

    batch: int
    state: str = field(compare=False)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> DirectOffset:
        """The inverse of `as_json`; raises for an offset that another source wrote into the checkpoint."""
        try:
            return cls(int(record["batch"]), str(record["state"]))
        except (KeyError, TypeError, ValueError) as error:
            raise malformed_error(record) from error
