"""The findings of a check, before anything is made: the wish, the findings, the report.

`headrace check` prints a report; `headrace run` refuses to start if it has an error. A finding has a stable
code and, if statements mend it, those statements. This module holds values only; a source makes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.names import TableName
from headrace.core.records import to_record
from headrace.sources.contract.values import Json, TableDef, TableSize


@dataclass(frozen=True, slots=True)
class Wish:
    """A wish to mirror tables.

    Without patterns it means all tables of the user's own objects. `options` are the source's own: how to
    mirror it, and which of the user's objects to use. If the source is mirrored already, `upstream` is its
    record, and `identity` is that of a connection to it. With `whole_rows` a table is an error
    if its old rows come in part, or if it may lose rows that the stream does not name.
    """

    patterns: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    connections: int = 4  # that the copy may open
    upstream: Json | None = None
    identity: Json | None = None
    whole_rows: bool = False  # the stream must bring each row that goes, whole


class Level(StrEnum):
    """The meaning of a finding for a run."""

    ERROR = "error"  # a run would fail, or copy wrong data: refused
    WARNING = "warning"  # a run works, and may do harm
    INFO = "info"  # good to know


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding; `mend` holds the statements that put it right, if statements can.

    No statement alters a column of the application, loses rows, or harms the application's own writes, in
    whatever order they run: a program may run them. A statement that could do so stands in the hint, for a
    person to read.
    """

    level: Level
    error: HeadraceError  # a run would stop with it; at the lower levels, the warning
    mend: tuple[str, ...] = ()
    table: TableName | None = None
    tables: tuple[TableName, ...] = ()  # where it concerns several
    leaves_out: bool = False  # only a wildcard names its tables, and they are left out because of it
    then: tuple[str, ...] = ()  # statements to run after those of all other findings
    restart: bool = False  # restart the server after the statements
    option: str | None = None  # of the run: with it, and after the statements, the tables can be mirrored

    @property
    def code(self) -> str:
        return self.error.code

    @property
    def concerned_tables(self) -> frozenset[TableName]:
        """The tables of the finding; empty if it is about the whole source."""
        return frozenset((*self.tables, *(() if self.table is None else (self.table,))))

    @property
    def refuses(self) -> bool:
        """Tell whether the tables of the finding can't be mirrored."""
        return self.leaves_out or self.level is Level.ERROR

    @property
    def advice(self) -> str | None:
        """The hint without the statements."""
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
    """A hint of these statements alone."""
    return "; ".join(statements)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The report of a check: the tables that can be mirrored, and all findings."""

    version: int  # of the server, as it numbers itself
    tables: tuple[TableDef, ...]
    sizes: Mapping[TableName, TableSize]  # of these tables
    findings: tuple[Finding, ...]
    script: tuple[str, ...] = ()  # the statements that mend the findings, in an order that works
    named_tables: frozenset[TableName] = frozenset()  # named by a pattern without wildcards
    costly_ddl: Mapping[TableName, Sequence[str]] = field(default_factory=dict)  # what is special of a table

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level is Level.ERROR)

    @property
    def left_out(self) -> dict[TableName, HeadraceError]:
        """The tables that only wildcards name and that can't be mirrored, each with its first error."""
        reasons: dict[TableName, HeadraceError] = {}
        for finding in self.findings:
            for name in finding.concerned_tables if finding.leaves_out else ():
                reasons.setdefault(name, finding.error)
        return dict(sorted(reasons.items()))

    @property
    def by_option(self) -> dict[str, list[TableName]]:
        """The tables that could be mirrored with an option that is not given, by option."""
        asked = [finding for finding in self.findings if finding.refuses and finding.option]
        others = [finding for finding in self.findings if finding.refuses and not finding.option]
        hopeless = frozenset().union(*(finding.concerned_tables for finding in others))
        found = {finding.option or "": sorted(finding.concerned_tables - hopeless) for finding in asked}
        return {option: names for option, names in found.items() if names}

    def without(self, unfit: Mapping[TableName, HeadraceError]) -> CheckReport:
        """Return the report without these tables: they are unfit for a reason that the source can't see."""
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
        """An estimate of the rows that the copy will hold."""
        return sum(size.rows for size in self.sizes.values())

    @property
    def bytes(self) -> int:
        return sum(size.bytes for size in self.sizes.values())


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort errors first, then warnings; keep the order within a level."""
    levels = list(Level)
    return tuple(sorted(findings, key=lambda finding: levels.index(finding.level)))


def refuse(report: CheckReport, *, named_any: bool = True) -> None:
    """Raise the first error of a preflight; the others stand in its detail.

    Without `named_any` nobody has named a table or a pattern.
    """
    refused = [finding.error for finding in report.errors]
    if refused:
        raise _with_others(refused[0], refused[1:])
    if not report.tables:
        left_out = dict.fromkeys(f.error.primary for f in report.findings if f.leaves_out)
        raise Misconfigured(
            "NOTHING_TO_MIRROR",
            "no table is left to mirror",
            detail="; ".join(list(left_out)[:5]) or None,
            hint="headrace check shows what the patterns name and why it is left out"
            if named_any
            else "say which tables to mirror: --tables 'public.*'",
        )


def _with_others(first: HeadraceError, others: list[HeadraceError]) -> HeadraceError:
    """The first error of a preflight; the others stand in its detail."""
    if not others:
        return first
    return first.adding(f"and {len(others)} more: {'; '.join(error.primary for error in others[:5])}")
