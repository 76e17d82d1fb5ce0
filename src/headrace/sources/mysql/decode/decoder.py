"""The decoder of MySQL's and MariaDB's streams: `contract.decoder.Decoder`, over `changes` and `slicing`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from headrace.core.records import from_record
from headrace.core.schema import Column
from headrace.core.transaction_id import TransactionId
from headrace.core.truncation import Truncations
from headrace.decode.kernel import Bytes
from headrace.sources.contract.decoder import (
    Context,
    RunningTransaction,
    SelectedBytes,
    TableChanges,
    TableFailure,
    TableFilter,
)
from headrace.sources.contract.values import Json, StatementEffect
from headrace.sources.mysql.decode import changes, slicing
from headrace.sources.mysql.decode.changes import MysqlSliceData
from headrace.sources.mysql.decode.context import MysqlOpenTransaction, MysqlStreamContext, own
from headrace.sources.mysql.flavour import Flavour
from headrace.sources.mysql.stream import frames
from headrace.sources.mysql.types import printing

_BEGIN_HEAD = frames.HEADER.size + 18


@dataclass(frozen=True, slots=True)
class MysqlDecoder:
    """Binlog events, as the spool keeps them, of one kind of server."""

    transaction_id: ClassVar[None] = None  # a GTID is no number

    flavour: Flavour

    @property
    def names(self) -> TransactionId:
        return TransactionId.GTID

    @property
    def running(self) -> MysqlDecoder:
        return self

    def between(self, layouts: Iterable[bytes]) -> MysqlStreamContext:
        # Each transaction writes the maps of its tables before their rows.
        return MysqlStreamContext()

    def within(self, transaction: RunningTransaction) -> MysqlStreamContext:
        name = self.transaction_name(transaction)
        return MysqlStreamContext(
            MysqlOpenTransaction(transaction.time or 0, name, transaction.commit_ts, {})
        )

    def restore(self, record: Json) -> MysqlStreamContext:
        return from_record(MysqlStreamContext, record)

    def whole(self, data: Bytes, context: Context) -> Bytes:
        return slicing.whole(data, own(context))

    def split(self, data: Bytes, context: Context) -> tuple[int, MysqlStreamContext]:
        return slicing.split(self._stretch(data, context))

    def select(self, data: Bytes, context: Context, tables: Collection[int]) -> SelectedBytes | None:
        return slicing.select(self._stretch(data, context), tables)

    def truncations(self, data: Bytes, context: Context, tables: Mapping[int, int]) -> dict[int, Truncations]:
        return changes.truncations(self._stretch(data, context), tables)

    def statements(
        self, data: Bytes, context: Context, tables: Mapping[int, TableFilter]
    ) -> dict[int, list[StatementEffect]]:
        return changes.statements(self._stretch(data, context), tables)

    def decode(
        self, data: Bytes, context: Context, tables: Mapping[int, TableFilter]
    ) -> Iterator[TableChanges | TableFailure]:
        return changes.decode(self._stretch(data, context), tables)

    def transaction_name(self, transaction: RunningTransaction) -> str:
        """The GTID in the BEGIN that is the message of its end; "" while it runs."""
        return transaction.end[_BEGIN_HEAD:].decode("ascii")

    def print_values(self, values_: pa.Array) -> pa.Array:
        return printing.print_values(values_)

    def cast(self, column: Column, text: str) -> str:
        return printing.cast(column, text)

    def _stretch(self, data: Bytes, context: Context) -> MysqlSliceData:
        return MysqlSliceData(data, own(context), self.flavour is Flavour.MARIADB)
