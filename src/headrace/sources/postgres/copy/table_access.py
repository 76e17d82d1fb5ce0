"""Access to one table: its lock, the proof that it is the right one, its errors, and its row filter.

    with reading(connection, table, oid):     a transaction is open, or begins in the block
        lock(connection, table)               wait for a session that truncates or rewrites it
        prove(connection, table, oid)         it is the right table, with the right columns
        ...                                   COPY
        confirm(connection, table, oid)       nothing else was read under its name
                                              always rolled back: we only read

COPY takes a table's name. Two renames (a blue/green swap) give the name to another table, and two more give
it back. So the lock is taken by name and kept: while it is held the table keeps its name, and its oid is
compared after it. Its schema may still be renamed, which waits for no lock on tables. But every table that
COPY has read stays locked until the transaction ends, so `confirm` can see which ones those are.

An error that the server raises for a statement about one table concerns that table alone:

    TableBusy     locked, altered, cancelled, in a standby's way    try the table again, alone
    TableDenied   no privilege, a policy                            the same, once a person granted it
    Definite      a damaged row                                     the table stops, alone

If a table or a column is gone, the error is `TableBusy`: a look before the next copy finds what became of it.
An error of the connection, the server or the snapshot stays what it is.

The row filter is the publication's, in the snapshot that is copied:

    lock ─► the catalog, by this transaction's snapshot ─► COPY ... WHERE (filter)

Filter and rows belong to one moment. If the filter is altered later, the schema check finds another table
before the copy is in a mark. The server prints the expression under the `search_path` of
`session.connection.PINS`, and evaluates it under the same one, so nothing is quoted here. Lock the table as a
reader first: the server, too, locks a table when it prints an expression of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from psycopg import pq

from headrace.core.errors import Definite, HeadraceError, Transient
from headrace.core.names import TableName, quote_identifier
from headrace.sources.contract.errors import TableBusy, TableDenied
from headrace.sources.contract.values import Json
from headrace.sources.postgres.catalog.definitions import read_entries
from headrace.sources.postgres.catalog.locks import holders, locked_error
from headrace.sources.postgres.catalog.partition_tree import Branch, leaves, tree_differs
from headrace.sources.postgres.catalog.rights import unreadable
from headrace.sources.postgres.catalog.table_def import mirrored_columns, tree_of
from headrace.sources.postgres.session.refusals import ValueRefused
from headrace.sources.postgres.session.statements import Session, ask, origins, query
from headrace.sources.shared.refusals import (
    LockTimeout,
    PrivilegeMissing,
    StatementCancelled,
    StatementOverruled,
    StatementRefused,
    TableGone,
)


@contextmanager
def reading(connection: Session, table: TableName, oid: int) -> Iterator[None]:
    """Turn errors of the block's statements into errors of the table; the transaction ends with the block."""
    try:
        yield
    except (LockTimeout, StatementCancelled, StatementOverruled, TableGone, StatementRefused) as error:
        raise _of_table(connection, table, oid, error) from None
    finally:
        end(connection)


def end(connection: Session) -> None:
    """End the transaction, if the connection is open and in one."""
    if connection.closed:
        return
    if connection.pgconn.transaction_status in (pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR):
        try:
            ask(connection.pgconn, "ROLLBACK")
        except Transient:
            connection.close()  # it was lost; the block's own error is the one to report


def _of_table(connection: Session, table: TableName, oid: int, error: HeadraceError) -> HeadraceError:
    if isinstance(error, LockTimeout):
        end(connection)
        return locked_error(table, [] if connection.closed else holders(connection, [oid]).get(oid, []))
    if isinstance(error, TableGone):
        return overtaken(f"{table} was altered after it was looked at: {error.detail}")
    if isinstance(error, PrivilegeMissing):
        hint = _remedy(connection, table, oid)
        return TableDenied(error.code, f"{table}: {error.primary}", detail=error.detail, hint=hint)
    if isinstance(error, StatementRefused):
        return Definite(
            "PG_TABLE_UNREADABLE",
            f"{table} cannot be read",
            detail=error.detail,
            hint="mend what the detail names (a damaged row may be deleted or restored); "
            f"then headrace tables resync {table}",
        )
    return TableBusy(error.code, f"{table}: {error.primary}", detail=error.detail, hint=error.hint)


# For a root these are the partitions that hold its rows: a copy reads each by its own name.
_READ = (
    "SELECT p.relid::oid::int8 FROM pg_catalog.pg_partition_tree(%s::oid::regclass) p UNION SELECT %s::int8"
)


def _remedy(connection: Session, table: TableName, oid: int) -> str:
    """The statements that let us read the table and its partitions."""
    end(connection)
    oids = [] if connection.closed else [each for (each,) in query(connection, _READ, [oid, oid])]
    denied = unreadable(connection, oids) if oids else {}
    if denied:
        return "; ".join(statement for each in denied.values() for statement in each.grants)
    who = quote_identifier(connection.info.user)
    return f"GRANT SELECT ON {table} TO {who}, or ALTER ROLE {who} BYPASSRLS where a policy hides rows"


def lock(connection: Session, table: TableName, *, beneath: bool = False) -> None:
    """Wait for a session that truncates or rewrites the table, and keep later ones out; takes no snapshot.

    With `beneath` lock a root's partitions too: they hold its rows.
    """
    query(connection, f"LOCK TABLE {table if beneath else f'ONLY {table}'} IN ACCESS SHARE MODE")


# This does not use a snapshot: the function, like COPY, asks what the name means now.
_SAME = "SELECT pg_catalog.to_regclass(%s)::oid::bigint = %s"


def prove(connection: Session, table: TableName, oid: int) -> None:
    """Raise unless the locked name belongs to the table that is meant."""
    if query(connection, _SAME, [str(table), oid]) != [(True,)]:
        raise overtaken(f"{table} is another table than a moment ago: it was renamed, or made anew")


ANY: Mapping[str, int] = {}  # any columns with these names


def column_numbers(record: Json | None) -> Mapping[str, int]:
    """The numbers of a table's columns by name, from its recorded details."""
    if record is None:
        return ANY
    return {each["name"]: each["number"] for each in mirrored_columns(record)}


def prove_columns(connection: Session, table: TableName, numbers: Mapping[str, int]) -> None:
    """Raise unless the names of a locked table's columns belong to the columns that are meant.

    Two columns that swap names, and swap them back after the copy, look the same before and after. A
    statement uses the names as they are now, however old its snapshot is; its answer tells their numbers.
    """
    if not numbers:
        return
    listed = ", ".join(map(quote_identifier, numbers))
    found = origins(connection, f"SELECT {listed} FROM ONLY {table} LIMIT 0")
    for (name, number), now in zip(numbers.items(), found, strict=True):
        if number != now:
            raise overtaken(f'column "{name}" of {table} is another than a moment ago: it was renamed')


def prove_tree(connection: Session, table: TableName, oid: int, record: Json | None) -> tuple[Branch, ...]:
    """Return the tree beneath a locked root in this transaction's snapshot; raises if it can't be copied.

    Only partitions without rows may have come since the tree was recorded. If one was attached with rows, and
    detached again before the next look, its rows would stay in the copy.
    """
    entry = next(iter(read_entries(connection, [oid]).values()), None)
    if entry is None:
        raise overtaken(f"{table} is not there any more")
    if record is not None and (what := tree_differs(tree_of(record), entry.tree)) is not None:
        raise overtaken(f"{table} changed after it was looked at: {what}")
    return entry.tree


# The function uses what is committed now, however old the snapshot is.
_NOW_BENEATH = (
    "SELECT p.relid::oid::bigint FROM pg_catalog.pg_partition_tree(%s::oid::regclass) p WHERE p.isleaf"
)


def prove_same_leaves(connection: Session, table: TableName, oid: int, tree: Sequence[Branch]) -> None:
    """Raise unless the root still has these partitions: a statement that read it used those of now."""
    now = {number for (number,) in query(connection, _NOW_BENEATH, [oid])} - {oid}
    if now != {leaf.oid for leaf in leaves(tree)}:
        raise overtaken(f"a partition of {table} was attached or detached while it was read")


# The table has kept its own name, and so has a table that was read instead: we lock both. This does not use a
# snapshot either, which may be older than the other table.
_INSTEAD = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_locks l
      JOIN pg_catalog.quote_ident(%(name)s) named(quoted) ON true
     WHERE l.locktype = 'relation' AND l.pid = pg_catalog.pg_backend_pid()
       AND l.relation <> ALL (%(meant)s::oid[])
       AND (l.relation::pg_catalog.regclass::text = quoted
            OR right(l.relation::pg_catalog.regclass::text, length(quoted) + 1) = '.' || quoted))
"""


def confirm(connection: Session, table: TableName, oids: Sequence[int]) -> None:
    """Raise if this transaction read another table under the table's name.

    Allowed are the table itself, and partitions of a root, which may have the same name in another schema.
    """
    if connection.closed:
        return  # given up half-way
    if query(connection, _INSTEAD, {"name": table.name, "meant": list(oids)}) != [(False,)]:
        raise overtaken(f"another table stood in the place of {table} for a moment: a schema was renamed")


def overtaken(primary: str) -> TableBusy:
    """The error of a table that changed in a way that a snapshot does not show."""
    return TableBusy(
        "PG_COPY_OVERTAKEN",
        primary,
        hint="nothing to do: it is looked at again, and copied from a new snapshot",
    )


# The filter of the table's own row: if the publication holds the schema, the server uses no filter.
_FILTER = """
SELECT pg_catalog.pg_get_expr(r.prqual, r.prrelid)
  FROM pg_catalog.pg_publication p
  JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
  JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
 WHERE p.pubname = %s AND c.oid = %s AND r.prqual IS NOT NULL
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication_namespace s
                    WHERE s.pnpubid = p.oid AND s.pnnspid = c.relnamespace)
"""


def row_filter(connection: Session, publication: str, oid: int) -> str:
    """The row filter in parentheses; empty if all rows are sent."""
    rows = query(connection, _FILTER, [publication, oid])
    return f"({rows[0][0]})" if rows else ""


@contextmanager
def evaluating(connection: Session, table: TableName, condition: str) -> Iterator[None]:
    """Turn errors of evaluating the filter into errors of the filter; without a filter do nothing."""
    try:
        yield
    except (PrivilegeMissing, ValueRefused) as error:
        if not condition:
            raise
        raise _of_filter(connection, table, error) from None


def _of_filter(connection: Session, table: TableName, error: HeadraceError) -> HeadraceError:
    primary = f"the row filter of {table} cannot be evaluated"
    if isinstance(error, PrivilegeMissing):
        who = quote_identifier(connection.info.user)
        hint = f"GRANT EXECUTE on the function that the detail names, and SELECT on {table}, to {who}"
        return TableBusy(error.code, primary, detail=error.detail, hint=hint)
    return Definite(
        "PG_FILTER_FAILED",
        primary,
        detail=error.detail,
        hint=f"publish it with a filter that no row makes fail; then headrace tables resync {table}",
    )
