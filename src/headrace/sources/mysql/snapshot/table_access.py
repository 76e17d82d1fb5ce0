"""Reading one table: the proof that it is the one that is meant, what is said when it can't be read.

    with of_table(name):                   what goes wrong is said of the table
        with held(session, ...):           nobody alters, swaps or empties it in the block
            SELECT ...

A view is of rows, not of tables: who asks for a name gets what bears it by now, with rows that may be older
than the swap. So the table is held by a metadata lock, as every SELECT in a transaction holds its own, and
then its mark and its columns are compared with those that were planned. A savepoint lets the lock go at the
end of a range: DDL waits for one range at most.

The mark is the moment at which the server says that the table was made, or altered by being made anew.

    TableBusy   held, altered, swapped, or its reader has lost the moment    it is tried again, alone
    Definite    no privilege, a damaged row                                  it stops, alone

What is said of the connection or the server stays what it is. Called by `reader` and `measure`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from headrace.core.errors import Definite, HeadraceError
from headrace.core.names import TableName
from headrace.core.schema import Column
from headrace.sources.contract.errors import TableBusy
from headrace.sources.mysql.catalog import busy as catalog
from headrace.sources.mysql.catalog.definitions import look
from headrace.sources.mysql.catalog.questions import of_tables
from headrace.sources.mysql.catalog.types import column_of
from headrace.sources.mysql.session.refusals import (
    Cancelled,
    LockTimeout,
    Overruled,
    PrivilegeMissing,
    StatementRefused,
    TableGone,
)
from headrace.sources.mysql.session.statements import Session, execute, query, quoted
from headrace.sources.mysql.snapshot.follower import LeftOut

_MARKS = """
SELECT table_schema, table_name, create_time
  FROM information_schema.tables WHERE {named} AND table_type <> 'VIEW'
"""
_MOMENTARY = (LockTimeout, Cancelled, Overruled, TableGone, LeftOut, catalog.TableBusy)


def spelled(name: TableName) -> str:
    """A table as a statement spells it."""
    return f"{quoted(name.schema)}.{quoted(name.name)}"


def marks(connection: Session, names: Iterable[TableName]) -> dict[TableName, str]:
    """The marks of those of the tables that are there."""
    return {name: str(made) for name, (made,) in of_tables(connection, _MARKS, names)}


@contextmanager
def of_table(name: TableName) -> Iterator[None]:
    """Say of the table what goes wrong with the statements of the block."""
    try:
        yield
    except _MOMENTARY as error:
        raise busy(name, error) from None
    except StatementRefused as error:
        raise Definite(
            "MY_TABLE_UNREADABLE",
            f"{name} cannot be read",
            detail=error.detail,
            hint=f"{_remedy(name, error)}; then headrace tables resync {name}",
        ) from None


def _remedy(name: TableName, error: StatementRefused) -> str:
    if isinstance(error, PrivilegeMissing):
        return f"GRANT SELECT ON {spelled(name)} TO our_user"
    return "mend what the detail names"


def busy(name: TableName, error: HeadraceError) -> TableBusy:
    """The error of a table that another look may find readable."""
    return TableBusy(error.code, f"{name}: {error.primary}", detail=error.detail, hint=error.hint)


def overtaken(primary: str) -> TableBusy:
    """The error of a table to which something happened that the moment does not show."""
    return TableBusy(
        "MY_COPY_OVERTAKEN",
        primary,
        hint="nothing to do: it is looked at again, and copied from a new snapshot",
    )


@contextmanager
def held(
    session: Session, witness: Session, name: TableName, mark: str, columns: Sequence[Column]
) -> Iterator[None]:
    """Keep the table as it is, and prove that it is what was planned, with these columns."""
    execute(session, "SAVEPOINT headrace")
    try:
        query(session, f"SELECT 1 FROM {spelled(name)} LIMIT 0")
        _prove(witness, name, mark, columns)
        yield
    finally:
        if not session.closed:
            execute(session, "ROLLBACK TO SAVEPOINT headrace")


def _prove(witness: Session, name: TableName, mark: str, columns: Sequence[Column]) -> None:
    seen = look(witness, [name]).get(name)
    if seen is None or marks(witness, [name]).get(name) != mark:
        raise overtaken(f"{name} is not what it was a moment ago: it was altered, or another took its name")
    rows = {row.name: row for row in seen.columns}
    for column in columns:
        row = rows.get(column.name)
        if row is None or column_of(row.name, row.column_type, row.charset) != column:
            raise overtaken(f'column "{column.name}" of {name} is another than a moment ago')
