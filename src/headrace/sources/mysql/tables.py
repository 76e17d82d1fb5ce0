"""The tables of one mirror as `sources.contract` wants them: what the rooms beside this one do. No logic."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.sources.contract.record import Json
from headrace.sources.contract.tables import Examined, Heard, SchemaCheck, TableDef
from headrace.sources.mysql import capture, schema_check
from headrace.sources.mysql.session.statements import Session
from headrace.sources.mysql.upstream import Upstream


@dataclass(frozen=True, slots=True)
class MysqlTables:
    """The tables that are mirrored through this binlog."""

    connection: Session
    upstream: Upstream

    @property
    def folded(self) -> bool:
        return self.upstream.folded

    def examine(self, names: Sequence[TableName]) -> Examined:
        return capture.examine(self.connection, self.upstream, names)

    def capture(self, names: Sequence[TableName]) -> Examined:
        return capture.examine(self.connection, self.upstream, names)

    def define(self, tables: Iterable[TableDef]) -> Examined:
        return capture.define(self.connection, self.upstream, tables)

    def check(self, known: Mapping[str, TableDef], heard: Heard | None = None) -> SchemaCheck:
        return schema_check.check(self.connection, self.upstream, known, heard)

    def unmirrored(
        self, patterns: Sequence[str], mirrored: Collection[TableName]
    ) -> dict[TableName, HeadraceError | None]:
        return capture.unmirrored(self.connection, self.upstream, patterns, mirrored)

    def captured(self) -> frozenset[TableName]:
        """The server lists none: there is nothing that a drop might have left."""
        return frozenset()

    def release(self, names: Sequence[TableName]) -> None:
        """Nothing at the server goes by which tables are captured."""

    def release_now(self, numbers: Collection[int]) -> None:
        """Nor by these."""

    def unwritable(self) -> frozenset[int]:
        """The server refuses nobody anything because of us."""
        return frozenset()

    def columns_left_out(self, details: Json) -> tuple[str, ...]:
        return ()
