"""One moment of a source, read in pieces by others; or ranges of keys, each of a moment of its own.

    driver     Mirror.measure          how big the tables are ─► `TableSizes`, cut into pieces
               Mirror.snapshot         a moment to compare with ─► `Snapshot`
               Mirror.plan_copy        what a copy of them has to wait for ─► `CopyPlan`
                   snapshot            a moment, held open ─► `Snapshot`: handoff, shares, ticket
                   key_walk            no moment: where the next range of a key ends ─► `KeyWalk`: ticket
    executors  Source.reader(ticket)   one connection ─► `Reader`
                 read                  a piece, or a range of a key ─► `PieceRead`: handoff, rows
                 look_up               the rows of some keys, by the piece that they are in

A piece and a `ticket` are values that pickle: whoever stands above cuts nothing and knows nothing of how a
moment is shown to others. Which transactions a moment holds is its handoff (`core.handoff`), in positions of
the life of the source that `upstream` is of. The laws:

* The pieces of a table hold each of its rows once, whatever happens to the table meanwhile.
* What is read under a snapshot is what its handoff holds, of all tables; or it is an error.
* A row comes as the lake types it. A value that has no form there is NULL, and its text comes beside it: the
  same text and the same bits that the stream's decoder would make of it.
* What is true of one table alone is `TableBusy` (it is tried again, later) or a `Definite` (it stops).
  Whatever else is raised concerns the whole source.

Who reads what is the source's to say (`shares`): one whose readers have to be there when the moment is taken
gives each of them its share of the pieces. Nobody asks for the handoff before they were begun.

Nothing is written upstream.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headrace.core.chunks import Bound, KeySpan
from headrace.core.handoff import Handoff
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.schema import Column, TableSchema
from headrace.decode.copyrows import CopiedRows
from headrace.sources.contract.errors import TableBusy
from headrace.sources.contract.values import Json, TableDef, TableSize, Waiting

Key = tuple[str, ...]  # the texts of a key's columns, as the source prints them


class Piece(Protocol):
    """A part of a table, to be read in one go: a value. All else of it is the source's own."""

    @property
    def table(self) -> TableName: ...
    @property
    def bytes(self) -> int:
        """Its size at the source, about."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Ranges of a key, to be read in one moment, with estimates of what they hold: a `Piece`."""

    table: TableName
    number: int  # of the table: a name may lead to another one
    key: tuple[str, ...]
    spans: tuple[KeySpan, ...]
    rows: int
    bytes: int


class TableSizes(Protocol):
    """The sizes of tables; each that was asked for is in one of the two."""

    @property
    def sizes(self) -> Mapping[TableName, TableSize]: ...
    @property
    def busy(self) -> Mapping[TableName, TableBusy]:
        """The tables that cannot be read just now: somebody holds them, or they went away a moment ago."""

    def pieces(self, tables: Collection[TableName], target_bytes: int) -> list[Piece]:
        """Cut tables that were measured into pieces of about so many bytes each."""


# --- executors ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PieceRead:
    """A piece while it is read: which transactions it holds, and its rows as they come."""

    handoff: Handoff
    rows: Iterator[CopiedRows]


class Reader(AbstractContextManager["Reader"], Protocol):
    """A connection to the source, and to no other, over which pieces are read one after another."""

    def read(
        self, columns: Sequence[Column], piece: Piece, record: Json | None = None
    ) -> AbstractContextManager[PieceRead]:
        """Read these columns of a piece. The piece counts only if the block ends well.

        `known` are the details of the table as they were recorded (`TableDef`): no other columns are read
        under these names.
        """

    def look_up(
        self, schema: TableSchema, pieces: Sequence[Piece], keys: Sequence[Key]
    ) -> Generator[tuple[int, pa.Table], None, None]:
        """Find the rows with these keys, by the number of the piece that they are in.

        `pieces` are all that the table was cut into. To be closed by who does not read it to its end.
        """


# --- the driver -----------------------------------------------------------------------------------


class Snapshot(AbstractContextManager["Snapshot"], Protocol):
    """A moment of the source, held open until the block ends."""

    @property
    def handoff(self) -> Handoff:
        """The test of which transactions it holds: asked for once whoever reads it was begun."""

    def settle(self) -> Handoff:
        """The handoff of all that was read by now: exact from behind whatever may show in it."""

    @property
    def admits_later(self) -> bool:
        """Tell whether it can be read by those, too, who come after its handoff was asked for."""

    @property
    def ticket(self) -> Json:
        """The ticket that a reader of it is given."""

    def shares(self, pieces: Sequence[Piece]) -> list[list[Piece]]:
        """Say who reads what: a share is read by one reader, piece by piece; the first are begun first."""

    def alive(self) -> bool:
        """Tell whether it is still held; asking also keeps its connection from falling asleep."""


class KeyWalk(AbstractContextManager["KeyWalk"], Protocol):
    """A walk along the keys of tables, to tell where their ranges end."""

    @property
    def ticket(self) -> Json:
        """The ticket that a reader of ranges is given."""

    def next_bound(
        self, table: TableDef, span: KeySpan, rows: int, check: Callable[[], None]
    ) -> Bound | None:
        """The key that so many rows of the span lie before; None where it has no more than that.

        Raises `StepTooLong` where that takes too long, and whatever `check` raises meanwhile.
        """


@dataclass(frozen=True, slots=True)
class CopyOrder:
    """The order for a copy: these tables, by so many readers at once, joined to the stream in this way."""

    tables: Sequence[TableDef]
    readers: int
    options: Mapping[str, str]  # the source's own
    read_until: Position | None = None  # how far its stream has been read


class CopyPlan(Protocol):
    """A copy of tables that can be read, as far as it can be foreseen."""

    @property
    def by_ranges(self) -> Collection[TableName]:
        """The tables that the option wants read in ranges of their keys, and whose keys allow it."""

    @property
    def key_walk(self) -> Callable[[Waiting], KeyWalk] | None:
        """Begin to read ranges, as soon as nobody bars a moment any more; every later one may be joined.

        None of a source that is never read in ranges.
        """

    def snapshot(self, tables: Sequence[TableDef], waiting: Waiting) -> Snapshot:
        """Take a moment that may be joined to the stream, as soon as nobody bars it any more."""
