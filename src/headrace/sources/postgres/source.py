"""PostgreSQL as `sources.contract` wants it: what the modules beside this one do, under the contract's names.

No logic stands here. `SOURCE` is what `sources.registry` hands out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from headrace.core.schema import Column
from headrace.core.truncation import Truncations
from headrace.decode import printing
from headrace.decode.kernel import Bytes
from headrace.sources.contract import (
    Context,
    Json,
    RunningTransaction,
    Selected,
    Source,
    TableChanges,
    TableFailure,
    Wanted,
)
from headrace.sources.postgres import decoding, slicing, spark_casts
from headrace.sources.postgres.context import OpenTransaction, StreamContext, newest, own


@dataclass(frozen=True, slots=True)
class PostgresDecoder:
    """pgoutput. `reference` is a recent transaction, by its 64 bits; 0: ids stay as the wire has them."""

    reference: int = 0

    def between(self, layouts: Iterable[bytes]) -> StreamContext:
        return StreamContext(newest(layouts))

    def within(self, transaction: RunningTransaction) -> StreamContext:
        inside = OpenTransaction(
            time=transaction.time or 0,
            xid=transaction.number,
            commit_ts=transaction.commit_ts,
            ordinals={},
            streamed=True,
            aborted=transaction.aborted,
            by_subtransaction=transaction.time is None,
        )
        return StreamContext(inside=inside)

    def restored(self, record: Json) -> StreamContext:
        return StreamContext.from_record(record)

    def whole(self, data: Bytes, context: Context) -> Bytes:
        return slicing.whole(data, own(context))

    def split(self, data: Bytes, context: Context) -> tuple[int, Context]:
        return slicing.split(data, own(context))

    def select(self, data: Bytes, context: Context, tables: Collection[int]) -> Selected | None:
        return slicing.select(data, own(context), tables)

    def truncations(self, data: Bytes, context: Context, tables: Mapping[int, int]) -> dict[int, Truncations]:
        return decoding.truncations(data, own(context), tables, self.reference)

    def decode(
        self, data: Bytes, context: Context, tables: Mapping[int, Wanted]
    ) -> Iterator[TableChanges | TableFailure]:
        return decoding.decode(data, own(context), tables, self.reference)

    def transaction_id(self, number: int) -> int:
        return decoding.widened(number, self.reference)

    def printed(self, values: pa.Array) -> pa.Array:
        return printing.printed(values)

    def cast(self, column: Column, text: str) -> str:
        return spark_casts.value(column, text)


@dataclass(frozen=True, slots=True)
class PostgresSource:
    """PostgreSQL by logical replication."""

    kind: str = "postgres"
    schemes: tuple[str, ...] = ("postgresql", "postgres")

    def decoder(self, reference: int = 0) -> PostgresDecoder:
        return PostgresDecoder(reference)


SOURCE: Source = PostgresSource()
