"""Values of the lake as text, and back in Spark's SQL: `Decoder.print_values` and `Decoder.cast`.

The text is exact, and is the inside of an SQL literal. It depends only on the lake's type: a fraction of a
second has six digits, or none; bytes are hexadecimal, as the servers' clients show them.

    boolean  1  0           double     0.1  1e20     timestamp, timestamp_ntz   2016-11-04 13:51:30.100000
    binary   0x00FF         decimal    -12.50        array<float>               [1.5,2]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.columns import contiguous
from headrace.core.schema import Column
from headrace.core.spark_types import spark_type
from headrace.decode import printing
from headrace.decode.mysql import doubles

_ZERO_FRACTION = r"\.000000$"


def print_values(values: pa.Array) -> pa.Array:
    """The values as text; NULL stays NULL."""
    found = contiguous(values)
    for matches, spell in _KINDS:
        if matches(found.type):
            return contiguous(spell(found))
    return printing.print_values(found)


def _booleans(values: Any) -> Any:
    return pc.if_else(values, "1", "0")


def _floats(values: Any) -> Any:
    # The shortest digits of a float identify it as a float; read as a double they are another number.
    exact = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy()
    return pc.if_else(values.is_valid(), doubles.texts(exact), pa.scalar(None, pa.string()))


def _bytes(values: Any) -> Any:
    hexed = pl.Series(values=values.cast(pa.large_binary())).bin.encode("hex").str.to_uppercase()
    return pc.binary_join_element_wise("0x", hexed.to_arrow().cast(pa.string()), "")


def _timestamps(values: Any) -> Any:
    plain = values.cast(pa.timestamp("us", tz=values.type.tz)).view(pa.int64()).view(pa.timestamp("us"))
    return pc.replace_substring_regex(plain.cast(pa.string()), _ZERO_FRACTION, "")


def _lists(values: Any) -> Any:
    numbers = print_values(values.flatten())
    lengths = pc.fill_null(pc.list_value_length(values), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths.cast(pa.int64()))])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets.cast(pa.int32()), numbers), ",")
    texts = pc.binary_join_element_wise("[", joined, "]", "")
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.string()))


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_boolean, _booleans),
    (pa.types.is_floating, _floats),
    (pa.types.is_binary, _bytes),
    (pa.types.is_large_binary, _bytes),
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_list, _lists),
)


def cast(column: Column, text: str) -> str:
    """The inverse: a Spark SQL expression for a column's value from its printed text."""
    kind = column.type
    if pa.types.is_string(kind):
        return text
    if pa.types.is_boolean(kind):
        return f"({text} = '1')"
    if pa.types.is_binary(kind):
        return f"unhex(substr({text}, 3))"
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return f"CAST(concat({text}, '+00:00') AS TIMESTAMP)"
    if pa.types.is_list(kind):
        return f"from_json({text}, '{spark_type(column.name, kind)}')"
    return f"CAST({text} AS {spark_type(column.name, kind)})"
