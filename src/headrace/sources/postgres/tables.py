"""The tables of one mirror as `sources.contract` wants them: what the rooms beside this one do. No logic."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.sources.contract.record import Json
from headrace.sources.contract.tables import Examined, Heard, SchemaCheck, TableDef
from headrace.sources.postgres import capture, schema_check
from headrace.sources.postgres.catalog.entry_memory import EntryMemory
from headrace.sources.postgres.catalog.table_def import columns_left_out
from headrace.sources.postgres.catalog.table_def_record import from_record
from headrace.sources.postgres.objects import Upstream
from headrace.sources.postgres.preflight import PostgresWish, unmirrored
from headrace.sources.postgres.session.statements import Session


@dataclass(frozen=True, slots=True)
class PostgresTables:
    """The tables that are mirrored through these objects."""

    connection: Session
    upstream: Upstream
    memory: EntryMemory = field(default_factory=EntryMemory, compare=False)

    @property
    def folded(self) -> bool:
        return False

    def examine(self, names: Sequence[TableName]) -> Examined:
        return capture.examine(self.connection, self.upstream, names)

    def capture(self, names: Sequence[TableName]) -> Examined:
        return capture.capture(self.connection, self.upstream, names)

    def define(self, tables: Iterable[TableDef]) -> Examined:
        return capture.define(self.connection, self.upstream, tables)

    def check(self, known: Mapping[str, TableDef], heard: Heard | None = None) -> SchemaCheck:
        return schema_check.check(self.connection, self.upstream, known, self.memory)

    def unmirrored(
        self, patterns: Sequence[str], mirrored: Collection[TableName]
    ) -> dict[TableName, HeadraceError | None]:
        wish = PostgresWish.of_mirror(self.upstream, patterns)
        return unmirrored(self.connection, wish, mirrored)

    def captured(self) -> frozenset[TableName]:
        return capture.captured(self.connection, self.upstream)

    def release(self, names: Sequence[TableName]) -> None:
        capture.release(self.connection, self.upstream, names)

    def release_now(self, numbers: Collection[int]) -> None:
        capture.release_now(self.connection, self.upstream, numbers)

    def unwritable(self) -> frozenset[int]:
        return capture.unwritable(self.connection, self.upstream)

    def columns_left_out(self, details: Json) -> tuple[str, ...]:
        return columns_left_out(from_record(details))
