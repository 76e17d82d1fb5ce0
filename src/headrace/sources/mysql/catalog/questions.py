"""Questions to information_schema about tables that are known by name, in few statements.

Its own comparison of names is not to be trusted. MariaDB's ignores case, and answers with one of two tables
that differ in case alone: it is told to compare bytes, and its answers are held against the names.
Neither is an answer whole because it came: see `busy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from headrace.core.names import TableName
from headrace.sources.mysql.catalog.busy import busy
from headrace.sources.mysql.session.statements import MysqlConnection, Row, Value, query

_NAMES_A_STATEMENT = 500
_LEFT_OUT = 1684  # the warning that a table is none of the answer, since it is being altered


def ask(connection: MysqlConnection, statement: str, values: Sequence[str]) -> list[Row]:
    """Ask about tables; raises where the server leaves one out."""
    rows = query(connection, statement, values)
    for _, code, said in query(connection, "SHOW WARNINGS"):
        if code == _LEFT_OUT:
            raise busy(None, str(said))  # which names it
    return rows


def of_tables(
    connection: MysqlConnection, statement: str, names: Iterable[TableName]
) -> Iterator[tuple[TableName, Row]]:
    """Ask about each of the names; the rows of the answers, each with its table.

    The statement selects `table_schema, table_name` before all else, and has `{named}` as its condition.
    """
    wanted = frozenset(names)
    for database, group in groupby(sorted(wanted), key=lambda name: name.schema):
        tables = [name.name for name in group]
        for start in range(0, len(tables), _NAMES_A_STATEMENT):
            part = tables[start : start + _NAMES_A_STATEMENT]
            yield from _ask(connection, statement, database, part, wanted)


def _ask(
    connection: MysqlConnection,
    statement: str,
    database: str,
    names: Sequence[str],
    wanted: frozenset[TableName],
) -> Iterator[tuple[TableName, Row]]:
    compared = "table_name COLLATE utf8mb3_bin" if connection.release.is_mariadb else "table_name"
    named = f"table_schema = %s AND {compared} IN ({', '.join(['%s'] * len(names))})"
    for schema, table, *values in ask(connection, statement.format(named=named), [database, *names]):
        name = TableName(str(schema), str(table))
        if name in wanted:
            yield name, tuple(values)


def number(value: Value) -> int | None:
    """A value of information_schema that is a number, or none."""
    return None if value is None else int(str(value))


def text(value: Value) -> str | None:
    """A value of information_schema that is a text, or none."""
    return None if value is None else str(value)
