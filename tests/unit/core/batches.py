"""Change batches written by hand: for tests of events, folding, history and nets.

    batch(schema, insert(1, new=(...)), update(2, new=(...), old=(...), image=KEY, holes={2}), ...)

The first argument of a change is its time; ordinals count within a time.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headrace.core.change_batch import Image, Op, change_schema
from headrace.core.schema import Column, TableSchema

Row = tuple[Any, ...]
Change = tuple[int, Op, Image, Row | None, Row | None, frozenset[int]]


def insert(time: int, new: Row, holes: frozenset[int] = frozenset()) -> Change:
    return (time, Op.INSERT, Image.NONE, None, new, holes)


def update(
    time: int,
    new: Row,
    old: Row | None = None,
    image: Image = Image.NONE,
    holes: frozenset[int] | set[int] = frozenset(),
) -> Change:
    return (time, Op.UPDATE, image, old, new, frozenset(holes))


def delete(time: int, old: Row | None, image: Image = Image.KEY) -> Change:
    return (time, Op.DELETE, image, old, None, frozenset())


def batch(schema: TableSchema, *changes: Change) -> pa.Table:
    """The batch that a decoder makes of these changes."""
    holes = tuple(sorted({index for change in changes for index in change[5]}))
    seen: dict[int, int] = {}
    records: list[dict[str, Any]] = []
    for time, op, image, old, new, missing in changes:
        ordinal = seen[time] = seen.get(time, -1) + 1
        record = {"_time": time, "_ordinal": ordinal, "_transaction": time + 100, "_commit_ts": time}
        record |= {"_op": op, "_image": image}
        record |= {f"n{i}": value for i, value in enumerate(new or ())}
        record |= {f"o{i}": value for i, value in enumerate(old or ())}
        records.append(record | {f"u{i}": i in missing for i in holes})
    return pa.Table.from_pylist(records, change_schema(schema, holes))


def table_of(schema: TableSchema, *rows: Row) -> pa.Table:
    """Rows as the lake holds them."""
    columns = [pa.array([row[i] for row in rows], c.type) for i, c in enumerate(schema.columns)]
    return pa.Table.from_arrays(columns, schema=schema.arrow())


def rows_of(table: pa.Table, *names: str) -> list[Row]:
    """The rows of a table, cut to these columns (all of them if none is named)."""
    chosen = names or tuple(table.column_names)
    return [tuple(row[name] for name in chosen) for row in table.to_pylist()]


def text_table(key: tuple[str, ...] = ("id",), full: bool = False) -> TableSchema:
    """A table (id, small, big), all text, so that any column may be a hole."""
    names = ("id", "small", "big")
    columns = tuple(Column(name, pa.string(), "text", "text", name not in key) for name in names)
    return TableSchema(columns, key, full)
