"""The name of a row in `errors/`: the values of its identity as JSON text.

    {"id":7}      {"code":"a b","day":"2016-11-04"}

Two rows of one table have the same text only where they are equal, so whatever JSON or Polars would run
together, or can't write, is text within the JSON: floats (JSON knows no NaN), decimals, bytes in hexadecimal,
and dates and timestamps, of which PostgreSQL has more than Polars can print (it ends the process at the year
294247).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.columns import contiguous
from headrace.core.schema import TableSchema


def key_texts(schema: TableSchema, rows: pa.Table) -> pl.Series:
    """The identity of each row as JSON text."""
    columns = {name: _plain(contiguous(rows.column(name))) for name in schema.identity}
    frame = pl.from_arrow(pa.table(columns))
    assert isinstance(frame, pl.DataFrame)
    return frame.select(pl.struct(pl.all()).struct.json_encode().alias("key"))["key"]


def _plain(array: Any) -> Any:
    """The values as what JSON has a form for, and one only."""
    kind = array.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        values = _plain(array.flatten())
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
        return pa.ListArray.from_arrays(offsets, values, mask=array.is_null())
    if pa.types.is_temporal(kind):
        return _moments(array)
    series = pl.Series(values=array)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return series.bin.encode("hex").to_arrow()
    if pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        return series.cast(pl.String).to_arrow()
    return array


def _moments(array: Any) -> Any:
    unit, width = ("D", pa.int32()) if pa.types.is_date(array.type) else ("us", pa.int64())
    numbers = pc.fill_null(array.view(width), 0).to_numpy().astype(np.int64)
    texts = np.datetime_as_string(numbers.view(f"datetime64[{unit}]"))
    shown = pa.array(texts.tolist(), pa.string(), mask=array.is_null().to_numpy(zero_copy_only=False))
    return pc.replace_substring(shown, "T", " ")
