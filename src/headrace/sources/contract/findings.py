"""The findings of a check, before anything is made: what is wished for, what is found, and the report.

`headrace check` prints a report, `headrace run` refuses to start on an error in it. Each finding is a value
with a stable code and, where statements mend it, those statements. Values only; a source makes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.core.records import to_record
from headrace.sources.contract.values import Json, TableDef, TableSize


@dataclass(frozen=True, slots=True)
class Wish:
    """A wish to mirror.

    Without patterns all is meant that the user's own objects hold. `options` are the source's: how it is to
    be mirrored, and objects upstream that are not to be the lake's own. A source that is mirrored already
    says that of itself: `upstream`, and the `identity` of a connection to it.
    """

    patterns: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    connections: int = 4  # that the copy may open
    upstream: Json | None = None
    identity: Json | None = None


class Level(StrEnum):
    """The meaning of a finding for a run."""

    ERROR = "error"  # it would fail or lie: refused
    WARNING = "warning"  # it works, and may hurt
    INFO = "info"  # good to know


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found; `mend` holds the statements that make it go away, where statements can.

    No statement here alters a column of the application's, gives up rows, or harms the application's own
    writes, in whatever order they are run: they may be given to a program. What would is for a person to
    read, in the hint.
    """

    level: Level
    error: HeadraceError  # what a run would stop with; for the lower levels, what it warns of
    mend: tuple[str, ...] = ()
    table: TableName | None = None
    tables: tuple[TableName, ...] = ()  # where it concerns several
    leaves_out: bool = False  # a wildcard names its tables, and they are not mirrored because of it
    then: tuple[str, ...] = ()  # statements that are right once those of all other findings were run
    restart: bool = False  # the server has to be restarted after the statements
    option: str | None = None  # of the run: with it the tables can be mirrored, after the statements

    @property
    def code(self) -> str:
        return self.error.code

    @property
    def concerned_tables(self) -> frozenset[TableName]:
        """The tables that it is about; none where it is about the source as a whole."""
        return frozenset((*self.tables, *(() if self.table is None else (self.table,))))

    @property
    def refuses(self) -> bool:
        """Tell whether the tables that it is about cannot be mirrored."""
        return self.leaves_out or self.level is Level.ERROR

    @property
    def advice(self) -> str | None:
        """The part of the hint beyond the statements."""
        statements, hint = hint_of(self.mend), self.error.hint
        if not statements:
            return hint
        rest = hint.removeprefix(statements).lstrip("; ,")
        return rest.replace(statements, "the above") or None

    def for_swept(self, named_tables: frozenset[TableName]) -> Finding:
        """Return the finding for tables that only a wildcard names: an error leaves them out."""
        swept = self.concerned_tables and not self.concerned_tables & named_tables
        if self.level is not Level.ERROR or not swept:
            return self
        return replace(self, level=Level.WARNING, leaves_out=True)

    def to_json(self) -> dict[str, Any]:
        """The finding as `--json` prints it."""
        return {
            "level": str(self.level),
            **to_record(self.error),
            "mend": list(self.mend),
            "table": None if self.table is None else str(self.table),
            "leaves_out": [str(name) for name in sorted(self.concerned_tables)] if self.leaves_out else [],
        }


def hint_of(statements: tuple[str, ...]) -> str:
    """The hint that is nothing but the statements."""
    return "; ".join(statements)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The report of a check: the tables that can be mirrored, and all that was found."""

    version: int  # of the server, as it numbers itself
    tables: tuple[TableDef, ...]
    sizes: Mapping[TableName, TableSize]  # of these tables
    findings: tuple[Finding, ...]
    script: tuple[str, ...] = ()  # statements that mend what was found, in an order in which they can be run
    named_tables: frozenset[TableName] = frozenset()  # what a pattern without wildcards names
    costly_ddl: Mapping[TableName, Sequence[str]] = field(default_factory=dict)  # what is special of a table

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level is Level.ERROR)

    @property
    def left_out(self) -> dict[TableName, HeadraceError]:
        """The tables that wildcards name and that cannot be mirrored, each with the first reason."""
        reasons: dict[TableName, HeadraceError] = {}
        for finding in self.findings:
            for name in finding.concerned_tables if finding.leaves_out else ():
                reasons.setdefault(name, finding.error)
        return dict(sorted(reasons.items()))

    @property
    def by_option(self) -> dict[str, list[TableName]]:
        """The tables that nothing stands against but an option that is not given."""
        asked = [finding for finding in self.findings if finding.refuses and finding.option]
        others = [finding for finding in self.findings if finding.refuses and not finding.option]
        hopeless = frozenset().union(*(finding.concerned_tables for finding in others))
        found = {finding.option or "": sorted(finding.concerned_tables - hopeless) for finding in asked}
        return {option: names for option, names in found.items() if names}

    def without(self, unfit: Mapping[TableName, HeadraceError]) -> CheckReport:
        """Return the report without tables that are unfit for a reason that the source cannot see."""
        more = (
            Finding(Level.ERROR, error, table=name).for_swept(self.named_tables)
            for name, error in unfit.items()
        )
        tables = tuple(each for each in self.tables if each.name not in unfit)
        costly = {name: said for name, said in self.costly_ddl.items() if name not in unfit}
        findings = in_order([*self.findings, *more])
        return replace(self, tables=tables, findings=findings, costly_ddl=costly)

    @property
    def rows(self) -> int:
        """An estimate of what the copy will hold."""
        return sum(size.rows for size in self.sizes.values())

    @property
    def bytes(self) -> int:
        return sum(size.bytes for size in self.sizes.values())


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors first, then warnings; within a level as they were found."""
    levels = list(Level)
    return tuple(sorted(findings, key=lambda finding: levels.index(finding.level)))
