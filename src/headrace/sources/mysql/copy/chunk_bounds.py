"""The ends of chunks: the first key after so many rows, by a walk along the primary key."""

from __future__ import annotations

from collections.abc import Callable

from headrace.core.chunks import Bound, KeySpan
from headrace.sources.contract.errors import StepTooLong
from headrace.sources.contract.values import TableDef
from headrace.sources.mysql.copy.key_range import bounds, of_key, within
from headrace.sources.mysql.copy.selection import fetch
from headrace.sources.mysql.copy.table_access import by_key, of_table
from headrace.sources.mysql.session.statements import MysqlConnection, quote
from headrace.sources.shared.refusals import StatementCancelled

BOUND_SECONDS = 300.0  # for the walk to the end of one chunk


def next_bound(
    connection: MysqlConnection, table: TableDef, span: KeySpan, rows: int, check: Callable[[], None]
) -> Bound | None:
    """The key that so many rows of the span lie before; None where it has no more than that.

    Each row may be a visit to a cold disk, so it has minutes; it is cancelled on the server when they are
    over (`StepTooLong`), or when `check` raises.
    """
    columns = of_key(table.schema)
    order = ", ".join(quote(column.name) for column in columns)
    origin = f"FROM {by_key(table.name)}{within(columns, [span])} ORDER BY {order} LIMIT 1 OFFSET {rows}"
    try:
        with of_table(table.name, but=StatementCancelled):
            found = fetch(connection, table.name, columns, origin, silence=BOUND_SECONDS, check=check)
            copied = list(found.decode())
    except StatementCancelled as error:
        raise StepTooLong(
            error.code,
            f"{table.name}: the walk along its key took too long",
            detail=f"{rows} rows",
            hint="nothing to do: it is tried again",
        ) from None
    if not copied or copied[0].unrepresentable:
        return None  # without a form in the lake: whoever copies that row will stop the table
    known = bounds(table.schema, copied[0].rows)
    return known[0] if known else None
