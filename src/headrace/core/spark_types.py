"""An Arrow type as Spark's SQL names it.

Only types that Delta holds without loss have a name here. A column of another type is refused, once, with its
name, before anything is written.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.core.errors import Definite

_SPARK = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.large_string(): "STRING",
    pa.binary(): "BINARY",
    pa.large_binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP",
}


def spark_type(column: str, kind: pa.DataType) -> str:
    """The type as Spark's DDL names it; `column` is for the error."""
    if pa.types.is_decimal128(kind) and kind.scale >= 0:
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"ARRAY<{spark_type(column, kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{spark_type(column, kind.key_type)},{spark_type(column, kind.item_type)}>"
    if kind in _SPARK:
        return _SPARK[kind]
    raise Definite(
        "LAKE_TYPE",
        f'column "{column}" has a type that a Delta table cannot hold',
        detail=str(kind),
        hint="this is a bug in the type mapping; leave the table out and report the column's type",
    )
