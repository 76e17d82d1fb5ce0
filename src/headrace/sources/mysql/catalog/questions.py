"""Queries on information_schema about tables that are known by name, in few statements.

The server's comparison of names can't be trusted. MariaDB's ignores case, and returns one of two tables that
differ only in case. So it is told to compare bytes, and its answers are compared with the names.

`busy` is the error of a table that the server cannot show now because another session is altering it. Absence
proves nothing: MariaDB leaves such a table out of its answer, with a warning, since it does not let a session
wait that holds a lock (all of ours hold one, see `session.connection`). MySQL lets a query about the table's
size wait, and then returns -1.

`denial` finds tables that are hidden from us, wholly or in part, because we lack a privilege.
`information_schema` shows only objects on which we have a privilege. So if a privilege was revoked, a table
looks dropped, and a column looks gone. A SELECT of the columns by name tells the two apart: the server checks
privileges before anything else. The rules of foreign keys need a privilege on the table, not only on its
columns. The schema check calls it before it reports that a table changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from headrace.core.errors import Transient
from headrace.core.names import TableName
from headrace.sources.mysql.session.statements import MysqlConnection, Row, Value, query, quote
from headrace.sources.shared.refusals import (
    LockTimeout,
    PrivilegeMissing,
    StatementCancelled,
    StatementOverruled,
    TableGone,
)


class MysqlTableBusy(Transient):
    """A table cannot be looked at now."""

    codes = ("MY_TABLE_BUSY",)


def busy(name: TableName | None, message: str | None) -> MysqlTableBusy:
    """The error of a table that another session is altering, or that is damaged."""
    return MysqlTableBusy(
        "MY_TABLE_BUSY",
        f"the server cannot show table {name} now" if name else "the server cannot show a table now",
        detail=message,
        hint="another session is altering it: wait, or end that (SHOW PROCESSLIST); "
        "if it is damaged, leave it out: '!schema.table'",
    )


_NAMES_A_STATEMENT = 500
_LEFT_OUT = 1684  # the warning that the answer lacks a table, since it is being altered


def ask(connection: MysqlConnection, statement: str, values: Sequence[str]) -> list[Row]:
    """Ask about tables; raises if the server leaves one out."""
    rows = query(connection, statement, values)
    for _, code, said in query(connection, "SHOW WARNINGS"):
        if code == _LEFT_OUT:
            raise busy(None, str(said))  # the message names the table
    return rows


def of_tables(
    connection: MysqlConnection, statement: str, names: Iterable[TableName]
) -> Iterator[tuple[TableName, Row]]:
    """Ask about all these tables; yield the rows of the answers, each with its table.

    The statement selects `table_schema, table_name` first, and has `{named}` as its condition.
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
    """A number of information_schema; None for NULL."""
    return None if value is None else int(str(value))


def text(value: Value) -> str | None:
    """A text of information_schema; None for NULL."""
    return None if value is None else str(value)


def denial(connection: MysqlConnection, table: TableName, columns: Iterable[str]) -> PrivilegeMissing | None:
    """The error if we may not read these columns of a table; None if we may, or if it is gone or locked."""
    target = f"{quote(table.schema)}.{quote(table.name)}"
    try:
        query(connection, f"SELECT {', '.join(map(quote, columns))} FROM {target} LIMIT 0")
        query(connection, f"SHOW CREATE TABLE {target}")
    except PrivilegeMissing as error:
        return PrivilegeMissing(
            error.code,
            f"{table} cannot be looked at: we may not read all of it any more",
            detail=error.detail,
            hint=f"GRANT SELECT ON {target} TO our_user; nothing else to do: the mirror goes on by itself",
        )
    except (TableGone, LockTimeout, StatementCancelled, StatementOverruled):
        return None
    return None
