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
from headrace.sources.contract.findings import Report, Wish
from headrace.sources.contract.record import Json
from headrace.sources.contract.session import Address as AnyAddress
from headrace.sources.contract.session import Health, Origin, Reading, StreamOrder, Successor
from headrace.sources.contract.source import Source
from headrace.sources.contract.waiting import Waiting
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import Identity, identify
from headrace.sources.postgres.session.statements import Session as Connection
from headrace.sources.postgres.snapshot import key_range
from headrace.sources.queue import health, log_end, origin, removal, trust
from headrace.sources.queue import upstream as upstreams
from headrace.sources.queue.address import QueueAddress
from headrace.sources.queue.declaration import DECLARATION
from headrace.sources.queue.decoder import QueueDecoder
from headrace.sources.queue.identity import prove
from headrace.sources.queue.look_memory import LookMemory
from headrace.sources.queue.objects import Objects, Upstream
from headrace.sources.queue.options import planned, said
from headrace.sources.queue.preflight import QueueWish, examine, script
from headrace.sources.queue.snapshot.plan import Contents, Server
from headrace.sources.queue.snapshot.reader import QueueReader
from headrace.sources.queue.tables import QueueTables


@dataclass(frozen=True, slots=True)
class QueueSession:
    """A pinned connection, and the server that it reached."""

    connection: Connection
    address: QueueAddress
    found: Identity
    trusted: set[Objects] = field(default_factory=set)  # queues that were proved over this connection
    memory: LookMemory = field(default_factory=LookMemory, compare=False)  # of its tables

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
        return origin.establish(self.connection, self.found, _queue(self, upstream), order, waiting)

    def confirm(self, known: Json, upstream: Json, reached: Position) -> Successor | None:
        self.prove(known)
        upstreams.confirm(self.connection, self.found, _queue(self, upstream), reached)
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

    def clock(self, upstream: Json) -> Reading | None:
        return log_end.clock(self.connection, _queue(self, upstream))

    def advance_log(self, upstream: Json) -> bool:
        log_end.advance(self.connection, _queue(self, upstream))
        return True

    def is_quiet(self, upstream: Json, reached: Position, wanted: Position) -> bool:
        return log_end.is_quiet(self.connection, _queue(self, upstream), reached, wanted)

    def health(self, upstream: Json, limit: int | None = None) -> Health:
        return health.health(self.connection, _queue(self, upstream), limit)

    # --- what its tables hold

    def contents(self, upstream: Json) -> Contents:
        return Contents(self.connection, Server(self.address.server, self.found, _queue(self, upstream)))


def _queue(session: QueueSession, upstream: Json) -> Upstream:
    """The queue of a record, which is trusted or refused before anything of it is touched."""
    ours = Upstream.of(upstream)
    if ours.objects not in session.trusted:
        trust.prove(session.connection, ours.objects)
        session.trusted.add(ours.objects)
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
            return QueueSession(connection, said.settled(connection), identify(connection))
        except BaseException:
            connection.close()
            raise

    def check_options(self, options: Mapping[str, str]) -> None:
        planned("", "", options)

    def upstream(self, lake_id: str, name: str, options: Mapping[str, str]) -> Json:
        return planned(lake_id, name, options).as_record()

    def options(self, upstream: Json) -> dict[str, str]:
        return said(Upstream.of(upstream))

    def objects(self, upstream: Json) -> dict[str, str]:
        return {}

    # --- which tables

    def owns_capture(self, upstream: Json) -> bool:
        return True

    def examine(self, address: AnyAddress, wish: Wish) -> Report:
        return examine(QueueAddress.parse(address.text).server, QueueWish.of(wish))

    def script(self, report: Report) -> list[str]:
        return script(report.findings)

    # --- its stream

    def drop(
        self, address: AnyAddress, upstream: Json, other: str | None = None, *, rehearse: bool = False
    ) -> list[str]:
        server, ours = QueueAddress.parse(address.text).server, Upstream.of(upstream)
        if rehearse:
            return removal.removable(server, ours, other)
        return removal.drop(server, ours) if other is None else removal.drop_other(server, ours, other)

    def at(self, upstream: Json, time: int) -> None:
        """A tick is known by its nonce, which its number does not tell."""

    def decoder(self, reference: int = 0) -> QueueDecoder:
        return QueueDecoder()

    def reader(self, address: AnyAddress, identity: Json, ticket: Json, *, role: str) -> QueueReader:
        return QueueReader(QueueAddress.parse(address.text).server, Identity(**identity), ticket, role)

    def key_bounds(self, schema: TableSchema, keys: pa.Table) -> list[Bound] | None:
        return key_range.bounds(schema, keys)


SOURCE: Source = QueueSource()
