"""The contents of tables as `sources.contract` asks for them, by the modules beside this one. No logic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.sources.contract.copying import CopyOrder
from headrace.sources.contract.tables import TableDef
from headrace.sources.mysql.copy.measure import MysqlTableSizes, measure
from headrace.sources.mysql.copy.plan import (
    MysqlCopyPlan,
    MysqlCopyTarget,
    MysqlHeldSnapshot,
    plan,
    to_compare,
)
from headrace.sources.mysql.session.statements import MysqlConnection


@dataclass(frozen=True, slots=True)
class MysqlContents:
    """The contents of the tables of one mirror."""

    connection: MysqlConnection
    server: MysqlCopyTarget

    def measure(self, tables: Sequence[TableDef]) -> MysqlTableSizes:
        return measure(self.connection, tables)

    def plan_copy(self, order: CopyOrder) -> MysqlCopyPlan:
        return plan(self.connection, self.server, order)

    def snapshot(self, tables: Sequence[TableDef], readers: int, seconds: float) -> MysqlHeldSnapshot:
        return to_compare(self.server, readers, seconds)
