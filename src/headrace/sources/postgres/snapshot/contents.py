"""The contents of tables as `sources.contract` asks for them, by the modules beside this one. No logic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.sources.contract.copying import CopyOrder
from headrace.sources.contract.tables import TableDef
from headrace.sources.postgres.copy.measure import PostgresMeasure, measure
from headrace.sources.postgres.copy.plan import (
    PostgresCopyPlan,
    PostgresCopyTarget,
    PostgresHeldSnapshot,
    plan,
    to_compare,
)
from headrace.sources.postgres.session.statements import Session


@dataclass(frozen=True, slots=True)
class PostgresContents:
    """The contents of the tables of one mirror."""

    connection: Session
    server: PostgresCopyTarget

    def measure(self, tables: Sequence[TableDef]) -> PostgresMeasure:
        return measure(self.connection, tables)

    def plan_copy(self, order: CopyOrder) -> PostgresCopyPlan:
        return plan(self.connection, self.server, order)

    def snapshot(self, tables: Sequence[TableDef], readers: int, seconds: float) -> PostgresHeldSnapshot:
        return to_compare(self.server, readers, seconds)
