"""The tables of one mirror as `sources.contract` wants them: what the rooms beside this one do. No logic."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.sources.contract.record import Json
from headrace.sources.contract.tables import ExaminedTables, SchemaCheck, StatementLog, TableDef
from headrace.sources.mysql import capture
from headrace.sources.mysql.ddl import schema_check
from headrace.sources.mysql.session.statements import MysqlConnection
from headrace.sources.mysql.upstream import MysqlUpstream


@dataclass(frozen=True, slots=True)
class MysqlTables:
    """The tables that are mirrored through this binlog."""

    connection: MysqlConnection
    upstream: MysqlUpstream

    @property
    def case_insensitive(self) -> bool:
        return self.upstream.folded

    def examine(self, names: Sequence[TableName]) -> ExaminedTables:
        return capture.examine(self.connection, self.upstream, names)

    def capture(self, names: Sequence[TableName]) -> ExaminedTables:
        return capture.examine(self.connection, self.upstream, names)

    def define(self, tables: Iterable[TableDef]) -> ExaminedTables:
        return capture.define(self.connection, self.upstream, tables)

    def check(self, records: Mapping[str, TableDef], log: StatementLog | None = None) -> SchemaCheck:
        return schema_check.check(self.connection, self.upstream, records, log)

    def find_unmirrored(
        self, patterns: Sequence[str], mirrored_tables: Collection[TableName]
    ) -> dict[TableName, HeadraceError | None]:
        return capture.find_unmirrored(self.connection, self.upstream, patterns, mirrored_tables)

    def captured_tables(self) -> frozenset[TableName]:
        """The server lists none: there is nothing that a drop might have left."""
        return frozenset()

    def release(self, names: Sequence[TableName]) -> None:
        """Nothing at the server goes by which tables are captured."""

    def release_now(self, numbers: Collection[int]) -> None:
        """No-op: MySQL has no per-table capture."""

    def unwritable(self) -> frozenset[int]:
        """The server refuses nobody anything because of us."""
        return frozenset()

    def columns_left_out(self, details: Json) -> tuple[str, ...]:
        return ()
