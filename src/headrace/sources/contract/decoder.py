"""The decoder of a source: it turns the bytes of the stream into changes.

    Decoder      from the bytes of the stream to changes, and from values to the texts that the source prints
    TextDecoder  from the bytes to rows of texts, whatever the tables' columns are
    Context      what a decoder must know besides the bytes; the pipeline carries it and never reads it

The format of the bytes belongs to the source. The pipeline cuts them, keeps them, and sends them from one
process to another. It hands them back with the context that belongs to them:

    bytes of whole transactions    between(layouts)      the layouts that the session sent before them
    a running transaction's bytes  within(transaction)   from its first byte on
    bytes behind a split           split(data, context)  of a transaction that is too large for one task

The law of every decoder: split bytes where `split` says, and decode the pieces in any process and order. The
changes are the same, with the same times and ordinals.

Decoders are pure: no connection, no clock, no file. Decoders and contexts are plain values that pickle small.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.errors import Definite, HeadraceError
from headrace.core.names import TableName
from headrace.core.schema import Column, TableSchema
from headrace.core.truncation import Truncations
from headrace.sources.contract.values import Json, StatementEffect

Bytes = npt.NDArray[np.uint8]
Effects = dict[int, list[StatementEffect]]  # by the table's number


class Context(Protocol):
    """The state that a decoder needs besides the bytes.

    A dataclass that pickles and compares by contents. Its record (`core.records`) is stored beside bytes that
    are kept, and `Decoder.restore` reads it again.
    """


@dataclass(frozen=True, slots=True)
class RunningTransaction:
    """A transaction that was streamed while it ran. After its end it has its time and its rolled-back parts.

    Before its end nobody knows its time, nor which of its parts will be rolled back. Until then each change
    carries the number of the part that made it in the place of the transaction's id.
    """

    number: int  # as the stream numbers it
    time: int | None = None
    commit_ts: int = 0  # microseconds since 1970
    aborted_parts: tuple[int, ...] = ()  # the parts that were rolled back, as the stream numbers them
    end: bytes = b""  # the message of its end, where transactions are not named by numbers


@dataclass(frozen=True, slots=True)
class TableFilter:
    """A table whose changes are wanted. Changes with a time below `since` are left out.

    `details` is the source's own record of the table (`contract.values.TableDef`), from a look that is later
    than the bytes, or that later looks are compared with. Without it the stream is not compared.

    A copy holds everything before `history_start`, and nobody asks for the history before it. There, rows of
    another layout or the end of a table of that name are no failure.
    """

    name: TableName
    schema: TableSchema
    since: int
    history_start: int = 0
    details: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The changes of one table under one layout, and their values that the lake's types can't hold."""

    table: int  # as the stream numbers it
    batch: pa.RecordBatch  # of `core.change_batch.change_schema`
    bad: pa.Table  # of `core.change_batch.BAD`


@dataclass(frozen=True, slots=True)
class TableFailure:
    """A reason why changes of one table can't be taken; the other tables of the bytes go on."""

    table: int
    failure: Definite


@dataclass(frozen=True, slots=True)
class SelectedBytes:
    """The bytes that some tables need, their context, and which of the tables are in them."""

    data: Bytes
    context: Context
    tables: frozenset[int]  # those that have something in the bytes, as the stream numbers them
    changes: int
    truncates: bool


class RunningDecoder(Protocol):
    """The part of a decoder for transactions that are streamed while they run."""

    def within(self, transaction: RunningTransaction) -> Context:
        """The context of a running transaction's own bytes, from its first one on."""

    def whole(self, data: Bytes, context: Context) -> Bytes:
        """Rewrite all bytes of a running transaction as those of one that came whole.

        The result can stand among whole transactions, so many small ones are decoded in one go.
        """

    def transaction_name(self, transaction: RunningTransaction) -> int | str:
        """The name that history gives to a transaction that was streamed while it ran and has ended."""


TEXT_ROWS = pa.schema(
    [
        pa.field("_time", pa.int64()),
        pa.field("_diff", pa.int64()),
        pa.field("row_data", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True, slots=True)
class TextRows:
    """Rows of one table that came or went, in their order: texts in the order of the stream's columns."""

    table: int  # as the stream numbers it
    rows: pa.Table  # of `TEXT_ROWS`, an old row before the new one
    transactions: pa.Array  # the name of each row's transaction


@dataclass(frozen=True, slots=True)
class TextDecoder:
    """The part of a decoder for readers without schemas: rows as the source prints them.

    `rows` decodes all rows of the numbered tables, one table and layout at a time, without truncations.
    `flaws` finds the tables whose old rows do not come whole under some layouts, each with its error.
    """

    rows: Callable[[Bytes, Context, Collection[int]], Iterator[TextRows]]
    flaws: Callable[[Iterable[bytes], Mapping[int, TableName]], dict[int, HeadraceError]]


class Decoder(Protocol):
    """The decoder of one source's bytes. Pure; it runs in the driver and in tasks."""

    @property
    def transaction_id(self) -> Callable[[int], int] | None:
        """Convert the stream's number of a transaction to its id; None if ids are not numbers."""
        return None

    @property
    def running(self) -> RunningDecoder | None:
        """The part for running transactions; None if the source streams only committed ones."""
        return None

    @property
    def as_text(self) -> TextDecoder | None:
        """The part for rows as texts; None if the source can't say them without a table's definition."""
        return None

    @property
    def statements(self) -> Callable[[Bytes, Context, Mapping[int, TableFilter]], Effects] | None:
        """Find the statements on these tables, in their order; no row is decoded.

        None if the source's stream does not bring the statements that alter tables, each at its place.
        """
        return None

    def between(self, layouts: Iterable[bytes]) -> Context:
        """The context of bytes that begin between two transactions, after these layouts were sent."""

    def restore(self, record: Json) -> Context:
        """Read the record of a context."""

    def split(self, data: Bytes, context: Context) -> tuple[int, Context]:
        """Tell how many of these bytes can be decoded alone, and the context of the bytes that follow.

        The bytes may end anywhere. Returns 0 if even the first message is incomplete.
        """

    def select(self, data: Bytes, context: Context, tables: Collection[int]) -> SelectedBytes | None:
        """Pick the bytes of these tables without decoding a row; None if there are none."""

    def truncations(self, data: Bytes, context: Context, tables: Mapping[int, int]) -> dict[int, Truncations]:
        """Find the truncations of these tables, from each table's time on; no row is decoded.

        Empty where a source's stream brings each row that goes.
        """
        return {}

    def decode(
        self, data: Bytes, context: Context, tables: Mapping[int, TableFilter]
    ) -> Iterator[TableChanges | TableFailure]:
        """Decode all changes of the wanted tables, one table and layout at a time.

        Raises if the bytes can't be read at all: that concerns the whole source. Bytes that end within a
        message are decoded up to it.
        """

    def print_values(self, values: pa.Array) -> pa.Array:
        """Print values of the lake as the source prints them; NULL stays NULL."""

    def cast(self, column: Column, text: str) -> str:
        """The inverse of `print_values`: a Spark SQL expression of a column's value from its text."""
