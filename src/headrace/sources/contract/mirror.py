"""One connection to a source, and the mirror that is bound to it: the pipeline never carries the two apart.

    address ─► Source.connect ─► Connection ─► mirror(upstream) ─► Mirror
                                                establish          tables captured, the stream begun
                                                confirm            the stream goes on here
                                                examine, check     are the tables fit, are they what they were
                                                end, clock, health how far the source is, and how it is
                                                measure, snapshot, plan_copy     what its tables hold
                                                captures           what only a source with objects has

A mirror is one connection, and the objects upstream that it reads through. `establish` changes the objects:
bind again afterwards, to `StreamOrigin.upstream`. Both belong to one thread. Every failure is a coded error.
An error that means a lost position is a `core.errors.PositionLost`, whichever method raises it.

A capability that some sources lack is a protocol of its own. The mirror has it, or has None there. A source
that inherits from these protocols writes nothing for what it lacks.
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
    """The address of a source, and our user there. Its `repr` and `str` hold no secret."""

    @property
    def text(self) -> str:
        """The whole address, secrets included. It travels sealed, and no message shows it.

        It holds the password that its credential yields now, so that another process needs no credential.
        """

    def without_secrets(self) -> str:
        """The address as it may be written down. Together with the password it is enough to connect."""


@dataclass(frozen=True, slots=True)
class PlainAddress:
    """An address that holds no secret."""

    text: str

    def without_secrets(self) -> str:
        return self.text

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class StreamOrder:
    """An order for a stream of these tables.

    With `undo`, `establish` removes what it made if it fails: no record of the lake names the objects yet, so
    nobody would find them later. After a lost position the source first lets go what it holds for the lost
    stream. The new stream begins behind `received_until`, perhaps in another life than that of
    `left_identity`, the server that was followed before.
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
    """The start of a stream, with its server, its objects and its tables.

    `identity` is the lasting part of the server's identity. `tables` are those of the order, defined again
    after the start: a dropped table is absent, and a table that is not wholly captured has an error. Objects
    that were there already may be older than a table's capture, so only a `fresh` stream is known to bring
    every change of every table from its start on. No commit before the start is later than `begun_at`
    (microseconds since 1970, by the source's clock). In `another_life` the source writes its positions in
    another way than before.
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
    """Another server with the same history: the lasting part of its identity, and its record."""

    identity: Json
    upstream: Json


@dataclass(frozen=True, slots=True)
class CapturedTables:
    """Tables whose changes are captured, and a position after all that was committed by then."""

    examined_tables: ExaminedTables
    position: Position


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Every commit at or after `position` has a later time than `at`, in microseconds since 1970."""

    at: int
    position: Position


@dataclass(frozen=True, slots=True)
class Health:
    """The data that the source holds for us: as figures and lines, with an error if it is too much."""

    figures: Mapping[str, Any] | None = None
    lines: tuple[str, ...] = ()
    excess: HeadraceError | None = None
    retained_bytes: int | None = None  # of its log, for us
    limit_bytes: int | None = None  # beyond this the server or headrace ends the stream


class Connection(Protocol):
    """One connection with pinned settings, and the server that it reached. It belongs to one thread."""

    @property
    def address(self) -> Address:
        """The address for another machine: it includes what this machine's environment adds."""

    @property
    def identity(self) -> Json:
        """The server, database and life that were reached; another connection proves it reached the same."""

    @property
    def is_closed(self) -> bool:
        """Tell whether the connection is known to have ended; sends nothing."""

    def close(self) -> None:
        """Close the connection; a second call does nothing."""

    def mirror(self, upstream: Json, identity: Json | None = None) -> Mirror:
        """Bind to the objects of a mirror. Call it as often as needed, and again when the objects change.

        `identity` is that of a connection, or its lasting part: raises unless this is that server. Raises
        also if the objects can't be trusted.
        """


class Mirror(Protocol):
    """The tables and the stream of one mirror, asked about over one connection."""

    @property
    def connection(self) -> Connection:
        """The connection that every method uses. The code that opened it closes it."""

    @property
    def captures(self) -> Captures | None:
        """The control of which tables are captured; None if the source captures all tables alike."""
        return None

    # --- the stream: once an attempt --------------------------------------------------------------

    def establish(self, order: StreamOrder, waiting: Waiting) -> StreamOrigin:
        """Capture the tables, begin a stream of them, then define them again.

        Call it for a first run, and after a lost position. A crash may come at any step: the next call uses
        what is there. Raises if there can be no stream, and whatever `waiting` raises.
        """

    def confirm(self, identity: Json, received_until: Position) -> Successor | None:
        """Raise unless the stream goes on here, through the same objects, from `received_until`.

        Call it once at each start. Returns None if this is the server of `identity`. Another server may
        follow it if it has everything up to `received_until`. Later commits may come in another order there.
        """

    # --- its tables: before each mark, and when tables come or go ---------------------------------

    def examine(self, names: Sequence[TableName]) -> ExaminedTables:
        """Tell which of these tables exist, and what prevents mirroring them.

        A fault that `Captures.capture` puts right is no error here.
        """

    def check(self, records: Mapping[str, TableDef], log: StatementLog | None = None) -> SchemaCheck:
        """Compare tables with their records, and with the statements that the stream brought since, if given.

        The promise, for each table and all that the stream brings of it up to the result's `end`: it was made
        under the recorded definition; or the table is among the changes or the locked tables; or the stream
        brings the statement that altered it, and the decoder finds it.
        """

    def find_unmirrored(
        self, patterns: Sequence[str], mirrored_tables: Collection[TableName]
    ) -> dict[TableName, HeadraceError | None]:
        """Find the tables that match the patterns and are not mirrored, each with its error or None."""

    # --- how far the source is: every second or so ------------------------------------------------

    def end(self) -> Position:
        """The position after every commit that the stream can bring by now."""

    def clock(self) -> ClockReading | None:
        """Read the source's clock together with a position of its stream; None if that is not possible."""
        return None

    def is_quiet(self, start: Position, stop: Position) -> bool:
        """Tell whether [start, stop) has no captured transaction. Call it only while nobody streams.

        False where the source can't tell, unless nothing lies between them.
        """
        return not start < stop

    def health(self, limit: int | None = None) -> Health:
        """Say what the source holds for us, and an error beyond `limit` bytes.

        Raises if the source's commits would wait for us.
        """
        return Health()

    # --- what its tables hold: copies and proofs --------------------------------------------------

    def measure(self, tables: Sequence[TableDef]) -> TableSizes:
        """Ask how big tables are. A table that another session holds is not waited for."""

    def plan_copy(self, order: CopyOrder) -> CopyPlan:
        """Plan a copy of tables whose changes are captured by now, and which can be read."""

    def snapshot(self, tables: Sequence[TableDef], readers: int, seconds: float) -> Snapshot:
        """Take a snapshot to compare with, whose transactions are known.

        Raises if that takes longer than `seconds`, or if the source can't tell which transactions it holds.
        """


class Captures(Protocol):
    """The control of a source's capture: which tables are captured, and where the log ends.

    Without `UpstreamFacts.owns_capture` the user's own objects decide which tables are captured. Then no
    method here alters that.
    """

    @property
    def unwritable(self) -> Callable[[], frozenset[int]] | None:
        """The tables, by number, whose writes the server refuses because of our capture; None: never any."""
        return None

    def capture(self, names: Sequence[TableName]) -> CapturedTables:
        """Make sure that all changes of these tables are captured from now on; committed when it returns.

        A table comes with an error if the user's own objects leave out something of it, or if another session
        holds it. The other tables are captured all the same. A table that is captured already stays so.
        """

    def captured_tables(self) -> frozenset[TableName]:
        """The tables whose changes are captured by name."""

    def release(self, names: Sequence[TableName]) -> None:
        """Stop capturing these tables; a table that is not captured is skipped."""

    def release_now(self, numbers: Collection[int]) -> None:
        """Release tables by number, whatever their names are now. Raises instead of waiting."""

    def columns_left_out(self, details: Json) -> tuple[str, ...]:
        """Name the columns of a table that the source does not send, by the table's details.

        Columns that the user's own objects leave out on purpose are not named.
        """

    def advance_log(self) -> bool:
        """Move the end of the stream a little, for when nobody else writes; False if we may not."""
