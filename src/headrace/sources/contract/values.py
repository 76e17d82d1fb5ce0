"""The values that all parts of the contract use. They load no Arrow, because a receiver imports them too.

    Json                a record that belongs to the source: stored, handed back, and read by nobody else
    Declaration         a kind of source with its options, known before its code is loaded
    UpstreamFacts       what follows from the record of a mirror's objects, without a connection
    TableDef            a table as it was defined at one moment
    SchemaCheck         the outcome of one look at tables
    StatementEffect     a statement on a table that the stream brings, at its place
    Waiting             what ends a wait for others, and what reports the reason

    examine ─► capture ─► defined ─► recorded ─► copied, followed ─► check, before each mark ─► release
    fit?       upstream   in full?               (a `TableDef`)      locked, changed, news

The details of a definition belong to the source, and only the source compares them. The reader of a
configuration checks each option by itself, and refuses an option that only another kind declares. The source
refuses options that contradict each other (`Source.plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.core.errors import HeadraceError, Transient
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.sources.contract.errors import TableBusy, TableDenied

if TYPE_CHECKING:  # they load Arrow
    from headrace.core.conversion import Conversion, Part
    from headrace.core.schema import TableSchema

Json = dict[str, Any]


# --- a kind of source ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Option:
    """An option of one kind of source; its values are texts."""

    name: str
    help: str  # one line
    default: str | None = None
    choices: tuple[str, ...] = ()  # empty: any text
    number: bool = False  # a configuration may give it as a number instead of a text
    in_sql: bool = False  # CREATE SOURCE takes it, under its name in capitals
    table: bool = False  # a configuration has it as a table, whose text is JSON; no flag gives it


# Every kind that can leave columns out declares it (`sources.contract.column_rules`).
COLUMNS = Option("columns", "which columns of which tables stay out of the lake", table=True)


@dataclass(frozen=True, slots=True)
class Declaration:
    """The description of a kind of source: its names, its addresses, its options."""

    kind: str  # in the lake's records; in capitals after CREATE SOURCE ... FROM
    title: str  # for people
    schemes: tuple[str, ...]  # of its addresses
    password: str  # for a hint: where a password stands that the address leaves out
    options: tuple[Option, ...] = ()
    driver: str = ""  # the package that makes its connections

    @property
    def keyword(self) -> str:
        return self.kind.upper()

    @property
    def in_sql(self) -> tuple[Option, ...]:
        """The options that CREATE SOURCE takes, in its order."""
        return tuple(option for option in self.options if option.in_sql)

    def value(self, options: Mapping[str, str], name: str) -> str | None:
        """The value of an option, or its default."""
        [declared] = (option for option in self.options if option.name == name)
        return options.get(name, declared.default)


@dataclass(frozen=True, slots=True)
class UpstreamFacts:
    """The facts that follow from the record of a mirror's objects, without a connection.

    `options` name the user's objects in a configuration; our own objects need none. `objects` has the name of
    each object, by the option that would name it. Without `owns_capture` the user's own objects decide which
    tables are captured. With `case_insensitive` a table's name means the same in any case.
    """

    options: Mapping[str, str] = field(default_factory=dict)
    objects: Mapping[str, str] = field(default_factory=dict)
    owns_capture: bool = True
    case_insensitive: bool = False


# --- waits for others ------------------------------------------------------------------------


def _nobody() -> None:
    """Never end the wait early."""


def _unheard(reason: Transient) -> None:
    """Report the reason of the wait to nobody."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A wait until other transactions end: what ends it early, and what reports its reason."""

    check: Callable[[], None] = _nobody  # raises to end the wait
    tell: Callable[[Transient], None] = _unheard  # called every few seconds with the reason of the wait


ALONE = Waiting()


# --- tables ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StatementEffect:
    """A statement on one table, or on all tables."""

    time: int
    steps: bytes | None  # what the statement did, in the source's own format; None: unknown
    replaces: bool = False  # the table is gone, or its name belongs to another table


@dataclass(frozen=True, slots=True)
class TableDef:
    """A table as it was defined at one moment."""

    name: TableName
    number: int  # as the stream numbers it
    schema: TableSchema  # of the lake's table
    details: Json  # the source's own record


COUNTED_SECONDS = 3600.0  # statistics that cover less say nothing of the rate of changes


@dataclass(frozen=True, slots=True)
class TableSize:
    """The size of a table: bytes, an estimate of its rows, and how often they change."""

    bytes: int
    rows: int
    changes_an_hour: float | None = None  # inserts, updates and deletes; None: the server does not say


@dataclass(frozen=True, slots=True)
class ExaminedTables:
    """Tables that exist, and the errors of those that can't be mirrored."""

    defs: Mapping[TableName, TableDef]
    errors: Mapping[TableName, HeadraceError]

    @property
    def fit(self) -> list[TableName]:
        return sorted(self.defs.keys() - self.errors.keys())

    @property
    def fit_defs(self) -> list[TableDef]:
        return [self.defs[name] for name in self.fit]

    def then(self, later: ExaminedTables) -> ExaminedTables:
        """Merge with a later look at the fit tables."""
        unfit = {name: each for name, each in self.defs.items() if name in self.errors}
        return ExaminedTables({**unfit, **later.defs}, {**self.errors, **later.errors})


@dataclass(frozen=True, slots=True)
class ColumnDerivation:
    """The origin of each column of `Change.now` in a row from before the change."""

    parts: tuple[Part, ...]
    until: Position  # after the change: from here on the stream brings no row from before it
    between: tuple[Conversion, ...] | None = None  # of the layouts in between; None: by column names alone


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a table: it differs from its record."""

    what: str  # for a message
    now: TableDef | None  # the same table now, under whatever name; None: it is gone
    mend: str | None = None  # what a person must do at the source first
    derivation: ColumnDerivation | None = (
        None  # if only its columns changed, and the values of old rows are proven
    )
    told_by: Position | None = None  # up to here the stream may still tell what changed; None: it won't
    capture_unbroken: bool = False  # proven: the stream lacks no change of the table since its record


@dataclass(frozen=True, slots=True)
class SchemaCheck:
    """The outcome of one look at tables, by the caller's keys: a caller may have two records of one table."""

    end: Position  # after all that the stream can bring by now
    reference: int  # for `Source.decoder`
    changes: Mapping[str, Change]
    news: Mapping[str, TableDef] = field(default_factory=dict)  # new records; the details change no row
    # Another session may be changing such a table, which no look can see yet; or it is denied.
    locked_tables: frozenset[str] = frozenset()
    upstream_error: HeadraceError | None = None  # the objects upstream were replaced: concerns all tables
    denials: Mapping[str, HeadraceError] = field(default_factory=dict)  # we may not see its definition now
    unreadable: Mapping[str, TableDenied] = field(default_factory=dict)  # it is followed, and can't be copied
    busy: Mapping[str, TableBusy] = field(default_factory=dict)  # the errors of locked tables, where known
    # Tables that may have been changed and changed back before this look: marks may name each only from its
    # position on. None stands for the end of the log, moved on behind this look; it concerns only tables that
    # waited for their copy, which no look saw in between.
    unproven: Mapping[str, Position | None] = field(default_factory=dict)
    # Tables with columns that came after their rule of columns, and stay out until it names them.
    late_columns: Mapping[str, HeadraceError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StatementLog:
    """The statements that the stream brings of tables, from the last mark to a position, in order.

    By the keys of the tables. It leaves out statements that a table's details include already.
    """

    after: Position
    until: Position
    effects: Mapping[str, Sequence[StatementEffect]] = field(default_factory=dict)
