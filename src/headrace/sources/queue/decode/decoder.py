"""The decoder of a queue's stream: `contract.decoder.Decoder`, over `changes` and `slicing`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from headrace.core.records import from_record
from headrace.core.schema import Column
from headrace.core.transaction_id import TransactionId
from headrace.core.truncation import Truncations
from headrace.decode import printing
from headrace.decode.kernel import Bytes
from headrace.sources.contract.decoder import (
    Context,
    SelectedBytes,
    TableChanges,
    TableFailure,
    TableFilter,
)
from headrace.sources.contract.values import Json
from headrace.sources.postgres.types import casts
from headrace.sources.queue.decode import changes, slicing
from headrace.sources.queue.decode.changes import QueueSliceData
from headrace.sources.queue.decode.context import QueueStreamContext, own


@dataclass(frozen=True, slots=True)
class QueueDecoder:
    """Ticks, as the spool keeps them. None is ever sent before all of it has committed."""

    statements: ClassVar[None] = None
    transaction_id: ClassVar[None] = None  # a tick is of many
    running: ClassVar[None] = None

    @property
    def names(self) -> TransactionId:
        return TransactionId.XID

    def between(self, layouts: Iterable[bytes]) -> QueueStreamContext:
        # Which layout a row has is told by the table's record, and by the number of its fields.
        return QueueStreamContext()

    def restore(self, record: Json) -> QueueStreamContext:
        return from_record(QueueStreamContext, record)

    def split(self, data: Bytes, context: Context) -> tuple[int, QueueStreamContext]:
        return slicing.split(QueueSliceData(data, own(context)))

    def select(self, data: Bytes, context: Context, tables: Collection[int]) -> SelectedBytes | None:
        return slicing.select(QueueSliceData(data, own(context)), tables)

    def truncations(self, data: Bytes, context: Context, tables: Mapping[int, int]) -> dict[int, Truncations]:
        return changes.truncations(QueueSliceData(data, own(context)), tables)

    def decode(
        self, data: Bytes, context: Context, tables: Mapping[int, TableFilter]
    ) -> Iterator[TableChanges | TableFailure]:
        return changes.decode(QueueSliceData(data, own(context)), tables)

    def print_values(self, values: pa.Array) -> pa.Array:
        return printing.print_values(values)

    def cast(self, column: Column, text: str) -> str:
        return casts.value(column, text)
