"""Values of the contract that every part of it speaks of. They load no Arrow: a receiver has them too.

    Json                a record that is the source's own: stored, handed back, and read by nobody else
    Declaration         all that is said of a kind of source before any of it is loaded, with its options
    UpstreamFacts       what follows from the record of a mirror's objects, without a connection
    TableDef            a table as it was defined at one moment, and what a look at it finds (`SchemaCheck`)
    StatementEffect     what a stream says of tables otherwise than by rows, at its own place
    Waiting             who may end a wait for others, and who hears what is waited for

    examine ─► capture ─► defined ─► recorded ─► copied, followed ─► check, before each mark ─► release
    fit?       upstream   in full?               (a `TableDef`)      locked, changed, news

The details of a definition are the source's own, and compared by it alone. Whoever reads a configuration
checks each option by itself, and refuses what only another kind declares; options that do not go together are
the source's to refuse (`Source.plan`).
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
    choices: tuple[str, ...] = ()  # none: any text
    number: bool = False  # a number may be written as one
    in_sql: bool = False  # CREATE SOURCE asks for it, by its name in capitals


@dataclass(frozen=True, slots=True)
class Declaration:
    """A kind of source as it introduces itself."""

    kind: str  # in the lake's records; in capitals after CREATE SOURCE ... FROM
    title: str  # for people
    schemes: tuple[str, ...]  # of its addresses
    password: str  # where a password is found that the address leaves out, for a hint
    options: tuple[Option, ...] = ()
    driver: str = ""  # the package that its connections are made with

    @property
    def keyword(self) -> str:
        return self.kind.upper()

    @property
    def in_sql(self) -> tuple[Option, ...]:
        """The options that CREATE SOURCE asks for, in its order."""
        return tuple(option for option in self.options if option.in_sql)

    def value(self, options: Mapping[str, str], name: str) -> str | None:
        """The value of an option, or its default."""
        [declared] = (option for option in self.options if option.name == name)
        return options.get(name, declared.default)


@dataclass(frozen=True, slots=True)
class UpstreamFacts:
    """The facts that follow from the record of a mirror's objects, without a connection.

    `options` say the same in a configuration: none for what is our own. `objects` has the name of each
    object, by the option that would name it. Where `owns_capture` is not set, the user's own objects say
    which tables are captured. `case_insensitive`: names of tables mean the same in any case.
    """

    options: Mapping[str, str] = field(default_factory=dict)
    objects: Mapping[str, str] = field(default_factory=dict)
    owns_capture: bool = True
    case_insensitive: bool = False


# --- waits for others ------------------------------------------------------------------------


def _nobody() -> None:
    """Nobody wants to end the wait before its time."""


def _unheard(reason: Transient) -> None:
    """Nobody asks what is waited for."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The manner in which somebody waits for other transactions to have what comes after them."""

    check: Callable[[], None] = _nobody  # raises when it is not wanted any more
    tell: Callable[[Transient], None] = _unheard  # hears every few seconds what is waited for


ALONE = Waiting()


# --- tables ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StatementEffect:
    """A statement on a table, or on all."""

    time: int
    steps: bytes | None  # what it did, in the source's own words; None: they do not say
    replaces: bool = False  # the table is gone, or another one has its name


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
    # What became of it since the look of its record is not all known: a table that no look saw in between
    # may be named by marks from behind this look on. Where the source can't say where that is the log is
    # moved on, and it is where that ends.
    unproven: frozenset[str] = frozenset()
    behind: Position | None = None


@dataclass(frozen=True, slots=True)
class StatementLog:
    """All that the stream says of tables from the last mark to a position: of each its statements, in order.

    By the keys of the tables; what a table's details know already is none of it.
    """

    after: Position
    until: Position
    effects: Mapping[str, Sequence[StatementEffect]] = field(default_factory=dict)
