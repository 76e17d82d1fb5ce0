"""Denials: the tables that are hidden from us, in whole or in part, for want of a privilege.

`information_schema` shows what we have a privilege on and hides the rest, so that a table whose privilege was
revoked looks like one that was dropped, and a column like one that is gone. Who asks for the columns by name
is told which it is: privileges are looked at before anything else. What foreign keys do is shown to those
alone who have a privilege on the table, and not on columns of it.

Called before it is said of a table that it is another one.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.core.names import TableName
from headrace.sources.mysql.session.statements import MysqlConnection, query, quote
from headrace.sources.shared.refusals import (
    LockTimeout,
    PrivilegeMissing,
    StatementCancelled,
    StatementOverruled,
    TableGone,
)


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
