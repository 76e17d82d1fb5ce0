"""The tables of one mirror as `sources.contract` wants them: what the rooms beside this one do. No logic."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.sources.contract.record import Json
from headrace.sources.contract.tables import ExaminedTables, SchemaCheck, StatementLog, TableDef
from headrace.sources.postgres import capture
from headrace.sources.postgres.catalog.entry_memory import EntryMemory
from headrace.sources.postgres.catalog.table_def import columns_left_out
from headrace.sources.postgres.catalog.table_def_record import from_record
from headrace.sources.postgres.ddl import schema_check
from headrace.sources.postgres.objects import PostgresUpstream
from headrace.sources.postgres.preflight import PostgresWish, find_unmirrored
from headrace.sources.postgres.session.statements import Session


@dataclass(frozen=True, slots=True)
class PostgresTables:
    """The tables that are mirrored through these objects."""

    connection: Session
    upstream: PostgresUpstream
    memory: EntryMemory = field(default_factory=EntryMemory, compare=False)

    @property
    def case_insensitive(self) -> bool:
        return False

    def examine(self, names: Sequence[TableName]) -> ExaminedTables:
        return capture.examine(self.connection, self.upstream, names)

    def capture(self, names: Sequence[TableName]) -> ExaminedTables:
        return capture.capture(self.connection, self.upstream, names)

    def define(self, tables: Iterable[TableDef]) -> ExaminedTables:
        return capture.define(self.connection, self.upstream, tables)

    def check(self, records: Mapping[str, TableDef], log: StatementLog | None = None) -> SchemaCheck:
        return schema_check.check(self.connection, self.upstream, records, self.memory)

    def find_unmirrored(
        self, patterns: Sequence[str], mirrored_tables: Collection[TableName]
    ) -> dict[TableName, HeadraceError | None]:
        wish = PostgresWish.of_mirror(self.upstream, patterns)
        return find_unmirrored(self.connection, wish, mirrored_tables)

    def captured_tables(self) -> frozenset[TableName]:
        return capture.captured_tables(self.connection, self.upstream)

    def release(self, names: Sequence[TableName]) -> None:
        capture.release(self.connection, self.upstream, names)

    def release_now(self, numbers: Collection[int]) -> None:
        capture.release_now(self.connection, self.upstream, numbers)

    def unwritable(self) -> frozenset[int]:
        return capture.unwritable(self.connection, self.upstream)

    def columns_left_out(self, details: Json) -> tuple[str, ...]:
        return columns_left_out(from_record(details))
