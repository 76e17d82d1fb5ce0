"""The statements that a table was followed through, in its record, and its columns before each.

    "passed"     [41, 57]       the times of statements that altered it, and are explained (`evidence`)
    "versions"   {"41": [["id", "int", null], ...], ...}     its columns before each: name, type, charset

They are in the table's details beside the last look, so that the decoder has them. The schema check writes
them, and `decode.changes` reads them. If no look shows a column as it was, it has no entry, and no value is
taken from it. This module has no connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.core.schema import Column
from headrace.sources.contract.values import Json
from headrace.sources.mysql.catalog.table_def import ColumnRow
from headrace.sources.mysql.types.columns import column_of

Rows = Sequence[ColumnRow | None]


def explained_times(details: Mapping[str, Any]) -> frozenset[int]:
    """The times of the explained statements."""
    return frozenset(details.get("passed", ()))


def columns_before(details: Mapping[str, Any], until: int) -> tuple[Column | None, ...] | None:
    """The table's columns before the statement of this time; None for a column that is not known."""
    known = details.get("versions", {}).get(str(until))
    return None if known is None else tuple(None if each is None else column_of(*each) for each in known)


def with_statements(
    look: Json, record: Mapping[str, Any], statements: Iterable[tuple[int, Rows]], after: int
) -> Json:
    """The record of a look with further statements; those before `after` are dropped: no more rows come."""
    versions = {time: rows for time, rows in record.get("versions", {}).items() if int(time) >= after}
    versions |= {str(time): [_entry(row) for row in rows] for time, rows in statements}
    times = {time for time in explained_times(record) if time >= after} | set(map(int, versions))
    return {**look, "passed": sorted(times), "versions": versions} if times else look


def _entry(row: ColumnRow | None) -> list[str | bool | None] | None:
    if row is None:
        return None
    return [row.name, row.column_type, row.charset, *([True] if row.is_hashed else [])]
