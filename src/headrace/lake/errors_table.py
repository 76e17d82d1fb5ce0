"""The errors table of a source: values that have no faithful lake form, and errors of whole tables.

A value that its column's lake type can't hold is NULL in the table and has a row here, with the source's
own text in `raw`. When the row that held it goes, a second row with `diff` -1 retracts the first; so the
standing errors are those whose diffs add up to more than zero. An error of a whole table has no key,
column or raw text. Like history, rows count only up to the newest mark's time.
"""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa

from headrace.core.names import TableName
from headrace.lake import datafile
from headrace.lake.store import Store
from headrace.lake.table import LakeTable

ERRORS = pa.schema(
    [
        pa.field("table", pa.string(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("column", pa.string()),
        pa.field("raw", pa.string()),
        pa.field("code", pa.string(), nullable=False),
        pa.field("time", pa.int64(), nullable=False),
        pa.field("diff", pa.int64(), nullable=False),
    ]
)


def batch(table: TableName, *, keys: Any, column: str, raw: Any, code: str, time: Any, diff: Any) -> pa.Table:
    """Rows for many values of one column of a table; arrays of one length."""
    count = len(keys)
    return pa.table(
        [
            pa.array([str(table)] * count, pa.string()),
            keys,
            pa.array([column] * count, pa.string()),
            raw,
            pa.array([code] * count, pa.string()),
            time,
            diff,
        ],
        schema=ERRORS,
    )


def standing(store: Store, folder: str, table: TableName, time: int | None = None) -> pl.DataFrame:
    """The errors of a table that were not retracted (as of a time): key, column, raw text, how often each."""
    told = said(store, folder, table)
    return standing_of(told if time is None else told.filter(pl.col("time") <= time))


def said(store: Store, folder: str, table: TableName) -> pl.DataFrame:
    """All that was ever said of a table and retracted: key, column, raw text, diff, time."""
    lake_table = LakeTable(store, folder)
    lake_table.refresh()
    mine = [
        datafile.read(
            store, lake_table.folder, path, ["table", "key", "column", "raw", "diff", "time"]
        ).filter(pa.compute.field("table") == str(table))
        for path in lake_table.files()
    ]
    if not mine:
        texts = {"key": pl.String, "column": pl.String, "raw": pl.String}
        return pl.DataFrame(schema=texts | {"diff": pl.Int64, "time": pl.Int64})
    frame = pl.from_arrow(pa.concat_tables(mine).drop_columns(["table"]))
    assert isinstance(frame, pl.DataFrame)
    return frame


def standing_of(told: pl.DataFrame) -> pl.DataFrame:
    """What of this stands."""
    summed = told.group_by("key", "column", "raw").agg(pl.col("diff").sum())
    return summed.filter(pl.col("diff") > 0)


def taken_back(rows: pa.Table, time: int) -> pa.Table:
    """What retracts these rows at a time."""
    rows = rows.set_column(ERRORS.get_field_index("time"), ERRORS.field("time"), pa.repeat(time, len(rows)))
    diffs = pa.compute.negate(rows["diff"])
    return rows.set_column(ERRORS.get_field_index("diff"), ERRORS.field("diff"), diffs)
