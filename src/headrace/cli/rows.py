"""Rows on standard output: a table for people, JSON or CSV for programs.

    table   columns side by side, numbers to the right, NULL written out
    json    one object a line; what JSON has no form for (decimals, times, bytes, NaN) as text
    csv     a head, then a line for each row; NULL is an empty field, an empty text is two quotes

Each format prints values as PostgreSQL does, but booleans as true and false. A table escapes control
characters, so that no value can control a terminal.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from headrace.cli.output import printable

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("table", "json", "csv")


def show(rows: pa.Table, how: str, out: TextIO | None = None) -> None:
    """Print the rows."""
    sink = out or sys.stdout
    lines = {"table": _table, "json": _json, "csv": _csv}[how](rows)
    for line in lines:
        sink.write(line + "\n")


def _table(rows: pa.Table) -> Iterator[str]:
    names = rows.column_names
    columns = [[_cell(text) for text in _texts(column)] for column in rows.columns]
    widths = [max([len(name), *map(len, cells)]) for name, cells in zip(names, columns, strict=True)]
    right = [_is_number(kind) for kind in rows.schema.types]
    yield " │ ".join(name.ljust(width) for name, width in zip(names, widths, strict=True)).rstrip()
    yield "─┼─".join("─" * width for width in widths)
    for line in zip(*columns, strict=True):
        cells = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, right, strict=True)
        ]
        yield " │ ".join(cells).rstrip()
    yield f"({rows.num_rows} {'row' if rows.num_rows == 1 else 'rows'})"


def _cell(text: str | None) -> str:
    if text is None:
        return "NULL"
    return text if text.isprintable() else printable(text.replace("\\", "\\\\"))


def _json(rows: pa.Table) -> Iterator[str]:
    names = rows.column_names
    columns = [_plain(column) for column in rows.columns]
    for line in zip(*columns, strict=True):
        yield json.dumps(dict(zip(names, line, strict=True)), ensure_ascii=False)


def _csv(rows: pa.Table) -> Iterator[str]:
    yield ",".join(map(_field, rows.column_names))
    for line in zip(*map(_texts, rows.columns), strict=True):
        yield ",".join(map(_field, line))


def _field(text: str | None) -> str:
    if text is None:
        return ""
    quoted = not text or any(mark in text for mark in ',"\r\n')
    return '"' + text.replace('"', '""') + '"' if quoted else text


def _texts(column: Any) -> Sequence[str | None]:
    """The values as text."""
    import pyarrow as pa

    from headrace.decode.printing import print_values

    kind = column.type
    if pa.types.is_boolean(kind):
        return [None if value is None else str(value).lower() for value in column.to_pylist()]
    try:
        texts: list[str | None] = print_values(column).to_pylist()
    except TypeError:
        # The query made a map, a struct or an interval.
        texts = [None if value is None else str(value) for value in column.to_pylist()]
    return texts


def _plain(column: Any) -> list[Any]:
    """The values in JSON's types, or as text if JSON has no form for them."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_string(kind):
        plain: list[Any] = column.to_pylist()
        return plain
    if pa.types.is_floating(kind):
        return [
            value if value is None or math.isfinite(value) else text
            for value, text in zip(column.to_pylist(), _texts(column), strict=True)
        ]
    if pa.types.is_list(kind):
        return [None if item.values is None else _plain(item.values) for item in column]
    return list(_texts(column))


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
