"""The verdicts of verify: plain values, for a person and for `--json`.

    Verdict            a source: where it was looked at, and what of it
      TableVerdict     "equal", "different", or "not compared" with the reason
        Difference     a row: "missing" in the lake, "extra" there, or "changed"; or a text of `errors/`

A difference names its row by its key, and a row of a table without one by nothing but the number of its
copies: values are in here only where the caller asked for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.core.errors import Definite, HeadraceError, Misconfigured
from headrace.core.records import on_disk, to_record

EQUAL, DIFFERENT, NOT_COMPARED = "equal", "different", "not compared"
MISSING, EXTRA, CHANGED = "missing", "extra", "changed"

Texts = Mapping[str, str | None]  # by column, as the source prints them


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that the two sides do not agree on."""

    kind: str
    key: Texts  # of a multiset: empty
    columns: tuple[str, ...] = ()  # that differ, of a changed row
    copies: int = 1
    raw: bool = False  # it is the text of a value without a lake form
    source: Texts | None = field(default=None, metadata=on_disk(sparse=True))
    lake: Texts | None = field(default=None, metadata=on_disk(sparse=True))


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """The verdict on one table; numbers are of what was compared."""

    name: str = field(metadata=on_disk(outside=True))
    outcome: str
    rows: int = 0  # at the source
    lake_rows: int = 0
    texts: int = 0  # values without a lake form, at the source
    buckets: int = 0  # checksums that were compared
    different_buckets: int = 0
    narrowed_buckets: int = 0  # of those: looked into row by row
    differences: tuple[Difference, ...] = ()
    unlisted_rows: int = field(default=0, metadata=on_disk("unnamed"))  # that differ
    epoch: int | None = None  # the mark that the table was read at
    error: HeadraceError | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a source, and as of which transactions."""

    source: str
    snapshot: str  # xmin:xmax:xip, as the source prints it
    position: str  # all that the snapshot shows committed before it
    seconds: float
    tables: tuple[TableVerdict, ...]
    unmirrored_tables: Mapping[str, str] = field(
        default_factory=dict
    )  # that the patterns match: code by name

    def to_json(self) -> dict[str, Any]:
        """The verdict as `--json` prints it."""
        return {
            "snapshot": self.snapshot,
            "position": self.position,
            "seconds": round(self.seconds, 3),
            "tables": {table.name: to_record(table) for table in self.tables},
            "unmirrored": dict(self.unmirrored_tables),
        }

    def of(self, outcome: str) -> list[TableVerdict]:
        return [table for table in self.tables if table.outcome == outcome]


def objection(verdicts: list[Verdict]) -> Definite | Misconfigured | None:
    """Say why this is no proof; None where every table that was chosen is equal."""
    different = [table.name for verdict in verdicts for table in verdict.of(DIFFERENT)]
    if different:
        return Definite(
            "VERIFY_DIFFERENT",
            f"{len(different)} of the compared tables are not what their source holds",
            detail=", ".join(different),
            hint="the report names the rows; what changed them in the lake is not in the stream",
        )
    left_out = [table.name for verdict in verdicts for table in verdict.of(NOT_COMPARED)]
    if left_out:
        return Misconfigured(
            "VERIFY_INCOMPLETE",
            f"{len(left_out)} of the chosen tables could not be compared",
            detail=", ".join(left_out),
            hint="the report says why for each; verify them again, or choose others with --tables",
        )
    return None
