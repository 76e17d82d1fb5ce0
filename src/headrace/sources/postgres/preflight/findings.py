"""The values of a preflight: what is wished for, what was found, and the report that holds it all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.sources.postgres.catalog import Size, TableLook
from headrace.sources.postgres.session import Identity


class Level(StrEnum):
    """What a finding means for a run."""

    ERROR = "error"  # it would fail or lie: refused
    WARNING = "warning"  # it works, and may hurt
    INFO = "info"  # good to know


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found; `mend` holds the statements that make it go away, where statements can."""

    level: Level
    error: HeadraceError  # what a run would stop with; for the lower levels, what it warns of
    mend: tuple[str, ...] = ()
    table: TableName | None = None

    @property
    def code(self) -> str:
        return self.error.code

    def as_record(self) -> dict[str, Any]:
        """The finding as `--json` prints it."""
        return {
            "level": str(self.level),
            **self.error.as_record(),
            "mend": list(self.mend),
            "table": None if self.table is None else str(self.table),
        }


def mended(statements: tuple[str, ...]) -> str:
    """The hint that is nothing but the statements."""
    return "; ".join(statements)


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants to mirror."""

    patterns: tuple[str, ...]
    publication: str | None = None  # the user's own; None: ours, made for the lake
    slot: str | None = None  # likewise
    handoff: str = "slot"  # how the snapshot is joined to the stream
    connections: int = 4  # that the copy may open
    expected: Identity | None = None  # of the source that the lake already mirrors


@dataclass(frozen=True, slots=True)
class Report:
    """What a preflight saw: the tables that can be mirrored, and all that was found."""

    identity: Identity
    tables: tuple[TableLook, ...]
    sizes: Mapping[int, Size]  # by oid, of these tables
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level is Level.ERROR)

    @property
    def rows(self) -> int:
        """An estimate of what the copy will hold."""
        return sum(size.rows for size in self.sizes.values())

    @property
    def bytes(self) -> int:
        return sum(size.bytes for size in self.sizes.values())
