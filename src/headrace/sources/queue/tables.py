"""The tables of one mirror as `sources.contract` wants them: what the modules here do. No logic.

Where a table of the queue is gone it is the queue that was lost, not one of the tables that are mirrored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.sources.contract.record import Json
from headrace.sources.contract.tables import ExaminedTables, SchemaCheck, StatementLog, TableDef
from headrace.sources.postgres.catalog.table_def import columns_left_out
from headrace.sources.postgres.session.statements import Session
from headrace.sources.queue import capture
from headrace.sources.queue.catalog.definitions import entry_of
from headrace.sources.queue.catalog.look_memory import LookMemory
from headrace.sources.queue.ddl import schema_check
from headrace.sources.queue.objects import QueueUpstream
from headrace.sources.queue.preflight import find_unmirrored
from headrace.sources.queue.upstream import telling_loss


@dataclass(frozen=True, slots=True)
class QueueTables:
    """The tables that are mirrored through this queue."""

    connection: Session
    upstream: QueueUpstream
    memory: LookMemory = field(default_factory=LookMemory, compare=False)

    @property
    def case_insensitive(self) -> bool:
        return False

    def examine(self, names: Sequence[TableName]) -> ExaminedTables:
        with telling_loss(self.connection, self.upstream):
            return capture.examine(self.connection, self.upstream, names)

    def capture(self, names: Sequence[TableName]) -> ExaminedTables:
        with telling_loss(self.connection, self.upstream):
            return capture.capture(self.connection, self.upstream, names)

    def define(self, tables: Iterable[TableDef]) -> ExaminedTables:
        with telling_loss(self.connection, self.upstream):
            return capture.define(self.connection, self.upstream, tables)

    def check(self, records: Mapping[str, TableDef], log: StatementLog | None = None) -> SchemaCheck:
        return schema_check.check(self.connection, self.upstream, records, self.memory)

    def find_unmirrored(
        self, patterns: Sequence[str], mirrored_tables: Collection[TableName]
    ) -> dict[TableName, HeadraceError | None]:
        return find_unmirrored(self.connection, self.upstream.objects, patterns, mirrored_tables)

    def captured_tables(self) -> frozenset[TableName]:
        with telling_loss(self.connection, self.upstream):
            return capture.captured_tables(self.connection, self.upstream)

    def release(self, names: Sequence[TableName]) -> None:
        with telling_loss(self.connection, self.upstream):
            capture.release(self.connection, self.upstream, names)

    def release_now(self, numbers: Collection[int]) -> None:
        with telling_loss(self.connection, self.upstream):
            capture.release_now(self.connection, self.upstream, numbers)

    def unwritable(self) -> frozenset[int]:
        return frozenset()

    def columns_left_out(self, details: Json) -> tuple[str, ...]:
        return columns_left_out(entry_of(details))
