"""One moment of a source, read in pieces on executors; or ranges of keys, each of a moment of its own.

    driver     Mirror.measure          how big the tables are ─► `TableSizes`, cut into pieces
               Mirror.snapshot         a moment to compare with ─► `Snapshot`
               Mirror.plan_copy        what a copy of the tables has to wait for ─► `CopyPlan`
                   snapshot            a moment, held open ─► `Snapshot`: handoff, shares, ticket
                   key_walk            no shared moment: where the next range ends ─► `KeyWalk`: ticket
    executors  Source.reader(ticket)   one connection ─► `Reader`
                 read                  a piece, or a range of a key ─► `PieceRead`: handoff, rows
                 look_up               the rows of some keys, by the piece that they are in

Pieces and tickets are values that pickle. The pipeline cuts no piece, and does not know how a source shows a
moment to several readers. The handoff (`core.handoff`) tells which transactions a moment holds. Its positions
belong to the life of the source that `upstream` names. The laws:

* The pieces of a table hold each of its rows once, whatever happens to the table meanwhile.
* A read under a snapshot returns what its handoff holds, in every table, or it raises.
* A row comes in the lake's types. A value that has no form there is NULL, and its text comes beside it. Text
  and bits equal those that the stream's decoder would make.
* An error of one table alone is `TableBusy` (try again later) or a `Definite` (that table stops). Any other
  error concerns the whole source.

The source says who reads which pieces (`shares`). Some sources need their readers there when the moment is
taken, and give each reader its share of the pieces. So start the readers before you ask for the handoff.

Nothing is written upstream.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
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


class Piece:
    """A part of a table that is read in one go: a value. Its other fields belong to the source."""

    __slots__ = ()
    table: TableName
    bytes: int  # its approximate size at the source


@dataclass(frozen=True, slots=True)
class WholeTable(Piece):
    """A table that is read in one go."""

    table: TableName
    bytes: int


@dataclass(frozen=True, slots=True)
class KeyRange(Piece):
    """Key ranges that are read in one moment, with estimates of their rows and bytes."""

    table: TableName
    number: int  # of the table: by now its name may belong to another one
    key: tuple[str, ...]
    spans: tuple[KeySpan, ...]
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TableSizes:
    """The sizes of tables. Each requested table is in `sizes` or in `busy`.

    A busy table cannot be read now: another session holds it, or it has just been dropped.
    """

    sizes: Mapping[TableName, TableSize]
    busy: Mapping[TableName, TableBusy]

    def pieces(self, tables: Collection[TableName], target_bytes: int) -> list[Piece]:
        """Cut measured tables into pieces of about `target_bytes` each; here each table is one piece."""
        return [WholeTable(name, self.sizes[name].bytes) for name in tables]


# --- executors ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PieceRead:
    """A piece while it is read: its handoff, and its rows as they come."""

    handoff: Handoff
    rows: Iterator[CopiedRows]


class Reader(AbstractContextManager["Reader"], Protocol):
    """One connection to the source that the ticket is for. It reads one piece after another."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close what the reader holds between two reads; by default it holds nothing."""
        return None

    def read(
        self, columns: Sequence[Column], piece: Piece, record: Json | None = None
    ) -> AbstractContextManager[PieceRead]:
        """Read these columns of a piece. The piece counts only if the block ends without an error.

        `record` holds the recorded details of the table (`TableDef`). Raises if a name now belongs to another
        column.
        """

    def look_up(
        self, schema: TableSchema, pieces: Sequence[Piece], keys: Sequence[Key]
    ) -> Generator[tuple[int, pa.Table], None, None]:
        """Find the rows with these keys; each batch comes with the number of the piece that it is in.

        `pieces` are all pieces of the table. Close the generator if you don't read it to its end.
        """


# --- the driver -----------------------------------------------------------------------------------


class Snapshot(AbstractContextManager["Snapshot"], Protocol):
    """A moment of the source, held open until the block ends."""

    @property
    def handoff(self) -> Handoff:
        """The test of which transactions it holds. Ask for it after the readers were started."""

    def settle(self) -> Handoff:
        """The handoff of all rows read so far: exact after every transaction that they may show.

        The same as `handoff`, unless a read can show more than that says.
        """
        return self.handoff

    @property
    def admits_later(self) -> bool:
        """Tell whether a reader can still join after the handoff was asked for."""
        return True

    @property
    def ticket(self) -> Json:
        """The ticket for a reader of this snapshot."""

    def shares(self, pieces: Sequence[Piece]) -> list[list[Piece]]:
        """Deal the pieces to readers, a share each. Start the readers of the first shares first."""
        return [[piece] for piece in pieces]

    def alive(self) -> bool:
        """Tell whether the snapshot is still held; the call also keeps its connection from timing out."""


class KeyWalk(AbstractContextManager["KeyWalk"], Protocol):
    """A walk along the keys of tables; it finds where their ranges end."""

    @property
    def ticket(self) -> Json:
        """The ticket for a reader of key ranges."""

    def next_bound(
        self, table: TableDef, span: KeySpan, rows: int, check: Callable[[], None]
    ) -> Bound | None:
        """Find the first key after `rows` rows of the span; None if the span has no more rows than that.

        Raises `StepTooLong` if that takes too long, and whatever `check` raises meanwhile.
        """


@dataclass(frozen=True, slots=True)
class CopyOrder:
    """An order for a copy: its tables, how many readers work at once, and the source's options."""

    tables: Sequence[TableDef]
    readers: int
    options: Mapping[str, str]  # the source's own
    read_until: Position | None = None  # how far the stream has been read


class CopyPlan(Protocol):
    """The plan of a copy: which tables it reads by key ranges, and how it takes its moment."""

    @property
    def by_ranges(self) -> Collection[TableName]:
        """The tables to read in key ranges: the option asks for it, and their keys allow it."""
        return ()

    @property
    def key_walk(self) -> Callable[[Waiting], KeyWalk] | None:
        """Start to read ranges, once no transaction bars a moment. Every later moment can then be joined.

        None if the source is never read in ranges.
        """
        return None

    def snapshot(self, tables: Sequence[TableDef], waiting: Waiting) -> Snapshot:
        """Take a moment that can be joined to the stream, once no transaction bars it."""
