"""The queue as `sources.contract` wants it: what the modules beside this one do, under the contract's names.

No logic stands here. `SOURCE` is what `sources.registry` hands out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.core.chunks import Bound
from headrace.core.position import Position
from headrace.core.schema import TableSchema
from headrace.sources.contract.declaration import Declaration
from headrace.sources.contract.findings import CheckReport, Wish
from headrace.sources.contract.record import Json
from headrace.sources.contract.session import Address as AnyAddress
from headrace.sources.contract.session import ClockReading, Health, StreamOrder, StreamOrigin, Successor
from headrace.sources.contract.source import Source
from headrace.sources.contract.waiting import Waiting
from headrace.sources.postgres.copy import key_range
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import PostgresIdentity, identify
from headrace.sources.postgres.session.statements import Session as Connection
from headrace.sources.queue import health, log_end, origin, removal, trust
from headrace.sources.queue import upstream as upstreams
from headrace.sources.queue.catalog.look_memory import LookMemory
from headrace.sources.queue.copy.plan import QueueContents, QueueCopyTarget
from headrace.sources.queue.copy.reader import QueueReader
from headrace.sources.queue.declaration import DECLARATION
from headrace.sources.queue.decode.decoder import QueueDecoder
from headrace.sources.queue.objects import Objects, QueueUpstream
from headrace.sources.queue.options import options_of, plan
from headrace.sources.queue.preflight import QueueWish, examine, script
from headrace.sources.queue.session.address import QueueAddress
from headrace.sources.queue.session.identity import prove
from headrace.sources.queue.tables import QueueTables


@dataclass(frozen=True, slots=True)
class QueueSession:
    """A pinned connection, and the server that it reached."""

    connection: Connection
    address: QueueAddress
    actual_identity: PostgresIdentity
    trusted_queues: set[Objects] = field(default_factory=set)  # queues that were proved over this connection
    memory: LookMemory = field(default_factory=LookMemory, compare=False)  # of its tables

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
        return origin.establish(self.connection, self.actual_identity, _queue(self, upstream), order, waiting)

    def confirm(self, record: Json, upstream: Json, received_until: Position) -> Successor | None:
        self.prove(record)
        upstreams.confirm(self.connection, self.actual_identity, _queue(self, upstream), received_until)
        return None

    def leave(self, upstream: Json) -> None:
        origin.leave(self.connection, _queue(self, upstream))

    def tables(self, upstream: Json) -> QueueTables:
        return QueueTables(self.connection, _queue(self, upstream), self.memory)

    # --- how far it is

    def end(self, upstream: Json) -> Position:
        return log_end.position(self.connection, _queue(self, upstream))

    def behind_all(self, upstream: Json) -> Position:
        return self.end(upstream)

    def clock(self, upstream: Json) -> ClockReading | None:
        return log_end.clock(self.connection, _queue(self, upstream))

    def advance_log(self, upstream: Json) -> bool:
        log_end.advance(self.connection, _queue(self, upstream))
        return True

    def is_quiet(self, upstream: Json, start: Position, stop: Position) -> bool:
        return log_end.is_quiet(self.connection, _queue(self, upstream), start, stop)

    def health(self, upstream: Json, limit: int | None = None) -> Health:
        return health.health(self.connection, _queue(self, upstream), limit)

    # --- what its tables hold

    def contents(self, upstream: Json) -> QueueContents:
        return QueueContents(
            self.connection,
            QueueCopyTarget(self.address.server, self.actual_identity, _queue(self, upstream)),
        )


def _queue(session: QueueSession, upstream: Json) -> QueueUpstream:
    """The queue of a record, which is trusted or refused before anything of it is touched."""
    ours = QueueUpstream.of(upstream)
    if ours.objects not in session.trusted_queues:
        trust.prove(session.connection, ours.objects)
        session.trusted_queues.add(ours.objects)
    return ours


@dataclass(frozen=True, slots=True)
class QueueSource:
    """PostgreSQL by triggers."""

    declaration: Declaration = DECLARATION

    def address(self, text: str) -> QueueAddress:
        return QueueAddress.parse(text)

    def connect(self, address: AnyAddress, *, role: str) -> QueueSession:
        said = QueueAddress.parse(address.text)
        connection = connect(said.server, role=role)
        try:
            return QueueSession(connection, said.with_environment(connection), identify(connection))
        except BaseException:
            connection.close()
            raise

    def check_options(self, options: Mapping[str, str]) -> None:
        plan("", "", options)

    def upstream(self, lake_id: str, name: str, options: Mapping[str, str]) -> Json:
        return plan(lake_id, name, options).as_record()

    def options(self, upstream: Json) -> dict[str, str]:
        return options_of(QueueUpstream.of(upstream))

    def objects(self, upstream: Json) -> dict[str, str]:
        return {}

    # --- which tables

    def owns_capture(self, upstream: Json) -> bool:
        return True

    def examine(self, address: AnyAddress, wish: Wish) -> CheckReport:
        return examine(QueueAddress.parse(address.text).server, QueueWish.of(wish))

    def script(self, report: CheckReport) -> list[str]:
        return script(report.findings)

    # --- its stream

    def drop(
        self, address: AnyAddress, upstream: Json, other: str | None = None, *, rehearse: bool = False
    ) -> list[str]:
        server, ours = QueueAddress.parse(address.text).server, QueueUpstream.of(upstream)
        if rehearse:
            return removal.removable(server, ours, other)
        return removal.drop(server, ours) if other is None else removal.drop_other(server, ours, other)

    def at(self, upstream: Json, time: int) -> None:
        """A tick is known by its nonce, which its number does not tell."""

    def decoder(self, reference: int = 0) -> QueueDecoder:
        return QueueDecoder()

    def reader(self, address: AnyAddress, identity: Json, ticket: Json, *, role: str) -> QueueReader:
        return QueueReader(
            QueueAddress.parse(address.text).server, PostgresIdentity(**identity), ticket, role
        )

    def key_bounds(self, schema: TableSchema, keys: pa.Table) -> list[Bound] | None:
        return key_range.bounds(schema, keys)


SOURCE: Source = QueueSource()
