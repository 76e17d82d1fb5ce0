"""Access to one table: its metadata lock, the proof that it is the right one, its errors.

    with of_table(name):                   errors become errors of the table
        with hold(session, name):          nobody alters, swaps or empties it in the block
            prove_mark, prove_columns      it is the right table
            SELECT ...

A view fixes rows, not tables: a name means the table that has it now, with rows that may be older than the
swap. So the table is held by a metadata lock, such as every SELECT in a transaction takes. Then its mark and
its columns are compared with the planned ones. On MySQL a savepoint releases the lock at the end of a step,
so DDL waits for one step at most. MariaDB releases metadata locks only at the end of the transaction: there
DDL waits for the reader.

The mark is the second at which the table was made. On MariaDB everything that is done to a table renews it,
and so does a swap. MySQL keeps the mark, but refuses by itself to read what was altered or emptied since the
view (error 1412). There, another table in its place has another mark, unless both were made in one second.
Neither server's mark shows an exchange of partitions; `plan.MysqlHeldSnapshot.settle` handles that.

    TableBusy     held, altered, swapped                                    try the table again, alone
    TableMissed   its reader has lost the moment                            the same; a proof at once
    TableDenied   we have lost a privilege                                  the same, once it is granted again
    Definite      a damaged row                                             the table stops, alone

An error of the connection or the server stays what it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from headrace.core.errors import Definite, HeadraceError, RightWithheld
from headrace.core.names import TableName
from headrace.core.schema import Column
from headrace.sources.contract.errors import TableBusy, TableDenied, TableMissed
from headrace.sources.mysql.catalog import questions as catalog
from headrace.sources.mysql.catalog.questions import of_tables, text
from headrace.sources.mysql.copy.follower import LeftOut, late
from headrace.sources.mysql.session.statements import MysqlConnection, execute, query, quote
from headrace.sources.mysql.types.columns import column_of
from headrace.sources.shared.refusals import (
    LockTimeout,
    PrivilegeMissing,
    StatementCancelled,
    StatementOverruled,
    StatementRefused,
    TableGone,
)

_MARKS = """
SELECT table_schema, table_name, create_time
  FROM information_schema.tables WHERE {named} AND table_type <> 'VIEW'
"""
_COLUMNS = """
SELECT table_schema, table_name, column_name, column_type, character_set_name
  FROM information_schema.columns WHERE {named}
"""
_ORDERS = """
SELECT table_schema, table_name, index_name, seq_in_index, column_name,
       column_name IS NOT NULL AND sub_part IS NULL AND `collation` = 'A' AND nullable = ''
       AND index_type = 'BTREE' AND {shown}
  FROM information_schema.statistics WHERE {named} AND non_unique = 0
"""
# A privilege that was revoked may be granted again; until then nothing happened to the table.
_MOMENTARY = (
    LockTimeout,
    StatementCancelled,
    StatementOverruled,
    TableGone,
    PrivilegeMissing,
    LeftOut,
    catalog.MysqlTableBusy,
)


def spell(name: TableName) -> str:
    """A table as a statement spells it."""
    return f"{quote(name.schema)}.{quote(name.name)}"


def by_key(name: TableName, index: str = "PRIMARY") -> str:
    """A table in a FROM clause, read along its primary key or another index, whatever the planner prefers."""
    return f"{spell(name)} FORCE INDEX ({quote(index)})"


def orders(witness: MysqlConnection, name: TableName) -> dict[str, tuple[str, ...]]:
    """The columns of each index along which a table can be read; such an index has each row exactly once.

    The primary key comes first, since InnoDB stores the rows in its order.
    """
    shown = "ignored = 'NO'" if witness.release.is_mariadb else "is_visible = 'YES'"
    found: dict[str, list[tuple[int, str | None, bool]]] = {}
    asked = _ORDERS.format(shown=shown, named="{named}")
    for _, (index, at, column, fit) in of_tables(witness, asked, [name]):
        found.setdefault(str(index), []).append((int(str(at)), text(column), bool(fit)))
    whole = {index: parts for index, parts in found.items() if all(fit for _, _, fit in parts)}
    return {
        index: tuple(str(column) for _, column, _ in sorted(whole[index]))
        for index in sorted(whole, key=lambda index: (index != "PRIMARY", index))
    }


def marks(connection: MysqlConnection, names: Iterable[TableName]) -> dict[TableName, str]:
    """The marks of the tables; those that are gone are left out."""
    return {name: str(made) for name, (made,) in of_tables(connection, _MARKS, names)}


@contextmanager
def of_table(name: TableName, but: type[HeadraceError] | tuple[()] = ()) -> Iterator[None]:
    """Turn errors of the block's statements into errors of the table, except for one kind."""
    try:
        yield
    except but:
        raise
    except _MOMENTARY as error:
        raise busy(name, error) from None
    except StatementRefused as error:
        raise Definite(
            "MY_TABLE_UNREADABLE",
            f"{name} cannot be read",
            detail=error.detail,
            hint=f"mend what the detail names; then headrace tables resync {name}",
        ) from None


def busy(name: TableName, error: HeadraceError) -> TableBusy:
    """The error for a table that may be readable at another look."""
    kind: type[TableBusy] = TableBusy
    if isinstance(error, RightWithheld | TableDenied):
        kind = TableDenied
    elif isinstance(error, LeftOut):
        kind = TableMissed
    return kind(error.code, f"{name}: {error.primary}", detail=error.detail, hint=error.hint)


def overtaken(primary: str) -> TableBusy:
    """The error of a table that changed in a way that the moment does not show."""
    return TableBusy(
        "MY_COPY_OVERTAKEN",
        primary,
        hint="nothing to do: it is looked at again, and copied from a new snapshot",
    )


@contextmanager
def hold(session: MysqlConnection, name: TableName) -> Iterator[None]:
    """Hold the table: nobody alters, swaps or empties it in the block."""
    execute(session, "SAVEPOINT headrace")
    try:
        query(session, f"SELECT 1 FROM {spell(name)} LIMIT 0")
        yield
    finally:
        if not session.is_closed:
            _let_go(session)


def _let_go(session: MysqlConnection) -> None:
    """Release the table. If the savepoint is gone, so is the view, and the session is closed.

    A deadlock rolls back the whole transaction. Afterwards a statement would see the rows as they are now.
    """
    try:
        execute(session, "ROLLBACK TO SAVEPOINT headrace")
    except StatementRefused:
        session.close()
        raise late("the server has ended its transaction, and its view with it") from None


def prove_mark(witness: MysqlConnection, name: TableName, mark: str) -> None:
    """Raise unless the held table is the one that was measured."""
    if marks(witness, [name]).get(name) != mark:
        raise overtaken(f"{name} is not what it was a moment ago: it was altered, or another took its name")


def prove_columns(witness: MysqlConnection, name: TableName, columns: Sequence[Column]) -> None:
    """Raise unless the held table has these columns."""
    seen = {
        str(column): (str(kind), text(charset))
        for _, (column, kind, charset) in of_tables(witness, _COLUMNS, [name])
    }
    for column in columns:
        if column.name not in seen or column_of(column.name, *seen[column.name]) != column:
            raise overtaken(f'column "{column.name}" of {name} is another than a moment ago')
