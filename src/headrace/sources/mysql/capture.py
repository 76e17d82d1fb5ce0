"""Capture: the tables that may be followed. A binlog holds the changes of every table of the server.

Nothing needs to be done so that a table's changes are in the log, and nothing can be undone. The receiver
picks tables by the lake's own records. So to capture tables means to look at them again, and to check our
rights on them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.sources.contract.values import ExaminedTables, TableDef
from headrace.sources.mysql.preflight import MysqlWish, examine_tables, list_unmirrored
from headrace.sources.mysql.session.statements import MysqlConnection
from headrace.sources.mysql.upstream import MysqlUpstream


def examine(
    connection: MysqlConnection, upstream: MysqlUpstream, names: Sequence[TableName]
) -> ExaminedTables:
    """The tables as they are now."""
    return examine_tables(connection, names, _wish(upstream, ()))


def define(
    connection: MysqlConnection, upstream: MysqlUpstream, tables: Iterable[TableDef]
) -> ExaminedTables:
    """The tables of these names; if one was made again since, the stream reports it."""
    return examine(connection, upstream, [table.name for table in tables])


def find_unmirrored(
    connection: MysqlConnection,
    upstream: MysqlUpstream,
    patterns: Sequence[str],
    mirrored_tables: Collection[TableName],
) -> dict[TableName, HeadraceError | None]:
    """Find the tables that the patterns match and are not mirrored, each with its error or None."""
    return list_unmirrored(connection, _wish(upstream, patterns), mirrored_tables)


def _wish(upstream: MysqlUpstream, patterns: Sequence[str]) -> MysqlWish:
    return MysqlWish(patterns, accepts_cascades=upstream.accepts_cascades)
