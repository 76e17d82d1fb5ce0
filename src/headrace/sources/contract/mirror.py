"""One connection to a source, and the mirror that is bound to it: nobody above carries the two any more.

    address ─► Source.connect ─► Connection ─► mirror(upstream) ─► Mirror
                                                establish          tables captured, the stream begun
                                                confirm            the stream goes on here
                                                examine, check     are the tables fit, are they what they were
                                                end, clock, health how far the source is, and how it is
                                                measure, snapshot, plan_copy     what its tables hold
                                                captures           what only a source with objects has

A mirror is one connection and the objects upstream that the mirror is read through. After `establish` the
objects are others: bind again, to `StreamOrigin.upstream`. Both belong to one thread. Whatever fails is a
coded error; one that means a position was lost is a `core.errors.PositionLost`, whichever method raises it.

A capability that some sources lack is a protocol of its own. The mirror has it or None; no method is there
that does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.sources.contract.copying import CopyOrder, CopyPlan, Snapshot, TableSizes
from headrace.sources.contract.values import (
    ExaminedTables,
    Json,
    SchemaCheck,
    StatementLog,
    TableDef,
    Waiting,
)


class Address(Protocol):
    """The place of a source, and who we are there. Its `repr` and `str` hold no secret."""

    @property
    def text(self) -> str:
        """All of it, secrets included: it travels sealed, and is in no message."""

    def without_secrets(self) -> str:
        """The address as it may be written down; with the password it is enough to connect."""


@dataclass(frozen=True, slots=True)
class StreamOrder:
    """An order for a stream of these tables.

    With `undo` what was made goes again if it fails: while no record of the lake names it, nobody would find
    it later. Where a position was lost the stream begins behind what had been `received_until`, perhaps in
    another life than that of the server `left_identity`; what the source still holds for the lost stream is
    let go first.
    """

    tables: Sequence[TableDef]
    undo: bool = False
    received_until: Position | None = None
    left_identity: Json | None = None

    @property
    def names(self) -> list[TableName]:
        return [table.name for table in self.tables]


@dataclass(frozen=True, slots=True)
class StreamOrigin:
    """The beginning of a stream, and what it stands on.

    `identity` is what of the server's identity lasts. `tables` are the order's, defined anew behind the
    start: one that is gone is absent, one of which not all is captured comes with an error. Objects that were
    there already may be older than what they say of a table: only of a `fresh` stream it is known to have all
    of every table from its start on. No commit before the start is later than `begun_at` (microseconds since
    1970, by the source's clock). In `another_life` the source spells its positions otherwise than before.
    """

    identity: Json
    upstream: Json
    start: Position
    fresh: bool
    begun_at: int | None
    another_life: bool = False
    tables: ExaminedTables = field(default_factory=lambda: ExaminedTables({}, {}))


@dataclass(frozen=True, slots=True)
class Successor:
    """Another server than the one that was followed, of the same history: what of its identity lasts."""

    identity: Json
    upstream: Json


@dataclass(frozen=True, slots=True)
class CapturedTables:
    """Tables whose changes are captured, and a position behind all that had happened by then."""

    examined_tables: ExaminedTables
    position: Position


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Every commit at `position` or behind it bears a later time than `at`, in microseconds since 1970."""

    at: int
    position: Position


@dataclass(frozen=True, slots=True)
class Health:
    """The source's word on what it holds for us: figures, lines, an error where it is too much."""

    figures: Mapping[str, Any] | None = None
    lines: tuple[str, ...] = ()
    excess: HeadraceError | None = None
    retained_bytes: int | None = None  # of its log, for us
    limit_bytes: int | None = None  # of that, beyond which the server or we end it


class Connection(Protocol):
    """One connection, pinned, and who is at its other end. It belongs to one thread."""

    @property
    def address(self) -> Address:
        """The address as it means the same on another machine: what this one's environment said is in it."""

    @property
    def identity(self) -> Json:
        """The server, database and life of it that were reached here, for others to reach the same."""

    @property
    def is_closed(self) -> bool:
        """Tell whether the server or somebody here has ended it; asks nobody."""

    def close(self) -> None:
        """End it; what is closed already stays so."""

    def mirror(self, upstream: Json, identity: Json | None = None) -> Mirror:
        """Bind to the objects of a mirror; as often as wanted, and again when the objects are others.

        `identity` is of a connection, or what of it lasts: raises unless this is that server. Raises too
        where the objects are not to be trusted.
        """


class Mirror(Protocol):
    """The tables and the stream of one mirror, asked about over one connection."""

    @property
    def connection(self) -> Connection:
        """The connection that all is asked over; whoever made it closes it."""

    @property
    def captures(self) -> Captures | None:
        """The changes that it may make at its source; None where a source captures all tables alike."""

    # --- the stream: once an attempt --------------------------------------------------------------

    def establish(self, order: StreamOrder, waiting: Waiting) -> StreamOrigin:
        """Have the tables captured, then a stream of them, then define them anew.

        Called for a first run, and after a lost position. A crash may come anywhere in between: what is there
        is used by the next call. Raises where there can be no stream, and whatever `waiting` raises.
        """

    def confirm(self, identity: Json, received_until: Position) -> Successor | None:
        """Raise unless the stream goes on here, through the same objects, from `received_until`.

        Called once at each beginning. None where this is the server of `identity`. Another one may go on if
        it has all that was reached from that: commits behind it may come in another order from there.
        """

    # --- its tables: before each mark, and when tables come or go ---------------------------------

    def examine(self, names: Sequence[TableName]) -> ExaminedTables:
        """Tell which of these tables are there, and what stands against mirroring them.

        What `Captures.capture` puts right is not held against a table.
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

    # --- how far the source is: every second or so ------------------------------------------------

    def end(self) -> Position:
        """Behind all that is committed and that the stream can bring by now."""

    def clock(self) -> ClockReading | None:
        """The source's clock, held against its stream; None where it can't be told."""

    def is_quiet(self, start: Position, stop: Position) -> bool:
        """Tell whether no captured transaction lies in [start, stop); only while nobody streams."""

    def health(self, limit: int | None = None) -> Health:
        """Say what the source holds for us, which may be so many bytes. Raises where it would wait for us."""

    # --- what its tables hold: copies and proofs --------------------------------------------------

    def measure(self, tables: Sequence[TableDef]) -> TableSizes:
        """Ask how big tables are; nobody waits for one that somebody holds."""

    def plan_copy(self, order: CopyOrder) -> CopyPlan:
        """Foresee a copy of tables whose changes are captured by now, and which can be read."""

    def snapshot(self, tables: Sequence[TableDef], readers: int, seconds: float) -> Snapshot:
        """Take a moment to compare with, of which it is known which transactions it holds.

        It is to be had within so many seconds. Refused where the source cannot tell what it holds.
        """


class Captures(Protocol):
    """The changes of a mirror at its source: which tables are captured, and how far the log goes.

    Whether it may is `UpstreamFacts.owns_capture`: which tables are captured may be the user's own affair.
    Then nothing here alters that.
    """

    @property
    def unwritable(self) -> Callable[[], frozenset[int]] | None:
        """The tables, by number, whose own writes the server refuses because of us; None: never any."""

    def capture(self, names: Sequence[TableName]) -> CapturedTables:
        """See that from here on all changes of these tables are captured; committed when it returns.

        Those of which the user's own objects leave something out come with an error, and so does one that
        somebody holds: it keeps no other out. One that is captured already is nothing to do.
        """

    def captured_tables(self) -> frozenset[TableName]:
        """The tables whose changes are captured by name."""

    def release(self, names: Sequence[TableName]) -> None:
        """Capture the changes of these tables no longer; one that is not captured is nothing to do."""

    def release_now(self, numbers: Collection[int]) -> None:
        """Release tables that may have other names by now; raises where that would have to wait."""

    def columns_left_out(self, details: Json) -> tuple[str, ...]:
        """Name the columns that a table has and that the source does not send, by the table's details.

        Those that a user's own objects leave out on purpose are not among them.
        """

    def advance_log(self) -> bool:
        """Move the end of the stream a little where nobody else does; False where we may not."""
