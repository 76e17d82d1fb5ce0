"""A table's files as a DataFrame that lets Spark skip files before it opens them.

Plain Spark has no reader of Delta's log, and so not its statistics: given a list of files it opens the footer
of each. Therefore the files are read in groups of neighbours, and each group says what its rows must be:

    files by bounds of `id`     SELECT * FROM group 1 WHERE id >= 1    AND id <= 9000
    in the order of their ends  UNION ALL
                                SELECT * FROM group 2 WHERE id >= 8990 AND id <= 20000 ...

A query for `id = 42` puts 42 into every condition; all but one group's come out false at once, and Spark's
optimizer throws those away with their files. A range of keys still opens every footer, and reads no more than
the groups of rows that it needs.

The column is the one whose bounds overlap least: for a table with a key that is its key's first column, since
data files cover key ranges as disjoint as can be. A condition is only given where every file states both
bounds and has no NULL, so that it is true of every row; what Delta promises of bounds (text is cut, times and
decimals are rounded, outwards) is enough for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.core.spark_types import spark_type
from headrace.lake.format import layout, schemas
from headrace.lake.format.vector import FileRows
from headrace.lake.log.table import LakeTable
from headrace.lake.read.frames import Frames
from headrace.lake.read.travel import quote

# Each group costs Spark some milliseconds of planning.
MOST_GROUPS = 24
_File = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files that are read together, and what is true of each of their rows, in Spark's SQL."""

    files: tuple[FileRows, ...]
    condition: str | None = None


def frame(spark: Any, table: LakeTable) -> Any:
    """The table as a DataFrame, its columns named as the user names them."""
    schema, frames = table.schema(), Frames(spark, table.store)
    found = None
    for group in groups(table, schema):
        rows = frames.parquet(group.files, schema)
        rows = rows if group.condition is None else rows.where(group.condition)
        found = rows if found is None else found.unionAll(rows)
    return spark.createDataFrame([], schemas.spark_ddl(schema)) if found is None else found


def groups(table: LakeTable, schema: pa.Schema) -> list[FileGroup]:
    """The table's files in groups; one without a condition where bounds would not tell them apart."""
    files = table.describe().to_pylist()
    column = _telling(files, schema)
    if column is None:
        ordered = _by_key(table, sorted(files, key=lambda file: str(file["path"])))
        return [FileGroup(ordered)] if ordered else []
    stated = layout.lake_column(column.name)
    files.sort(key=lambda file: (file[f"max.{stated}"], file[f"min.{stated}"]))
    width = -(-len(files) // MOST_GROUPS)
    chunks = [files[start : start + width] for start in range(0, len(files), width)]
    return [FileGroup(_by_key(table, chunk), _condition(chunk, column)) for chunk in chunks]


def _by_key(table: LakeTable, files: Sequence[_File]) -> tuple[FileRows, ...]:
    live = table.files()
    paths = [str(file["path"]) for file in files]
    return tuple(FileRows(f"{table.folder}/{path}", live[path].vector) for path in paths)


def _telling(files: Sequence[_File], schema: pa.Schema) -> pa.Field | None:
    """The column whose bounds overlap least, if a value of it is in less than half of the files."""
    fit = [
        field
        for field in schema
        if _literal_kind(field.type) and all(_has_statistics(f, field) for f in files)
    ]
    scored = [(_depth(files, layout.lake_column(field.name)), number) for number, field in enumerate(fit)]
    if len(files) < 2 or not scored:
        return None
    depth, number = min(scored)
    return fit[number] if depth * 2 <= len(files) or depth == 1 else None


def _has_statistics(file: _File, field: pa.Field) -> bool:
    name = layout.lake_column(field.name)
    low, high = file.get(f"min.{name}"), file.get(f"max.{name}")
    return low is not None and high is not None and file.get(f"null_count.{name}") == 0


def _depth(files: Sequence[_File], column: str) -> int:
    """In how many files one value may be, at most."""
    edges = [(file[f"min.{column}"], 0) for file in files] + [(file[f"max.{column}"], 1) for file in files]
    deepest = depth = 0
    for _, end in sorted(edges):
        depth += -1 if end else 1
        deepest = max(deepest, depth)
    return deepest


def _condition(files: Sequence[_File], column: pa.Field) -> str:
    stated = layout.lake_column(column.name)
    low = min(file[f"min.{stated}"] for file in files)
    high = max(file[f"max.{stated}"] for file in files)
    name = quote(column.name)
    return f"{name} >= {_literal(low, column.type)} AND {name} <= {_literal(high, column.type)}"


def _literal_kind(kind: pa.DataType) -> bool:
    """Tell whether bounds of this type can be written into a condition without loss."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal(kind)
    )


def _literal(value: Any, kind: pa.DataType) -> str:
    """A bound as Spark's SQL writes it."""
    if isinstance(value, str):
        # By its bytes: no setting of the session then has a say in how it is read.
        text = f"CAST(X'{value.encode().hex()}' AS STRING)"
        return text
    if isinstance(value, datetime):
        name = "TIMESTAMP_LTZ" if pa.types.is_timestamp(kind) and kind.tz else "TIMESTAMP_NTZ"
        zone = "Z" if name == "TIMESTAMP_LTZ" else ""
        return f"{name} '{value.replace(tzinfo=None).isoformat(sep=' ')}{zone}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, Decimal):
        return f"CAST('{value:f}' AS DECIMAL(38,{max(0, -int(value.as_tuple().exponent))}))"
    return f"CAST({value} AS {spark_type('bound', kind)})"
