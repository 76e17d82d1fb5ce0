"""The statements that a table was followed through, as its record knows them, and its columns of then.

    "passed"     [41, 57]       the times of statements that altered it, and are explained (`evidence`)
    "versions"   {"41": [["id", "int", null], ...], ...}     its columns before each: name, type, charset

They stand in the table's details beside the last look, so that whoever decodes the stream has them. The
look writes them (`schema_check`), `decode.changes` reads them. A column of which no look shows what it was
has no entry of its own: nothing is taken out of it. Values only.
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
    """The times of the statements that are explained."""
    return frozenset(details.get("passed", ()))


def columns_before(details: Mapping[str, Any], until: int) -> tuple[Column | None, ...] | None:
    """The columns that the table had before the statement of this time; None of one that is not known."""
    known = details.get("versions", {}).get(str(until))
    return None if known is None else tuple(None if each is None else column_of(*each) for each in known)


def with_statements(
    look: Json, record: Mapping[str, Any], statements: Iterable[tuple[int, Rows]], after: int
) -> Json:
    """The record of a look behind further statements; of those before the time `after` no row is to come."""
    versions = {time: rows for time, rows in record.get("versions", {}).items() if int(time) >= after}
    versions |= {str(time): [_entry(row) for row in rows] for time, rows in statements}
    times = {time for time in explained_times(record) if time >= after} | set(map(int, versions))
    return {**look, "passed": sorted(times), "versions": versions} if times else look


def _entry(row: ColumnRow | None) -> list[str | None] | None:
    return None if row is None else [row.name, row.column_type, row.charset]
