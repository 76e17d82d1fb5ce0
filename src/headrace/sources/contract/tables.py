"""The tables of a source: what each is, whether it is still that, and whether its changes are captured.

    examine ─► capture ─► define ─► recorded ─► copied, followed ─► check, before each mark ─► release
    fit?       upstream   in full?              (a `TableDef`)      locked, changed, news

A definition is of one moment. Its `details` are the source's own: they are stored, handed back as what is
`known` of the table, and compared by the source alone. Which tables are captured may be the user's own affair
(`Source.owns_capture`): then nothing here alters that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

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


class Tables(Protocol):
    """The tables of one mirror, asked about over one connection."""

    @property
    def case_insensitive(self) -> bool:
        """Tell whether their names mean the same in any case."""

    def examine(self, names: Sequence[TableName]) -> ExaminedTables:
        """Tell which of these tables are there, and what stands against mirroring them.

        What `capture` puts right is not held against a table.
        """

    def capture(self, names: Sequence[TableName]) -> ExaminedTables:
        """See that from here on all changes of these tables are captured; committed when it returns.

        Those of which the user's own objects leave something out come with an error, and so does one that
        somebody holds: it keeps no other out.
        """

    def define(self, tables: Iterable[TableDef]) -> ExaminedTables:
        """Define the very same tables anew, now that they are captured; one that is gone is absent.

        Those of which not all is captured come with an error.
        """

    def check(self, records: Mapping[str, TableDef], log: StatementLog | None = None) -> SchemaCheck:
        """Compare tables with what was recorded of them, and with what was heard since, if anybody listened.

        Whatever the stream brings of a table up to the `end` was made under the definition that is known, or
        the table is among the changes or locked; or the stream says it by a statement, which its decoder
        meets.
        """

    def find_unmirrored(
        self, patterns: Sequence[str], mirrored_tables: Collection[TableName]
    ) -> dict[TableName, HeadraceError | None]:
        """Find what patterns match and nobody mirrors, with what stands against it, or None."""

    def captured_tables(self) -> frozenset[TableName]:
        """The tables whose changes are captured by name."""

    def release(self, names: Sequence[TableName]) -> None:
        """Capture the changes of these tables no longer; one that is not captured is nothing to do."""

    def release_now(self, numbers: Collection[int]) -> None:
        """Release tables that may have other names by now; give up where that would have to wait."""

    def unwritable(self) -> frozenset[int]:
        """The tables, by number, of which the server refuses the application's own writes because of us."""

    def columns_left_out(self, details: Json) -> tuple[str, ...]:
        """Name the columns that a table has and that the source does not send, by the table's details.

        Those that a user's own objects leave out on purpose are not among them.
        """
