"""Reading one table: its lock, the proof that it is the one that is meant, what is said when it can't be.

    with reading(connection, table, oid):     a transaction is open, or begins in the block
        lock(connection, table)               wait for who truncates or rewrites it
        prove(connection, table, oid)         it is the one that is meant, and so are its columns
        ...                                   COPY
        confirm(connection, table, oid)       nothing else was read under its name
                                              always rolled back: we only read

COPY knows tables by name, and a name leads elsewhere after two renames (a blue/green swap), and back after
two more. The lock is taken by name and kept: while it is held the table keeps its name, so its oid is
compared after it. Its schema may be renamed all the same, which waits for no lock on tables; but whatever
COPY has read is locked as well, until the transaction ends.

What the server answers to a statement about one table is said of that table, and of no other:

    TableBusy     locked, altered, cancelled, in a standby's way    it is tried again, alone
    TableDenied   no privilege, a policy                            the same, once a person gave us the right
    Definite      a damaged row                                     it stops, alone

What is gone, be it a column, is looked at again before another copy: a look says what became of it.

What is said of the connection, the server or the snapshot stays what it is. `leader`, `key_range`, and the
planning of chunks.

The row filter of a table, as the publication has it in the snapshot that is copied.

    lock ─► the catalog, by this transaction's snapshot ─► COPY ... WHERE (filter)

Filter and rows are of one moment: a filter that was altered since makes the table another one, which the
schema check finds before the copy is in a mark. The expression is read as the server prints it, under the
`search_path` of `session.connection.PINS`, and evaluated under the same one: nothing is quoted here.

The table has to be locked as a reader: the server locks what it prints an expression of, too.
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
    """Say of the table what goes wrong with the statements of the block; its transaction ends here."""
    try:
        yield
    except (LockTimeout, StatementCancelled, StatementOverruled, TableGone, StatementRefused) as error:
        raise _of_table(connection, table, oid, error) from None
    finally:
        end(connection)


def end(connection: Session) -> None:
    """End the transaction, if the connection is still there and in one."""
    if connection.closed:
        return
    if connection.pgconn.transaction_status in (pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR):
        try:
            ask(connection.pgconn, "ROLLBACK")
        except Transient:
            connection.close()  # it was lost; what was in the way says who waits for the outcome


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


# Of a root those that hold its rows: a copy reads each by its own name.
_READ = (
    "SELECT p.relid::oid::int8 FROM pg_catalog.pg_partition_tree(%s::oid::regclass) p UNION SELECT %s::int8"
)


def _remedy(connection: Session, table: TableName, oid: int) -> str:
    """The statements that let us read the table, and what is beneath it."""
    end(connection)
    oids = [] if connection.closed else [each for (each,) in query(connection, _READ, [oid, oid])]
    denied = unreadable(connection, oids) if oids else {}
    if denied:
        return "; ".join(statement for each in denied.values() for statement in each.grants)
    who = quote_identifier(connection.info.user)
    return f"GRANT SELECT ON {table} TO {who}, or ALTER ROLE {who} BYPASSRLS where a policy hides rows"


def lock(connection: Session, table: TableName, *, beneath: bool = False) -> None:
    """Wait for who truncates or rewrites the table, and keep others from it; this takes no snapshot.

    With what is `beneath` a root, where its rows are.
    """
    query(connection, f"LOCK TABLE {table if beneath else f'ONLY {table}'} IN ACCESS SHARE MODE")


# Not of a snapshot: the function asks as COPY does, for what the name means now.
_SAME = "SELECT pg_catalog.to_regclass(%s)::oid::bigint = %s"


def prove(connection: Session, table: TableName, oid: int) -> None:
    """The name of a table that is locked leads to the one that is meant."""
    if query(connection, _SAME, [str(table), oid]) != [(True,)]:
        raise overtaken(f"{table} is another table than a moment ago: it was renamed, or made anew")


ANY: Mapping[str, int] = {}  # whatever bears the names


def column_numbers(record: Json | None) -> Mapping[str, int]:
    """The numbers of a table's columns, by their names, as its recorded details have them."""
    if record is None:
        return ANY
    return {each["name"]: each["number"] for each in mirrored_columns(record)}


def prove_columns(connection: Session, table: TableName, numbers: Mapping[str, int]) -> None:
    """The names of a locked table's columns lead to those that are meant.

    Two that took each other's names, and gave them back after the copy, look the same before and after. A
    statement means the names as they are now, however old its snapshot is; its answer tells whose they are.
    """
    if not numbers:
        return
    listed = ", ".join(map(quote_identifier, numbers))
    found = origins(connection, f"SELECT {listed} FROM ONLY {table} LIMIT 0")
    for (name, number), now in zip(numbers.items(), found, strict=True):
        if number != now:
            raise overtaken(f'column "{name}" of {table} is another than a moment ago: it was renamed')


def prove_tree(connection: Session, table: TableName, oid: int, record: Json | None) -> tuple[Branch, ...]:
    """The tree beneath a locked root in the snapshot of this transaction, which may be copied.

    Nothing but partitions that brought no rows may have come since it was recorded: one that was attached
    with rows and is detached again before the next look would leave them in the copy.
    """
    entry = next(iter(read_entries(connection, [oid]).values()), None)
    if entry is None:
        raise overtaken(f"{table} is not there any more")
    if record is not None and (what := tree_differs(tree_of(record), entry.tree)) is not None:
        raise overtaken(f"{table} changed after it was looked at: {what}")
    return entry.tree


# The function goes by what is committed by now, however old the snapshot is.
_NOW_BENEATH = (
    "SELECT p.relid::oid::bigint FROM pg_catalog.pg_partition_tree(%s::oid::regclass) p WHERE p.isleaf"
)


def prove_same_leaves(connection: Session, table: TableName, oid: int, tree: Sequence[Branch]) -> None:
    """A statement that read a root went by the partitions that it has now: these have to be the same."""
    now = {number for (number,) in query(connection, _NOW_BENEATH, [oid])} - {oid}
    if now != {leaf.oid for leaf in leaves(tree)}:
        raise overtaken(f"a partition of {table} was attached or detached while it was read")


# The table has kept its own name, and so has whatever was read instead: both are locked by us. Not of a
# snapshot either, which may be older than the other one.
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
    """Nothing but what is meant was read under the table's name in this transaction.

    Those are the table itself, and partitions of a root, which may bear the same name in another schema.
    """
    if connection.closed:
        return  # given up half-way
    if query(connection, _INSTEAD, {"name": table.name, "meant": list(oids)}) != [(False,)]:
        raise overtaken(f"another table stood in the place of {table} for a moment: a schema was renamed")


def overtaken(primary: str) -> TableBusy:
    """The error of a table to which something happened that a snapshot does not show."""
    return TableBusy(
        "PG_COPY_OVERTAKEN",
        primary,
        hint="nothing to do: it is looked at again, and copied from a new snapshot",
    )


# Of the table's own row; of one whose schema the publication holds the server goes by no filter.
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
    """The condition of the rows that are sent, in parentheses; empty where all are."""
    rows = query(connection, _FILTER, [publication, oid])
    return f"({rows[0][0]})" if rows else ""


@contextmanager
def evaluating(connection: Session, table: TableName, condition: str) -> Iterator[None]:
    """Say of the filter what goes wrong when the server evaluates it; without one, nothing."""
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
