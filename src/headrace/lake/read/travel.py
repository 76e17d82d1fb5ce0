"""The contents of a table between two marks: those of a mark, plus or minus history.

    mark a ──────────── t ──────────── mark b
    C(t) = C(a) + Σ history (a, t]     =    C(b) − Σ history (t, b]

The nearer mark is the base. Both engines compute one sum over whole rows with their counts: in memory by
`core.collection`, and in Spark by its own aggregation, so that a filter on the result still reaches the
files:

    net      history, summed up per row; sums of zero dropped
    kept     the base's rows without a sum in `net`                  ── straight through
    mixed    the base's other rows and `net`, summed up per row      ── each row as often as its sum

Rows are compared exactly. Spark's own grouping does so for all types but floating-point numbers: it takes
-0.0 and 0.0 for one value, so the number's text stands for it. A hash of the row finds whether `net` has it;
a collision only sends a row the longer way and changes no result. A sum below zero means that the history is
not of this table; that is an error, and never shown.

Columns have numbers in here (`c0`, `c1`, ...), so that no user's name can collide with ours. This module uses
Spark only through the caller's session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.collection import DIFF, as_multiset, consolidate, of_rows
from headrace.core.errors import Definite
from headrace.core.spark_types import spark_type
from headrace.lake.format import datafile
from headrace.lake.format.vector import FileRows
from headrace.lake.log.histories import HistoryPart
from headrace.lake.read.frames import Frames

NEGATIVE = "COLLECTION_NEGATIVE"


@dataclass(frozen=True, slots=True)
class Journey:
    """The way from a base to the wanted contents: the updates between them, to add or to undo."""

    schema: pa.Schema
    parts: Sequence[HistoryPart]
    sign: int  # +1: the base is the earlier mark; -1: the later one

    @property
    def columns(self) -> list[str]:
        return [f"c{i}" for i in range(len(self.schema))]


def fits(schema: pa.Schema, parts: Sequence[HistoryPart]) -> bool:
    """Tell whether rows of these parts of history can be rows of this schema."""
    return all(
        part.schema.field(name).type == schema.field(name).type
        for part in parts
        for name in part.columns
        if name in schema.names
    ) and all(set(part.columns) <= set(schema.names) for part in parts)


def in_memory(base: pa.Table, journey: Journey) -> pa.Table:
    """Return the contents as Arrow."""
    updates = [_number_rows(part.rows(), part, journey) for part in journey.parts]
    rows = datafile.conform(base, journey.schema).rename_columns(journey.columns)
    summed = consolidate(pa.concat_tables([of_rows(rows), *updates]))
    return as_multiset(summed).rename_columns(journey.schema.names).cast(journey.schema)


def _number_rows(rows: pa.Table, part: HistoryPart, journey: Journey) -> pa.Table:
    diffs = pc.multiply(rows[part.own["_diff"]], journey.sign)
    named = datafile.conform(rows.select(part.columns), journey.schema).rename_columns(journey.columns)
    return named.append_column(DIFF, diffs)


def on_spark(spark: Any, base: Any, journey: Journey) -> Any:
    """Return the contents as a DataFrame; `base` has exactly the schema's columns, in its order."""
    base = base.toDF(*journey.columns)
    net = _net(spark, journey)
    identity = _identity(journey.schema)
    marked = base.selectExpr("*", f"xxhash64({', '.join(identity)}) AS h")
    spoken = net.selectExpr(f"xxhash64({', '.join(identity)}) AS h").distinct()
    kept = marked.join(spoken, "h", "left_anti").select(*journey.columns)
    mixed = marked.join(spoken, "h", "left_semi").selectExpr(*journey.columns, "1L AS n")
    whole = _sum_rows(mixed.unionAll(net), journey.schema).where(
        f"CASE WHEN n > 0 THEN true WHEN n < 0 THEN raise_error('{NEGATIVE}') ELSE false END"
    )
    copies = whole.selectExpr(*journey.columns, "explode(array_repeat(true, CAST(n AS INT))) AS copy")
    found = kept.unionAll(copies.select(*journey.columns))
    return found.toDF(*journey.schema.names)


def with_columns(rows: Any, have: pa.Schema, want: pa.Schema) -> Any:
    """Return the rows with exactly the wanted columns; those that they lack are NULL."""
    if have.names == want.names:
        return rows
    columns = [
        quote(field.name) if field.name in have.names else f"{_null(field)} AS {quote(field.name)}"
        for field in want
    ]
    return rows.selectExpr(*columns)


def frame(spark: Any, part: HistoryPart) -> Any:
    """Return the updates of a part as a DataFrame with the history's own columns."""
    rows = Frames(spark, part.table.store).parquet(list(map(FileRows, part.keys())), part.schema)
    after, until = part.times
    time = quote(part.own["_time"])
    rows = rows.where(f"{time} <= {until}")
    return rows if after is None else rows.where(f"{time} > {after}")


def _net(spark: Any, journey: Journey) -> Any:
    """Sum the updates up per row: the row's columns and `n`, none of them zero."""
    updates = None
    for part in journey.parts:
        columns = [
            f"{quote(field.name)} AS c{i}" if field.name in part.columns else f"{_null(field)} AS c{i}"
            for i, field in enumerate(journey.schema)
        ]
        rows = frame(spark, part).selectExpr(*columns, f"{journey.sign} * {quote(part.own['_diff'])} AS n")
        updates = rows if updates is None else updates.unionAll(rows)
    return _sum_rows(updates, journey.schema).where("n <> 0")


def _null(field: pa.Field) -> str:
    return f"CAST(NULL AS {spark_type(field.name, field.type)})"


def _sum_rows(rows: Any, schema: pa.Schema) -> Any:
    """Return one line for each distinct row, with the sum of `n`."""
    width = len(schema)
    keys = [f"{expression} AS k{i}" for i, expression in enumerate(_identity(schema))]
    loose = [i for i, field in enumerate(schema) if _has_floats(field.type)]
    # All texts of a group are equal, and so are its values: take any of them.
    values = {f"c{i}": "first" for i in loose}
    grouped = rows.selectExpr(*keys, *(f"c{i}" for i in loose), "n").groupBy(*(f"k{i}" for i in range(width)))
    totals = grouped.agg({**values, "n": "sum"})
    shown = [f"`first(c{i})` AS c{i}" if i in loose else f"k{i} AS c{i}" for i in range(width)]
    return totals.selectExpr(*shown, "`sum(n)` AS n")


def _identity(schema: pa.Schema) -> list[str]:
    """Make for each column an expression that is equal exactly where the values are, bit for bit."""
    return [_exact(f"c{i}", field.type) for i, field in enumerate(schema)]


def _exact(column: str, kind: pa.DataType) -> str:
    if pa.types.is_floating(kind):
        return f"CAST({column} AS STRING)"
    if pa.types.is_list(kind) and pa.types.is_floating(kind.value_type):
        return f"transform({column}, x -> CAST(x AS STRING))"
    return column


def _has_floats(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or (pa.types.is_list(kind) and _has_floats(kind.value_type))


def quote(name: str) -> str:
    """Quote a name for Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"


def incompatible(name: str) -> Definite:
    """Make the error for a place that no base with one schema leads to."""
    return Definite(
        "LAKE_SCHEMA_BETWEEN",
        f'table "{name}" changed its columns between the marks around this position',
        hint="read it at one of the marks: headrace sql --at EPOCH, at(epoch=...)",
    )
