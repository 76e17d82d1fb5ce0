"""The tables of a source, as values: what each is, and what a look at it finds.

    examine ─► capture ─► defined ─► recorded ─► copied, followed ─► check, before each mark ─► release
    fit?       upstream   in full?               (a `TableDef`)      locked, changed, news

A definition is of one moment. Its `details` are the source's own: they are stored, handed back with the
table's record, and compared by the source alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.core.conversion import Conversion, Part
from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.schema import TableSchema
from headrace.sources.contract.errors import TableBusy, TableDenied
from headrace.sources.contract.record import Json
from headrace.sources.contract.statements import StatementEffect


@dataclass(frozen=True, slots=True)
class TableDef:
    """A table as it was defined at one moment."""

    name: TableName
    number: int  # as the stream numbers it
    schema: TableSchema  # as the lake will know it
    details: Json  # the source's own


@dataclass(frozen=True, slots=True)
class TableSize:
    """The size of a table: bytes, and an estimate of its rows."""

    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class ExaminedTables:
    """Tables that are there, and what stands against mirroring some of them."""

    defs: Mapping[TableName, TableDef]
    errors: Mapping[TableName, HeadraceError]

    @property
    def fit(self) -> list[TableName]:
        return sorted(self.defs.keys() - self.errors.keys())

    @property
    def fit_defs(self) -> list[TableDef]:
        return [self.defs[name] for name in self.fit]

    def then(self, later: ExaminedTables) -> ExaminedTables:
        """Return the result once the fit tables have been looked at again."""
        unfit = {name: each for name, each in self.defs.items() if name in self.errors}
        return ExaminedTables({**unfit, **later.defs}, {**self.errors, **later.errors})


@dataclass(frozen=True, slots=True)
class ColumnDerivation:
    """Out of what each column of `Change.now` comes in a row from before the change."""

    parts: tuple[Part, ...]
    until: Position  # behind the change: from there on the stream brings no row from before it
    between: tuple[Conversion, ...] | None = None  # of the columns in between; None: by their names alone


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a table, so that it is not what was recorded any more."""

    what: str  # for a message
    now: TableDef | None  # the same table as it is now, by whatever name; None: it is gone
    mend: str | None = None  # what has to be done at the source before anything else
    derivation: ColumnDerivation | None = (
        None  # where its columns alone are others, and it is proven what old rows hold
    )
    told_by: Position | None = None  # the stream may say up to here what it was; None: it says no more


@dataclass(frozen=True, slots=True)
class SchemaCheck:
    """The outcome of one look at tables. By the keys of the caller, to whom a table may be two records."""

    end: Position  # behind all that the stream can bring by now
    reference: int  # what the source's decoder is made with
    changes: Mapping[str, Change]
    news: Mapping[str, TableDef]  # what is new of a table and means nothing to its rows
    locked_tables: frozenset[
        str
    ]  # somebody may be changing it, and no look can see that yet; or it is denied
    upstream_error: HeadraceError | None = None  # the objects upstream are others now: it concerns all tables
    denials: Mapping[str, HeadraceError] = field(default_factory=dict)  # we may not see what it is by now
    unreadable: Mapping[str, TableDenied] = field(default_factory=dict)  # it is followed, and can't be copied
    busy: Mapping[str, TableBusy] = field(default_factory=dict)  # of the locked, where it is known


@dataclass(frozen=True, slots=True)
class StatementLog:
    """All that the stream says of tables from the last mark to a position: of each its statements, in order.

    By the keys of the tables; what a table's details know already is none of it.
    """

    after: Position
    until: Position
    effects: Mapping[str, Sequence[StatementEffect]] = field(default_factory=dict)
