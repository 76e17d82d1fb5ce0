"""Questions to information_schema about tables that are known by name, in few statements.

Its own comparison of names is not to be trusted. MariaDB's ignores case, and answers with one of two tables
that differ in case alone: it is told to compare bytes, and its answers are held against the names.
Neither is an answer whole because it came: see `busy`.

The error of a table that the server cannot show now, since another session alters it.

Nothing may be concluded from its absence. MariaDB leaves the table out of its answer, with a warning, since a
session that holds a lock (all of ours hold one, see `session.connection`) is not made to wait. MySQL lets a
question about its size wait, and then says -1.

Denials: the tables that are hidden from us, in whole or in part, for want of a privilege.

`information_schema` shows what we have a privilege on and hides the rest, so that a table whose privilege was
revoked looks like one that was dropped, and a column like one that is gone. Who asks for the columns by name
is told which it is: privileges are looked at before anything else. What foreign keys do is shown to those
alone who have a privilege on the table, and not on columns of it.

Called before it is said of a table that it is another one.
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
    """Another session is altering the table, or it is damaged; `said` is the server's word on it."""
    return MysqlTableBusy(
        "MY_TABLE_BUSY",
        f"the server cannot show table {name} now" if name else "the server cannot show a table now",
        detail=message,
        hint="another session is altering it: wait, or end that (SHOW PROCESSLIST); "
        "if it is damaged, leave it out: '!schema.table'",
    )


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


def denial(connection: MysqlConnection, table: TableName, columns: Iterable[str]) -> PrivilegeMissing | None:
    """The reason why we may not read these columns of a table; None of one that is gone, or is held."""
    target = f"{quote(table.schema)}.{quote(table.name)}"
    try:
        query(connection, f"SELECT {', '.join(map(quote, columns))} FROM {target} LIMIT 0")
        query(connection, f"SHOW CREATE TABLE {target}")
    except PrivilegeMissing as error:
        return PrivilegeMissing(
            error.code,
            f"{table} cannot be looked at: we may not read all of it any more",
            detail=error.detail,
            hint=f"GRANT SELECT ON {target} TO our_user; nothing else to do: it is gone on with then",
        )
    except (TableGone, LockTimeout, StatementCancelled, StatementOverruled):
        return None
    return None
