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
    SelectedBytes,
    TableChanges,
    TableFailure,
    TableFilter,
)
from headrace.sources.contract.errors import no_readers
from headrace.sources.contract.findings import CheckReport, Wish
from headrace.sources.contract.record import Json
from headrace.sources.contract.session import Address as AnyAddress
from headrace.sources.contract.session import ClockReading, Health, StreamOrder, StreamOrigin, Successor
from headrace.sources.contract.source import Source
from headrace.sources.contract.statements import StatementEffect
from headrace.sources.contract.waiting import Waiting
from headrace.sources.postgres import capture
from headrace.sources.postgres import upstream as upstreams
from headrace.sources.postgres.catalog.entry_memory import EntryMemory
from headrace.sources.postgres.copy import key_range
from headrace.sources.postgres.copy.follower import PostgresFollower
from headrace.sources.postgres.copy.plan import PostgresCopyTarget
from headrace.sources.postgres.copy.reader import PostgresReader
from headrace.sources.postgres.declaration import DECLARATION
from headrace.sources.postgres.decode import changes, slicing
from headrace.sources.postgres.decode.context import (
    PostgresOpenTransaction,
    PostgresStreamContext,
    newest,
    own,
)
from headrace.sources.postgres.objects import PostgresUpstream
from headrace.sources.postgres.preflight import PostgresWish, examine, script
from headrace.sources.postgres.session import clock, log_end
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import PostgresIdentity, identify, prove
from headrace.sources.postgres.session.statements import Session as Connection
from headrace.sources.postgres.slot import health, slot_state
from headrace.sources.postgres.snapshot.contents import PostgresContents
from headrace.sources.postgres.stream import slot_peek, synchronous
from headrace.sources.postgres.tables import PostgresTables
from headrace.sources.postgres.types import casts


@dataclass(frozen=True, slots=True)
class PostgresDecoder:
    """pgoutput. `reference` is a recent transaction, by its 64 bits; 0: ids stay as the wire has them."""

    tells_statements: ClassVar[bool] = False

    reference: int = 0

    @property
    def names(self) -> TransactionId:
        return TransactionId.XID

    def between(self, layouts: Iterable[bytes]) -> PostgresStreamContext:
        return PostgresStreamContext(newest(layouts))

    def within(self, transaction: RunningTransaction) -> PostgresStreamContext:
        inside = PostgresOpenTransaction(
            time=transaction.time or 0,
            xid=transaction.number,
            commit_ts=transaction.commit_ts,
            ordinals={},
            streamed=True,
            aborted=transaction.aborted_parts,
            by_subtransaction=transaction.time is None,
        )
        return PostgresStreamContext(inside=inside)

    def restore(self, record: Json) -> PostgresStreamContext:
        return PostgresStreamContext.from_record(record)

    def whole(self, data: Bytes, context: Context) -> Bytes:
        return slicing.whole(data, own(context))

    def split(self, data: Bytes, context: Context) -> tuple[int, Context]:
        return slicing.split(data, own(context))

    def select(self, data: Bytes, context: Context, tables: Collection[int]) -> SelectedBytes | None:
        return slicing.select(data, own(context), tables)

    def statements(
        self, data: Bytes, context: Context, tables: Mapping[int, TableFilter]
    ) -> dict[int, list[StatementEffect]]:
        return {}

    def truncations(self, data: Bytes, context: Context, tables: Mapping[int, int]) -> dict[int, Truncations]:
        return changes.truncations(data, own(context), tables, self.reference)

    def decode(
        self, data: Bytes, context: Context, tables: Mapping[int, TableFilter]
    ) -> Iterator[TableChanges | TableFailure]:
        return changes.decode(data, own(context), tables, self.reference)

    def transaction_id(self, number: int) -> int:
        return changes.widen_xid(number, self.reference)

    def transaction_name(self, transaction: RunningTransaction) -> int:
        return self.transaction_id(transaction.number)

    def print_values(self, values: pa.Array) -> pa.Array:
        return printing.print_values(values)

    def cast(self, column: Column, text: str) -> str:
        return casts.value(column, text)


@dataclass(frozen=True, slots=True)
class PostgresSession:
    """A pinned connection, and the server that it reached."""

    connection: Connection
    address: PostgresAddress
    actual_identity: PostgresIdentity
    memory: EntryMemory = field(default_factory=EntryMemory, compare=False)  # of its tables' definitions

    @property
    def identity(self) -> Json:
        return self.actual_identity.as_record()

    @property
    def is_closed(self) -> bool:
        return self.connection.closed

    def close(self) -> None:
        self.connection.close()

    def prove(self, record: Json) -> None:
        prove(self.actual_identity, record)

    # --- what is made upstream

    def establish(self, upstream: Json, order: StreamOrder, waiting: Waiting) -> StreamOrigin:
        known = PostgresUpstream.of(upstream)
        anew = capture.partly(self.connection, known, order.names)
        return upstreams.establish(
            self.address, self.connection, self.actual_identity, known, order, waiting, anew=anew
        )

    def confirm(self, record: Json, upstream: Json, received_until: Position) -> Successor | None:
        self.prove(record)  # a position means something on its own server alone
        upstreams.confirm(self.connection, PostgresUpstream.of(upstream))
        return None

    def leave(self, upstream: Json) -> None:
        upstreams.leave(self.address, self.connection, PostgresUpstream.of(upstream))

    def tables(self, upstream: Json) -> PostgresTables:
        return PostgresTables(self.connection, PostgresUpstream.of(upstream), self.memory)

    # --- how far it is

    def end(self, upstream: Json) -> Position:
        return PostgresUpstream.of(upstream).position(log_end.wal_end(self.connection))

    def behind_all(self, upstream: Json) -> Position:
        return PostgresUpstream.of(upstream).position(log_end.behind_all(self.connection))

    def clock(self, upstream: Json) -> ClockReading | None:
        return clock.read(self.connection, PostgresUpstream.of(upstream).log)

    def advance_log(self, upstream: Json) -> bool:
        if not self.actual_identity.standby:
            log_end.stir(self.connection)
        return not self.actual_identity.standby

    def is_quiet(self, upstream: Json, start: Position, stop: Position) -> bool:
        return slot_peek.quiet(self.connection, PostgresUpstream.of(upstream), start, stop)

    def health(self, upstream: Json, limit: int | None = None) -> Health:
        synchronous.refuse(self.connection)
        return health(slot_state(self.connection, PostgresUpstream.of(upstream).slot), limit)

    # --- what its tables hold

    def contents(self, upstream: Json) -> PostgresContents:
        server = PostgresCopyTarget(self.address, self.actual_identity, PostgresUpstream.of(upstream))
        return PostgresContents(self.connection, server)


@dataclass(frozen=True, slots=True)
class PostgresSource:
    """PostgreSQL by logical replication."""

    declaration: Declaration = DECLARATION

    def address(self, text: str) -> PostgresAddress:
        return PostgresAddress.parse(text)

    def connect(self, address: AnyAddress, *, role: str) -> PostgresSession:
        said = PostgresAddress(address.text)
        connection = connect(said, role=role)
        try:
            return PostgresSession(connection, said.with_environment(connection), identify(connection))
        except BaseException:
            connection.close()
            raise

    def check_options(self, options: Mapping[str, str]) -> None:
        upstreams.check_options(options)

    def upstream(self, lake_id: str, name: str, options: Mapping[str, str]) -> Json:
        return upstreams.plan(lake_id, name, options).as_record()

    def options(self, upstream: Json) -> dict[str, str]:
        return upstreams.options(PostgresUpstream.of(upstream))

    def objects(self, upstream: Json) -> dict[str, str]:
        known = PostgresUpstream.of(upstream)
        return {"publication": known.publication, "slot": known.slot}

    # --- which tables

    def owns_capture(self, upstream: Json) -> bool:
        return PostgresUpstream.of(upstream).owns_publication

    def examine(self, address: AnyAddress, wish: Wish) -> CheckReport:
        return examine(PostgresAddress(address.text), PostgresWish.of(wish))

    def script(self, report: CheckReport) -> list[str]:
        return script(report.findings)

    # --- its stream

    def drop(
        self, address: AnyAddress, upstream: Json, other: str | None = None, *, rehearse: bool = False
    ) -> list[str]:
        if other is not None:
            raise no_readers(self.declaration.title)
        act = upstreams.ours if rehearse else upstreams.drop
        return act(PostgresAddress(address.text), PostgresUpstream.of(upstream))

    def at(self, upstream: Json, time: int) -> Position:
        return PostgresUpstream.of(upstream).log.at(time)

    def decoder(self, reference: int = 0) -> PostgresDecoder:
        return PostgresDecoder(reference)

    def reader(self, address: AnyAddress, identity: Json, ticket: Json, *, role: str) -> PostgresReader:
        return PostgresReader(
            PostgresFollower(PostgresAddress(address.text), PostgresIdentity(**identity), role=role), ticket
        )

    def key_bounds(self, schema: TableSchema, keys: pa.Table) -> list[Bound] | None:
        return key_range.bounds(schema, keys)


SOURCE: Source = PostgresSource()
