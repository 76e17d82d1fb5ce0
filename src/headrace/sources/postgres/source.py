"""PostgreSQL as `sources.contract` wants it: what the modules beside this one do, under the contract's names.

No logic stands here. `SOURCE` is what `sources.registry` hands out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from headrace.core.chunks import Bound
from headrace.core.position import Position
from headrace.core.schema import Column, TableSchema
from headrace.core.transaction_id import TransactionId
from headrace.core.truncation import Truncations
from headrace.decode import printing
from headrace.decode.kernel import Bytes
from headrace.sources.contract.declaration import Declaration
from headrace.sources.contract.decoder import (
    Context,
    RunningTransaction,
    Selected,
    TableChanges,
    TableFailure,
    Wanted,
)
from headrace.sources.contract.errors import no_readers
from headrace.sources.contract.findings import Report, Wish
from headrace.sources.contract.record import Json
from headrace.sources.contract.session import Address as AnyAddress
from headrace.sources.contract.session import Health, Origin, Reading, StreamOrder, Successor
from headrace.sources.contract.source import Source
from headrace.sources.contract.statements import Told
from headrace.sources.contract.waiting import Waiting
from headrace.sources.postgres import capture, decoding, slicing, spark_casts
from headrace.sources.postgres import upstream as upstreams
from headrace.sources.postgres.catalog.entry_memory import EntryMemory
from headrace.sources.postgres.context import OpenTransaction, StreamContext, newest, own
from headrace.sources.postgres.declaration import DECLARATION
from headrace.sources.postgres.objects import Upstream
from headrace.sources.postgres.preflight import PostgresWish, examine, script
from headrace.sources.postgres.session import clock, log_end
from headrace.sources.postgres.session.address import Address
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import Identity, identify, prove
from headrace.sources.postgres.session.statements import Session as Connection
from headrace.sources.postgres.slot import health, slot_state
from headrace.sources.postgres.snapshot import key_range
from headrace.sources.postgres.snapshot.contents import Contents
from headrace.sources.postgres.snapshot.follower import Follower
from headrace.sources.postgres.snapshot.plan import Server
from headrace.sources.postgres.snapshot.reader import Reader
from headrace.sources.postgres.stream import slot_peek, synchronous
from headrace.sources.postgres.tables import PostgresTables


@dataclass(frozen=True, slots=True)
class PostgresDecoder:
    """pgoutput. `reference` is a recent transaction, by its 64 bits; 0: ids stay as the wire has them."""

    tells_statements: ClassVar[bool] = False

    reference: int = 0

    @property
    def names(self) -> TransactionId:
        return TransactionId.XID

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

    def statements(
        self, data: Bytes, context: Context, tables: Mapping[int, Wanted]
    ) -> dict[int, list[Told]]:
        return {}

    def truncations(self, data: Bytes, context: Context, tables: Mapping[int, int]) -> dict[int, Truncations]:
        return decoding.truncations(data, own(context), tables, self.reference)

    def decode(
        self, data: Bytes, context: Context, tables: Mapping[int, Wanted]
    ) -> Iterator[TableChanges | TableFailure]:
        return decoding.decode(data, own(context), tables, self.reference)

    def transaction_id(self, number: int) -> int:
        return decoding.widened(number, self.reference)

    def transaction_name(self, transaction: RunningTransaction) -> int:
        return self.transaction_id(transaction.number)

    def printed(self, values: pa.Array) -> pa.Array:
        return printing.printed(values)

    def cast(self, column: Column, text: str) -> str:
        return spark_casts.value(column, text)


@dataclass(frozen=True, slots=True)
class PostgresSession:
    """A pinned connection, and the server that it reached."""

    connection: Connection
    address: Address
    found: Identity
    memory: EntryMemory = field(default_factory=EntryMemory, compare=False)  # of its tables' definitions

    @property
    def identity(self) -> Json:
        return self.found.as_record()

    @property
    def closed(self) -> bool:
        return self.connection.closed

    def close(self) -> None:
        self.connection.close()

    def prove(self, known: Json) -> None:
        prove(self.found, known)

    # --- what is made upstream

    def establish(self, upstream: Json, order: StreamOrder, waiting: Waiting) -> Origin:
        known = Upstream.of(upstream)
        anew = capture.partly(self.connection, known, order.names)
        return upstreams.establish(
            self.address, self.connection, self.found, known, order, waiting, anew=anew
        )

    def confirm(self, known: Json, upstream: Json, reached: Position) -> Successor | None:
        self.prove(known)  # a position means something on its own server alone
        upstreams.confirm(self.connection, Upstream.of(upstream))
        return None

    def leave(self, upstream: Json) -> None:
        upstreams.leave(self.address, self.connection, Upstream.of(upstream))

    def tables(self, upstream: Json) -> PostgresTables:
        return PostgresTables(self.connection, Upstream.of(upstream), self.memory)

    # --- how far it is

    def end(self, upstream: Json) -> Position:
        return Upstream.of(upstream).position(log_end.wal_end(self.connection))

    def behind_all(self, upstream: Json) -> Position:
        return Upstream.of(upstream).position(log_end.behind_all(self.connection))

    def clock(self, upstream: Json) -> Reading | None:
        return clock.read(self.connection, Upstream.of(upstream).log)

    def advance_log(self, upstream: Json) -> bool:
        if not self.found.standby:
            log_end.stir(self.connection)
        return not self.found.standby

    def is_quiet(self, upstream: Json, reached: Position, wanted: Position) -> bool:
        return slot_peek.quiet(self.connection, Upstream.of(upstream), reached, wanted)

    def health(self, upstream: Json, limit: int | None = None) -> Health:
        synchronous.refuse(self.connection)
        return health(slot_state(self.connection, Upstream.of(upstream).slot), limit)

    # --- what its tables hold

    def contents(self, upstream: Json) -> Contents:
        server = Server(self.address, self.found, Upstream.of(upstream))
        return Contents(self.connection, server)


@dataclass(frozen=True, slots=True)
class PostgresSource:
    """PostgreSQL by logical replication."""

    declaration: Declaration = DECLARATION

    def address(self, text: str) -> Address:
        return Address.parse(text)

    def connect(self, address: AnyAddress, *, role: str) -> PostgresSession:
        said = Address(address.text)
        connection = connect(said, role=role)
        try:
            return PostgresSession(connection, said.settled(connection), identify(connection))
        except BaseException:
            connection.close()
            raise

    def check_options(self, options: Mapping[str, str]) -> None:
        upstreams.check_options(options)

    def upstream(self, lake_id: str, name: str, options: Mapping[str, str]) -> Json:
        return upstreams.planned(lake_id, name, options).as_record()

    def options(self, upstream: Json) -> dict[str, str]:
        return upstreams.options(Upstream.of(upstream))

    def objects(self, upstream: Json) -> dict[str, str]:
        known = Upstream.of(upstream)
        return {"publication": known.publication, "slot": known.slot}

    # --- which tables

    def owns_capture(self, upstream: Json) -> bool:
        return Upstream.of(upstream).owns_publication

    def examine(self, address: AnyAddress, wish: Wish) -> Report:
        return examine(Address(address.text), PostgresWish.of(wish))

    def script(self, report: Report) -> list[str]:
        return script(report.findings)

    # --- its stream

    def drop(
        self, address: AnyAddress, upstream: Json, other: str | None = None, *, rehearse: bool = False
    ) -> list[str]:
        if other is not None:
            raise no_readers(self.declaration.title)
        act = upstreams.ours if rehearse else upstreams.drop
        return act(Address(address.text), Upstream.of(upstream))

    def at(self, upstream: Json, time: int) -> Position:
        return Upstream.of(upstream).log.at(time)

    def decoder(self, reference: int = 0) -> PostgresDecoder:
        return PostgresDecoder(reference)

    def reader(self, address: AnyAddress, identity: Json, ticket: Json, *, role: str) -> Reader:
        return Reader(Follower(Address(address.text), Identity(**identity), role=role), ticket)

    def key_bounds(self, schema: TableSchema, keys: pa.Table) -> list[Bound] | None:
        return key_range.bounds(schema, keys)


SOURCE: Source = PostgresSource()
