"""Rows as text, the same text from a server and from a lake, made on two independent ways.

The validators compare what the source holds with what the lake holds. The server itself turns its values
into text (`oracle`; nothing of `headrace.decode` is asked, which is what is on trial), Polars the lake's:

    bool                 true, false
    integers, oid        decimal
    real, double         the IEEE bits as an integer, so that -0 is not 0; NaN
    numeric(p,s)         decimal with s digits
    bytea                hex
    date, timestamp(tz)  days, microseconds since 1970 (UTC)
    arrays               {...} of the elements, each as hex of its text, N for NULL, and a comma
    everything else      as the server prints it under pinned settings

A value that the lake's type cannot hold (infinity, NaN in a decimal, an array of two dimensions or with such
an element) is NULL on both sides: the lake keeps it in its errors table. Rows are multisets: a frame has one
line for each distinct row, and how many times it is there in `n`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class Rows:
    """A multiset of rows: columns `c0 ... ck` as text and `n`, how many times; and what `c<i>` is called."""

    names: tuple[str, ...]
    frame: pl.DataFrame

    def select(self, names: Sequence[str]) -> Rows:
        """Select these columns of the rows, in this order."""
        order = [pl.col(f"c{self.names.index(name)}").alias(f"c{i}") for i, name in enumerate(names)]
        return Rows(tuple(names), counted(self.frame.select(*order, "n")))


def lake_rows(table: pa.Table) -> Rows:
    """Read a lake's table."""
    frame = texts(table).with_columns(n=pl.lit(1, pl.Int64))
    return Rows(tuple(table.schema.names), counted(frame))


def texts(table: pa.Table) -> pl.DataFrame:
    """The columns of a lake's table as text, `c0 ... ck`, row for row."""
    columns = [_text(column).alias(f"c{i}") for i, column in enumerate(table.columns)]
    return pl.DataFrame(columns) if columns else pl.DataFrame()


def counted(frame: pl.DataFrame) -> pl.DataFrame:
    """One line for each distinct row, with the sum of `n`; rows that are there no times are left out."""
    columns = [name for name in frame.columns if name != "n"]
    return frame.group_by(columns).agg(pl.col("n").sum()).filter(pl.col("n") != 0)


def difference(have: pl.DataFrame, want: pl.DataFrame) -> pl.DataFrame:
    """The rows of which there are too many (n > 0) or too few (n < 0)."""
    return counted(pl.concat([have, want.with_columns(-pl.col("n"))]))


def _text(column: Any) -> pl.Series:
    """One column of a lake's table as text."""
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list_text(column)
    if pa.types.is_floating(kind):
        return _float_text(column)
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64())
    elif pa.types.is_date(kind):
        column = column.cast(pa.int32())
    series = pl.Series(values=column)
    if series.dtype == pl.Binary:
        return series.bin.encode("hex")
    return series.cast(pl.String)


def _float_text(column: Any) -> pl.Series:
    width = np.int32 if column.type == pa.float32() else np.int64
    values = pc.fill_null(column, 0.0).to_numpy()
    frame = pl.DataFrame(
        {
            "bits": np.ascontiguousarray(values).view(width),
            "nan": np.isnan(values),
            "null": column.is_null().to_numpy(),
        }
    )
    text = (
        pl.when("null").then(None).when("nan").then(pl.lit("NaN")).otherwise(pl.col("bits").cast(pl.String))
    )
    return frame.select(text.alias("text")).to_series()


def _list_text(column: Any) -> pl.Series:
    whole = column.combine_chunks()
    elements = pl.DataFrame(
        {
            "row": pl.Series(values=pc.list_parent_indices(whole)),
            "e": _text(pa.chunked_array([pc.list_flatten(whole)])),
        }
    )
    hexed = pl.col("e").cast(pl.Binary).bin.encode("hex").fill_null("N")
    joined = elements.group_by("row").agg((hexed + ",").str.join("").alias("text"))
    rows = pl.DataFrame(
        {"row": np.arange(len(whole)), "null": whole.is_null().to_numpy(zero_copy_only=False)}
    )
    found = rows.join(joined.cast({"row": pl.Int64}), on="row", how="left", maintain_order="left")
    text = (
        pl.when("null")
        .then(None)
        .otherwise(pl.concat_str(pl.lit("{"), pl.col("text").fill_null(""), pl.lit("}")))
    )
    return found.select(text.alias("text")).to_series()
