"""The decoder of a source: the bytes of its stream, understood.

    Decoder      from the bytes of its stream to changes, and from values to the texts that it prints
    Context      what bytes must be told to be decoded: the source's own, carried and never read

The bytes of a stream are the source's own. Whoever stands above cuts them, keeps them, sends them from one
process to another, and hands them back with the context that belongs to them:

    bytes of whole transactions    between(layouts)      the layouts that the session had sent before them
    a transaction's own bytes      within(transaction)   one that came while it ran, from its first byte on
    what stands behind a piece     split(data, context)  of a transaction that is too large for one task

The law of every decoder: bytes may be split wherever `split` says, and decoded piece by piece, in any
process and order; the changes are the same, with the same times and ordinals.

Decoders are pure: no connection, no clock, no file. They and contexts are plain values that pickle small.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.errors import Definite
from headrace.core.names import TableName
from headrace.core.schema import Column, TableSchema
from headrace.core.transaction_id import TransactionId
from headrace.core.truncation import Truncations
from headrace.sources.contract.values import Json, StatementEffect

Bytes = npt.NDArray[np.uint8]
Effects = dict[int, list[StatementEffect]]  # by the table's number


class Context(Protocol):
    """All that bytes of a stream need to be decoded.

    A dataclass that pickles and compares by contents. Bytes that are kept have its record beside them
    (`core.records`), which the decoder reads again.
    """


@dataclass(frozen=True, slots=True)
class RunningTransaction:
    """A transaction that came while it ran; once it has ended, with its time and what was rolled back of it.

    Before its end nobody knows its time, and which of its parts will be rolled back: changes then carry the
    number of the part that made them in the place of the transaction's id.
    """

    number: int  # as the stream numbers it
    time: int | None = None
    commit_ts: int = 0  # microseconds since 1970
    aborted_parts: tuple[int, ...] = ()  # the parts that were rolled back, as the stream numbers them
    end: bytes = b""  # the message of its end, where transactions are not named by numbers


@dataclass(frozen=True, slots=True)
class TableFilter:
    """A table whose changes are wanted: those with a time below `since` are left out.

    `details` are what the source itself says of the table (`contract.values.TableDef`), at a look that is
    later than the bytes, or that later looks are compared with. Without them the stream is not compared.

    Below `history_start` a copy holds all that happened, and nobody asks what that was: rows of another
    layout, or the end of a table of that name, are no failure there.
    """

    name: TableName
    schema: TableSchema
    since: int
    history_start: int = 0
    details: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableChanges:
    """Changes of one table under one layout, and the values among them that the lake's types can't hold."""

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
    """The part of bytes that some tables need: fewer bytes, their context, and what is in them."""

    data: Bytes
    context: Context
    tables: frozenset[int]  # of which something is in them, as the stream numbers them
    changes: int
    truncates: bool


class RunningDecoder(Protocol):
    """The transactions of a stream that come while they run."""

    def within(self, transaction: RunningTransaction) -> Context:
        """The context of a running transaction's own bytes, from its first one on."""

    def whole(self, data: Bytes, context: Context) -> Bytes:
        """All bytes of a transaction that came while it ran, as those of one that came whole.

        They stand between transactions then, so that very many small ones are decoded in one go.
        """

    def transaction_name(self, transaction: RunningTransaction) -> int | str:
        """The name by which history calls a transaction that came while it ran, now that it has ended."""


class Decoder(Protocol):
    """The bytes of one source, understood. Pure; used in the driver and in tasks alike."""

    @property
    def names(self) -> TransactionId:
        """The way in which its transactions are named."""

    @property
    def transaction_id(self) -> Callable[[int], int] | None:
        """The id of the transaction that the stream numbers so; None where ids are no numbers."""

    @property
    def running(self) -> RunningDecoder | None:
        """The part for transactions that come while they run; None where all have committed before."""

    @property
    def statements(self) -> Callable[[Bytes, Context, Mapping[int, TableFilter]], Effects] | None:
        """Find the statements on the tables that matter, in their order; no row is decoded.

        None of a source whose stream does not have those that alter tables, each at its place.
        """

    def between(self, layouts: Iterable[bytes]) -> Context:
        """The context of bytes that begin between two transactions, behind these layouts of tables."""

    def restore(self, record: Json) -> Context:
        """Read the record of a context."""

    def split(self, data: Bytes, context: Context) -> tuple[int, Context]:
        """Tell how many of these bytes stand for themselves, and the context of what follows them.

        The bytes may end anywhere; 0 where not even the first message is there to its end.
        """

    def select(self, data: Bytes, context: Context, tables: Collection[int]) -> SelectedBytes | None:
        """Pick the bytes of these tables, none of their rows decoded; None where there are none."""

    def truncations(self, data: Bytes, context: Context, tables: Mapping[int, int]) -> dict[int, Truncations]:
        """Find where the tables (and from which time on it matters) are emptied; no row is decoded."""

    def decode(
        self, data: Bytes, context: Context, tables: Mapping[int, TableFilter]
    ) -> Iterator[TableChanges | TableFailure]:
        """All changes of the wanted tables, a table and layout at a time.

        What can't be read at all is raised: it concerns the whole source. Bytes that end within a message
        are decoded up to it.
        """

    def print_values(self, values: pa.Array) -> pa.Array:
        """Values of the lake as the source prints them; NULL stays NULL."""

    def cast(self, column: Column, text: str) -> str:
        """The inverse as an expression of Spark's SQL: a column's value from the text that is printed."""
