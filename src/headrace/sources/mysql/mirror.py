"""MySQL's and MariaDB's `Connection` and `Mirror` (`sources.contract.mirror`). Other rooms do the work.

A binlog has the changes of every table. So nothing captures or releases a table: the receiver picks tables by
the lake's own records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.sources.contract.copying import CopyOrder
from headrace.sources.contract.mirror import ClockReading, Health, StreamOrder, StreamOrigin, Successor
from headrace.sources.contract.values import (
    ExaminedTables,
    Json,
    SchemaCheck,
    StatementLog,
    TableDef,
    Waiting,
)
from headrace.sources.mysql import origin
from headrace.sources.mysql.copy.measure import MysqlTableSizes, measure
from headrace.sources.mysql.copy.plan import (
    MysqlCopyPlan,
    MysqlCopyTarget,
    MysqlHeldSnapshot,
    plan,
    to_compare,
)
from headrace.sources.mysql.ddl import schema_check
from headrace.sources.mysql.preflight import MysqlWish, binlog, examine_tables, hosting, list_unmirrored
from headrace.sources.mysql.session import clock, log_end
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.identity import MysqlIdentity, prove
from headrace.sources.mysql.session.statements import MysqlConnection as Session
from headrace.sources.mysql.successor import successor
from headrace.sources.mysql.upstream import MysqlUpstream


@dataclass(frozen=True, slots=True)
class MysqlServerConnection:
    """A pinned session, and the server that it reached."""

    session: Session
    address: MysqlAddress
    actual_identity: MysqlIdentity

    @property
    def identity(self) -> Json:
        return to_record(self.actual_identity)

    @property
    def is_closed(self) -> bool:
        return self.session.is_closed

    def close(self) -> None:
        self.session.close()

    def mirror(self, upstream: Json, identity: Json | None = None) -> MysqlMirror:
        if identity is not None:
            prove(self.actual_identity, identity)
        return MysqlMirror(self, MysqlUpstream.of(upstream))


@dataclass(frozen=True, slots=True)
class MysqlMirror:
    """Tables of a binlog, which holds the changes of every table of the server."""

    captures: ClassVar[None] = None

    connection: MysqlServerConnection
    upstream: MysqlUpstream

    @property
    def session(self) -> Session:
        return self.connection.session

    # --- the stream

    def establish(self, order: StreamOrder, waiting: Waiting) -> StreamOrigin:
        address, identity = self.connection.address, self.connection.actual_identity
        found = origin.establish(address, identity, self.upstream, order, waiting)
        # The stream tells of a table that was made again since, so the name is enough.
        begun = replace(self, upstream=MysqlUpstream.of(found.upstream))
        return replace(found, tables=begun.examine(order.names))

    def confirm(self, identity: Json, received_until: Position) -> Successor | None:
        found = successor(
            self.session,
            self.connection.address,
            self.connection.actual_identity,
            identity,
            self.upstream,
            received_until,
        )
        origin.confirm(self.session)
        return found

    # --- its tables

    def examine(self, names: Sequence[TableName]) -> ExaminedTables:
        return examine_tables(self.session, names, self._wish(()))

    def check(self, records: Mapping[str, TableDef], log: StatementLog | None = None) -> SchemaCheck:
        return schema_check.check(self.session, self.upstream, records, log)

    def find_unmirrored(
        self, patterns: Sequence[str], mirrored_tables: Collection[TableName]
    ) -> dict[TableName, HeadraceError | None]:
        return list_unmirrored(self.session, self._wish(patterns), mirrored_tables)

    def _wish(self, patterns: Sequence[str]) -> MysqlWish:
        return MysqlWish(patterns, accepts_cascades=self.upstream.accepts_cascades, rules=self.upstream.rules)

    # --- how far it is

    def end(self) -> Position:
        return log_end.position(self.session, self.upstream.log)

    def clock(self) -> ClockReading | None:
        return clock.read(self.session, self.upstream.log)

    def is_quiet(self, start: Position, stop: Position) -> bool:
        return log_end.is_quiet(start, stop)

    def health(self, limit: int | None = None) -> Health:
        return binlog.health(self.session, is_hosted=hosting.hides_retention(self.session))

    # --- what its tables hold

    def measure(self, tables: Sequence[TableDef]) -> MysqlTableSizes:
        return measure(self.session, tables)

    def plan_copy(self, order: CopyOrder) -> MysqlCopyPlan:
        return plan(self.session, self._copy_target, order)

    def snapshot(self, tables: Sequence[TableDef], readers: int, seconds: float) -> MysqlHeldSnapshot:
        return to_compare(self._copy_target, readers, seconds)

    @property
    def _copy_target(self) -> MysqlCopyTarget:
        return MysqlCopyTarget(self.connection.address, self.connection.actual_identity, self.upstream)
