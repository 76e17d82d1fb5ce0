"""The error of a table that the server cannot show now, since another session alters it.

Nothing may be concluded from its absence. MariaDB leaves the table out of its answer, with a warning, since a
session that holds a lock (all of ours hold one, see `session.connection`) is not made to wait. MySQL lets a
question about its size wait, and then says -1.
"""

from __future__ import annotations

from headrace.core.errors import Transient
from headrace.core.names import TableName


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
