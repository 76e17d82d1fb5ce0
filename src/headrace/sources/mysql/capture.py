"""Capture: the tables that may be followed. A binlog holds the changes of every table there is.

Nothing has to be done so that a table's changes are in it, and nothing can be undone: which ones the receiver
picks follows from the lake's own records. So to capture tables is to look at them once more, what we may do
with them included. Called through the contract (`tables`), by whoever begins, adds or renews tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.sources.contract.tables import Examined, TableDef
from headrace.sources.mysql.preflight import MysqlWish, examine_tables
from headrace.sources.mysql.preflight import unmirrored as preflight_unmirrored
from headrace.sources.mysql.session.statements import Session
from headrace.sources.mysql.upstream import Upstream


def examine(connection: Session, upstream: Upstream, names: Sequence[TableName]) -> Examined:
    """The tables as they are now."""
    return examine_tables(connection, names, _wish(upstream, ()))


def define(connection: Session, upstream: Upstream, tables: Iterable[TableDef]) -> Examined:
    """The tables of these names: one that was made again since is told of by the stream."""
    return examine(connection, upstream, [table.name for table in tables])


def unmirrored(
    connection: Session, upstream: Upstream, patterns: Sequence[str], mirrored: Collection[TableName]
) -> dict[TableName, HeadraceError | None]:
    """Find what patterns match and nobody mirrors, with what stands against it, or None."""
    return preflight_unmirrored(connection, _wish(upstream, patterns), mirrored)


def _wish(upstream: Upstream, patterns: Sequence[str]) -> MysqlWish:
    return MysqlWish(patterns, accepts_cascades=upstream.accepts_cascades)
