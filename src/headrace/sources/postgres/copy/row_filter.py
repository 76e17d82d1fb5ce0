"""The row filter of a table, as the publication has it in the snapshot that is copied.

    lock ─► the catalog, by this transaction's snapshot ─► COPY ... WHERE (filter)

Filter and rows are of one moment: a filter that was altered since makes the table another one, which the
schema check finds before the copy is in a mark. The expression is read as the server prints it, under the
`search_path` of `session.connection.PINS`, and evaluated under the same one: nothing is quoted here.

The table has to be locked as a reader: the server locks what it prints an expression of, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.core.errors import Definite, HeadraceError
from headrace.core.names import TableName, quote_identifier
from headrace.sources.contract.errors import TableBusy
from headrace.sources.postgres.session.refusals import ValueRefused
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.shared.refusals import PrivilegeMissing

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
