"""PostgreSQL's `Connection` and `Mirror` (`sources.contract.mirror`). Other modules do the work."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import from_record, to_record
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
from headrace.sources.postgres import capture, objects, slot
from headrace.sources.postgres.catalog.definitions import EntryMemory
from headrace.sources.postgres.catalog.table_def import TableEntry, columns_left_out
from headrace.sources.postgres.copy.measure import PostgresMeasure, measure
from headrace.sources.postgres.copy.plan import (
    PostgresCopyPlan,
    PostgresCopyTarget,
    PostgresHeldSnapshot,
    plan,
    to_compare,
)
from headrace.sources.postgres.ddl import schema_check
from headrace.sources.postgres.preflight import PostgresWish, find_unmirrored
from headrace.sources.postgres.session import clock, log_end
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.identity import PostgresIdentity, prove
from headrace.sources.postgres.session.statements import Session
from headrace.sources.postgres.slot import health, slot_state
from headrace.sources.postgres.stream import synchronous
from headrace.sources.postgres.successor import successor
from headrace.sources.postgres.upstream import PostgresUpstream


@dataclass(frozen=True, slots=True)
class PostgresConnection:
    """A pinned session, and the server that it reached."""

    session: Session
    address: PostgresAddress
    actual_identity: PostgresIdentity
    memory: EntryMemory = field(default_factory=EntryMemory, compare=False)  # of its tables' definitions

    @property
    def identity(self) -> Json:
        return to_record(self.actual_identity)

    @property
    def is_closed(self) -> bool:
        return self.session.closed

    def close(self) -> None:
        self.session.close()

    def mirror(self, upstream: Json, identity: Json | None = None) -> PostgresMirror:
        if identity is not None:
            prove(self.actual_identity, identity)
        return PostgresMirror(self, PostgresUpstream.of(upstream))


@dataclass(frozen=True, slots=True)
class PostgresMirror:
    """The tables of a publication, and the slot that brings their changes."""

    connection: PostgresConnection
    upstream: PostgresUpstream

    @property
    def captures(self) -> PostgresCaptures:
        return PostgresCaptures(self.session, self.upstream, standby=self.connection.actual_identity.standby)

    @property
    def session(self) -> Session:
        return self.connection.session

    # --- the stream

    def establish(self, order: StreamOrder, waiting: Waiting) -> StreamOrigin:
        address, identity = self.connection.address, self.connection.actual_identity
        if order.received_until is not None:
            objects.leave(address, self.session, self.upstream)
        anew = capture.partly(self.session, self.upstream, order.names)
        origin = objects.establish(address, self.session, identity, self.upstream, order, waiting, anew=anew)
        tables = capture.define(self.session, PostgresUpstream.of(origin.upstream), order.tables)
        return replace(origin, tables=tables)

    def confirm(self, identity: Json, received_until: Position) -> Successor | None:
        address, reached = self.connection.address, self.connection.actual_identity
        found = successor(address, self.session, reached, identity, self.upstream, received_until)
        objects.confirm(address, self.session, self.upstream)
        return found

    # --- its tables

    def examine(self, names: Sequence[TableName]) -> ExaminedTables:
        return capture.examine(self.session, self.upstream, names)

    def check(self, records: Mapping[str, TableDef], log: StatementLog | None = None) -> SchemaCheck:
        return schema_check.check(self.session, self.upstream, records, self.connection.memory)

    def find_unmirrored(
        self, patterns: Sequence[str], mirrored_tables: Collection[TableName]
    ) -> dict[TableName, HeadraceError | None]:
        wish = PostgresWish.of_mirror(self.upstream, patterns)
        return find_unmirrored(self.session, wish, mirrored_tables)

    # --- how far it is

    def end(self) -> Position:
        return self.upstream.position(log_end.wal_end(self.session))

    def clock(self) -> ClockReading | None:
        return clock.read(self.session, self.upstream.log)

    def is_quiet(self, start: Position, stop: Position) -> bool:
        return slot.quiet(self.session, self.upstream, start, stop)

    def health(self, limit: int | None = None) -> Health:
        synchronous.refuse(self.session)
        return health(slot_state(self.session, self.upstream.slot), limit)

    # --- what its tables hold

    def measure(self, tables: Sequence[TableDef]) -> PostgresMeasure:
        return measure(self.session, tables)

    def plan_copy(self, order: CopyOrder) -> PostgresCopyPlan:
        return plan(self.session, self._copy_target, order)

    def snapshot(self, tables: Sequence[TableDef], readers: int, seconds: float) -> PostgresHeldSnapshot:
        return to_compare(self._copy_target, readers, seconds)

    @property
    def _copy_target(self) -> PostgresCopyTarget:
        return PostgresCopyTarget(self.connection.address, self.connection.actual_identity, self.upstream)


@dataclass(frozen=True, slots=True)
class PostgresCaptures:
    """The tables of the publication, and the end of the log."""

    session: Session
    upstream: PostgresUpstream
    standby: bool = False

    def capture(self, names: Sequence[TableName]) -> CapturedTables:
        found = capture.capture(self.session, self.upstream, names)
        return CapturedTables(found, self.upstream.position(log_end.behind_all(self.session)))

    def captured_tables(self) -> frozenset[TableName]:
        return capture.captured_tables(self.session, self.upstream)

    def release(self, names: Sequence[TableName]) -> None:
        capture.release(self.session, self.upstream, names)

    def release_now(self, numbers: Collection[int]) -> None:
        capture.release_now(self.session, self.upstream, numbers)

    def unwritable(self) -> frozenset[int]:
        return capture.unwritable(self.session, self.upstream)

    def columns_left_out(self, details: Json) -> tuple[str, ...]:
        return columns_left_out(from_record(TableEntry, details))

    def advance_log(self) -> bool:
        if not self.standby:
            log_end.emit_wal(self.session)
        return not self.standby
