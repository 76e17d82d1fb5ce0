"""The queue's `Connection` and `Mirror` (`sources.contract.mirror`). Other modules do the work.

If a table of the queue is gone, the error is about the queue, not about a mirrored table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.sources.contract.copying import CopyOrder
from headrace.sources.contract.mirror import (
    CapturedTables,
    ClockReading,
    Health,
    StreamOrder,
    StreamOrigin,
    Successor,
)
from headrace.sources.contract.values import (
    ExaminedTables,
    Json,
    SchemaCheck,
    StatementLog,
    TableDef,
    Waiting,
)
from headrace.sources.postgres.catalog.table_def import columns_left_out
from headrace.sources.postgres.copy.measure import PostgresMeasure, measure
from headrace.sources.postgres.copy.plan import PostgresHeldSnapshot
from headrace.sources.postgres.session.identity import PostgresIdentity
from headrace.sources.postgres.session.statements import Session
from headrace.sources.queue import capture, health, origin, proof, trust
from headrace.sources.queue.catalog.definitions import LookMemory, entry_of
from headrace.sources.queue.copy.plan import QueueCopyPlan, QueueCopyTarget, plan, to_compare
from headrace.sources.queue.ddl import schema_check
from headrace.sources.queue.preflight import find_unmirrored
from headrace.sources.queue.proof import translate_missing_queue
from headrace.sources.queue.session.address import QueueAddress
from headrace.sources.queue.session.identity import prove
from headrace.sources.queue.upstream import Objects, QueueUpstream


@dataclass(frozen=True, slots=True)
class QueueConnection:
    """A pinned session, and the server that it reached."""

    session: Session
    address: QueueAddress
    actual_identity: PostgresIdentity
    trusted_queues: set[Objects] = field(default_factory=set)  # queues that were proved over this connection
    memory: LookMemory = field(default_factory=LookMemory, compare=False)  # of its tables

    @property
    def identity(self) -> Json:
        return to_record(self.actual_identity)

    @property
    def is_closed(self) -> bool:
        return self.session.closed

    def close(self) -> None:
        self.session.close()

    def mirror(self, upstream: Json, identity: Json | None = None) -> QueueMirror:
        """Bind to a queue; it is proved trustworthy, or refused, before anything of it is used."""
        if identity is not None:
            prove(self.actual_identity, identity)
        ours = QueueUpstream.of(upstream)
        if ours.objects not in self.trusted_queues:
            trust.prove(self.session, ours.objects)
            self.trusted_queues.add(ours.objects)
        return QueueMirror(self, ours)


@dataclass(frozen=True, slots=True)
class QueueMirror:
    """Tables whose triggers write to a queue, and our place in it."""

    connection: QueueConnection
    upstream: QueueUpstream

    @property
    def captures(self) -> QueueCaptures:
        return QueueCaptures(self.session, self.upstream)

    @property
    def session(self) -> Session:
        return self.connection.session

    # --- the stream

    def establish(self, order: StreamOrder, waiting: Waiting) -> StreamOrigin:
        identity = self.connection.actual_identity
        if order.received_until is not None:
            origin.leave(self.session, self.upstream)
        found = origin.establish(self.session, identity, self.upstream, order, waiting)
        again = QueueUpstream.of(found.upstream)
        with translate_missing_queue(self.session, again):
            tables = capture.define(self.session, again, order.tables)
        return replace(found, tables=tables)

    def confirm(self, identity: Json, received_until: Position) -> Successor | None:
        prove(self.connection.actual_identity, identity)
        proof.confirm(self.session, self.connection.actual_identity, self.upstream, received_until)
        return None

    # --- its tables

    def examine(self, names: Sequence[TableName]) -> ExaminedTables:
        with translate_missing_queue(self.session, self.upstream):
            return capture.examine(self.session, self.upstream, names)

    def check(self, records: Mapping[str, TableDef], log: StatementLog | None = None) -> SchemaCheck:
        return schema_check.check(self.session, self.upstream, records, self.connection.memory)

    def find_unmirrored(
        self, patterns: Sequence[str], mirrored_tables: Collection[TableName]
    ) -> dict[TableName, HeadraceError | None]:
        return find_unmirrored(self.session, self.upstream.objects, patterns, mirrored_tables)

    # --- how far it is

    def end(self) -> Position:
        return health.position(self.session, self.upstream)

    def clock(self) -> ClockReading | None:
        return health.clock(self.session, self.upstream)

    def is_quiet(self, start: Position, stop: Position) -> bool:
        return health.is_quiet(self.session, self.upstream, start, stop)

    def health(self, limit: int | None = None) -> Health:
        return health.health(self.session, self.upstream, limit)

    # --- what its tables hold

    def measure(self, tables: Sequence[TableDef]) -> PostgresMeasure:
        return measure(self.session, tables)

    def plan_copy(self, order: CopyOrder) -> QueueCopyPlan:
        return plan(self.session, self._copy_target, order)

    def snapshot(self, tables: Sequence[TableDef], readers: int, seconds: float) -> PostgresHeldSnapshot:
        return to_compare(self._copy_target, readers, seconds)

    @property
    def _copy_target(self) -> QueueCopyTarget:
        connection = self.connection
        return QueueCopyTarget(connection.address.server, connection.actual_identity, self.upstream)


@dataclass(frozen=True, slots=True)
class QueueCaptures:
    """The tables that have our triggers, and the newest tick."""

    unwritable: ClassVar[None] = None

    session: Session
    upstream: QueueUpstream

    def capture(self, names: Sequence[TableName]) -> CapturedTables:
        with translate_missing_queue(self.session, self.upstream):
            found = capture.capture(self.session, self.upstream, names)
        return CapturedTables(found, health.position(self.session, self.upstream))

    def captured_tables(self) -> frozenset[TableName]:
        with translate_missing_queue(self.session, self.upstream):
            return capture.captured_tables(self.session, self.upstream)

    def release(self, names: Sequence[TableName]) -> None:
        with translate_missing_queue(self.session, self.upstream):
            capture.release(self.session, self.upstream, names)

    def release_now(self, numbers: Collection[int]) -> None:
        with translate_missing_queue(self.session, self.upstream):
            capture.release_now(self.session, self.upstream, numbers)

    def columns_left_out(self, details: Json) -> tuple[str, ...]:
        return columns_left_out(entry_of(details))

    def advance_log(self) -> bool:
        health.advance(self.session, self.upstream)
        return True
