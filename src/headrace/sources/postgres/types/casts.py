"""Spark SQL expressions that parse the text which PostgreSQL prints: `decode.values` in SQL.

A value that the lake's type cannot hold is NULL, as in `decode.values`. The text is the server's under the
settings that we pin (docs/types.md). `headrace.sql` calls it through the source's decoder. Pure.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from headrace.core.schema import Column
from headrace.core.spark_types import spark_type

# The elements of a printed array: in quotes, or bare.
_ELEMENTS = r"""regexp_extract_all(substr({x}, 2, length({x}) - 2), r'("(?:[^"\\]|\\.)*"|[^,]+)', 1)"""
# The last time that 64 bits of microseconds hold.
_LAST = "294247-01-10 04:00:54.775807"
_BARE = (
    "CASE WHEN e = 'NULL' THEN NULL WHEN startswith(e, '\"') "
    r"THEN regexp_replace(substr(e, 2, length(e) - 2), r'(?s)\\(.)', '$1') ELSE e END"
)


def value(column: Column, text: str) -> str:
    """An expression for the value of a column from its text."""
    return _value(column.form, column.type, text)


def _value(form: str, kind: pa.DataType, x: str) -> str:
    if form.startswith("array("):
        return _array(form[len("array(") : -1], kind, x)
    if form == "text":
        return x
    if form in _SPECIAL:
        return _SPECIAL[form](x)
    cast = "TRY_CAST" if form == "decimal" else "CAST"  # NaN has no place in a decimal
    return f"{cast}({x} AS {spark_type('column', kind)})"


def _array(form: str, kind: pa.DataType, x: str) -> str:
    elements = f"transform({_ELEMENTS.format(x=x)}, e -> {_BARE})"
    value = _value(form, kind.value_type, "v")
    values = elements if value == "v" else f"transform({elements}, v -> {value})"
    # More dimensions, explicit bounds, or an element that the type can't hold.
    odd = f"startswith({x}, '{{{{') OR NOT startswith({x}, '{{')"
    if form in _HAVE_BAD:
        odd += f" OR exists({elements}, v -> v IS NOT NULL AND ({value}) IS NULL)"
    return f"CASE WHEN {odd} THEN NULL ELSE {values} END"


def _bytes(x: str) -> str:
    return f"unhex(substr({x}, 3))"


def _date(x: str) -> str:
    return f"CASE WHEN {x} IN ('infinity', '-infinity') THEN NULL ELSE make_date({_year_month_day(x)}) END"


def _timestamp(x: str) -> str:
    clock = f"split_part({x}, ' ', 2)"
    return _moment(x, "make_timestamp_ntz", clock, "")


def _timestamptz(x: str) -> str:
    # The pinned session's zone is UTC: every time ends in +00.
    clock = f"substr(split_part({x}, ' ', 2), 1, length(split_part({x}, ' ', 2)) - 3)"
    return _moment(x, "make_timestamp_ltz", clock, ", 'UTC'")


def _moment(x: str, function: str, clock: str, zone: str) -> str:
    parts = (
        f"CAST(split_part({clock}, ':', 1) AS INT), CAST(split_part({clock}, ':', 2) AS INT), "
        f"CAST(split_part({clock}, ':', 3) AS DECIMAL(8, 6))"
    )
    made = f"{function}({_year_month_day(x)}, {parts}{zone})"
    # If years have the same number of digits, here six, times compare as text.
    late = f"length(split_part({x}, '-', 1)) = 6 AND replace({x}, '+00') > '{_LAST}'"
    return f"CASE WHEN {x} IN ('infinity', '-infinity') OR ({late}) THEN NULL ELSE {made} END"


def _year_month_day(x: str) -> str:
    """The year, month and day of a date, as arguments; year 1 BC is year 0."""
    year = f"CAST(split_part({x}, '-', 1) AS INT)"
    year = f"IF(endswith({x}, ' BC'), 1 - {year}, {year})"
    day = f"CAST(substr(split_part({x}, '-', 3), 1, 2) AS INT)"
    return f"{year}, CAST(split_part({x}, '-', 2) AS INT), {day}"


_SPECIAL: dict[str, Callable[[str], str]] = {
    "bytea": _bytes,
    "date": _date,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
}
_HAVE_BAD = frozenset(("decimal", "date", "timestamp", "timestamptz"))
