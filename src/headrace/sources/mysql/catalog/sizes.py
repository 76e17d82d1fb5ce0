"""Sizes: how big tables are, to cut their copies and to show progress. Both are estimates of the server.

MySQL remembers such figures for a day, in a table of its own. It is asked for those of now,
and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.core.names import TableName
from headrace.sources.contract.values import TableSize
from headrace.sources.mysql.catalog.questions import number, of_tables
from headrace.sources.mysql.session.statements import MysqlConnection, query

_UNKNOWN = (1 << 32) - 1  # bytes, as MySQL says of a table that another session alters: no number of pages


def sizes(connection: MysqlConnection, names: Iterable[TableName]) -> dict[TableName, TableSize]:
    """The bytes of these tables' rows, without indexes, and about how many rows they are.

    Of a table that another session alters now the server says nothing: it is absent.
    """
    if not connection.release.is_mariadb:
        query(connection, "SET SESSION information_schema_stats_expiry = 0")
    rows = of_tables(
        connection,
        "SELECT table_schema, table_name, data_length, table_rows"
        " FROM information_schema.tables WHERE {named} AND table_type <> 'VIEW'",
        names,
    )
    known = {name: (number(length), number(count)) for name, (length, count) in rows}
    return {
        name: TableSize(length, count)
        for name, (length, count) in known.items()
        if length is not None and count is not None and length != _UNKNOWN
    }
