"""The errors table of a source: values that have no faithful lake form, and errors of whole tables.

A value that its column's lake type can't hold is NULL in the table and has a row here, with the source's
own text in `raw`. When the row that held it goes, a second row with `diff` -1 retracts the first; so the
standing errors are those whose diffs add up to more than zero. An error of a whole table has no key,
column or raw text. Like history, rows count only up to the newest mark's time.

    file    rows in the order of (table, key), in small row groups: the log and the file have bounds of both

Most of them stand for as long as their row does, so there may be as many as there are rows. A merge that has
to know what stands for its rows reads those keys (`all_said`); whoever needs all of a table's goes part by
part (`standing_in_parts`). What was said and taken back at one time is never written, and what was taken back
before history begins goes with it (`net`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.core.names import TableName
from headrace.lake.format import datafile
from headrace.lake.format.plan import DataFile
from headrace.lake.format.vector import FileRows
from headrace.lake.log.table import LakeTable
from headrace.lake.store.contract import Store

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
ROWS_PER_GROUP = 8192
ROWS_PER_FILE = 1 << 20
PART_ROWS = 200_000
FILE_BYTES = 128 << 20  # in memory

_NOTHING = pl.DataFrame(
    schema={"key": pl.String, "column": pl.String, "raw": pl.String, "diff": pl.Int64, "time": pl.Int64}
)
_LAST = "\U0010ffff"  # behind every key: they are JSON


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


def standing(
    store: Store, folder: str, table: TableName, time: int | None = None, keys: pl.Series | None = None
) -> pl.DataFrame:
    """The errors of a table that were not retracted (as of a time; of these keys): how often each stands."""
    rows = all_said(store, folder, table, keys)
    return standing_of(rows if time is None else rows.filter(pl.col("time") <= time))


def all_said(store: Store, folder: str, table: TableName, keys: pl.Series | None = None) -> pl.DataFrame:
    """All that was ever said of a table (of these keys) and retracted; only what may hold it is read."""
    wanted = None if keys is None else sorted(keys.unique().to_list())
    frames = [_NOTHING]
    for piece in _pieces(store, folder, table, wanted):
        frame = piece.read(store, folder).filter(pl.col("table") == str(table)).select(_NOTHING.columns)
        frames.append(frame if keys is None else frame.filter(pl.col("key").is_in(keys.implode())))
    return pl.concat(frames)


def standing_in_parts(store: Store, folder: str, table: TableName) -> Iterator[pl.DataFrame]:
    """Read like `read.intervals`, in parts of about `PART_ROWS`."""
    for said_of_some in said_in_parts(store, folder, table):
        part = standing_of(said_of_some)
        if part.height:
            yield part


def said_in_parts(store: Store, folder: str, table: TableName) -> Iterator[pl.DataFrame]:
    """Read like `all_said`, in parts of about `PART_ROWS`, each with all that was said of its keys."""
    for rows in _in_parts(store, folder, list(_pieces(store, folder, table))):
        part = rows.filter(pl.col("table") == str(table)).select(_NOTHING.columns)
        if part.height:
            yield part


def rewritten(store: Store, folder: str, paths: Sequence[str], until: int | None) -> Iterator[pa.Table]:
    """Put these files together: rows for files, in the order of keys.

    They hold all that was said of their keys up to `until`, if that is given.
    """
    pieces = [piece for path in paths for piece in _pieces_of(store, folder, path)]
    held: list[pa.Table] = []
    for rows in _in_parts(store, folder, pieces):
        held.append(net(rows.to_arrow().cast(ERRORS), until))
        if sum(each.num_rows for each in held) >= ROWS_PER_FILE or sum(e.nbytes for e in held) >= FILE_BYTES:
            yield pa.concat_tables(held)
            held = []
    if sum(each.num_rows for each in held):
        yield pa.concat_tables(held)


Place = tuple[str, str]  # a table and a key: what files are in the order of


@dataclass(frozen=True, slots=True)
class _Piece:
    """A row group of a file, and between which places its rows stand."""

    path: str
    number: int
    rows: int
    low: Place
    high: Place

    def may_hold(self, table: str, keys: Sequence[str] | None) -> bool:
        of_one = keys is not None and self.low[0] == self.high[0]
        return self.low[0] <= table <= self.high[0] and (
            not of_one or _between(keys or (), self.low[1], self.high[1])
        )

    def read(self, store: Store, folder: str) -> pl.DataFrame:
        frame = pl.from_arrow(
            datafile.read(store, folder, FileRows(self.path), ERRORS.names, groups=[self.number])
        )
        assert isinstance(frame, pl.DataFrame)
        return frame


def _pieces(
    store: Store, folder: str, table: TableName, keys: Sequence[str] | None = None
) -> Iterator[_Piece]:
    """Find where errors of a table (of these keys) may stand: by the log's word on files, and their own."""
    lake_table = LakeTable(store, folder)
    lake_table.refresh()
    name = str(table)
    for file in lake_table.describe().to_pylist():
        of_keys = keys is None or _between(keys, file.get("min.key"), file.get("max.key"))
        if of_keys and _between([name], file.get("min.table"), file.get("max.table")):
            yield from (p for p in _pieces_of(store, folder, file["path"]) if p.may_hold(name, keys))


def _pieces_of(store: Store, folder: str, path: str) -> Iterator[_Piece]:
    for number, group in enumerate(datafile.groups(store, folder, path, ["table", "key"])):
        (first, last), (low, high) = group.bounds["table"], group.bounds["key"]
        one = first is not None and first == last and low is not None and high is not None
        bounds = ((first, low), (last, high)) if one else ((first or "", ""), (last or _LAST, _LAST))
        yield _Piece(path, number, group.rows, *bounds)


def _between(values: Sequence[str], low: str | None, high: str | None) -> bool:
    """Tell whether one of these values, in their order, lies between the bounds, as far as they are known."""
    if low is None or high is None:
        return True
    at = bisect_left(values, low)
    return at < len(values) and values[at] <= high


def _in_parts(store: Store, folder: str, pieces: list[_Piece]) -> Iterator[pl.DataFrame]:
    """All rows of these, in parts of about `PART_ROWS`, each with all that is there of its places."""
    left = sorted(pieces, key=lambda piece: piece.high)
    low: Place = ("", "")
    while left:
        ends = np.cumsum([piece.rows for piece in left])
        high = left[min(int(np.searchsorted(ends, PART_ROWS)), len(left) - 1)].high
        found = [piece.read(store, folder) for piece in left if piece.low <= high]
        yield pl.concat(found).filter(_behind(low) & ~_behind(high))
        left = [piece for piece in left if piece.high > high]
        low = high


def _behind(place: Place) -> pl.Expr:
    table, key = place
    return (pl.col("table") > table) | (
        (pl.col("table") == table) & (pl.col("key").fill_null("") > key if key else pl.lit(value=True))
    )


def standing_of(rows: pl.DataFrame) -> pl.DataFrame:
    """Pick of these errors those that stand."""
    summed = rows.group_by("key", "column", "raw").agg(pl.col("diff").sum())
    return summed.filter(pl.col("diff") > 0)


def taken_back(rows: pa.Table, time: int) -> pa.Table:
    """The rows that retract these at a time."""
    rows = rows.set_column(ERRORS.get_field_index("time"), ERRORS.field("time"), pa.repeat(time, len(rows)))
    diffs = pa.compute.negate(rows["diff"])
    return rows.set_column(ERRORS.get_field_index("diff"), ERRORS.field("diff"), diffs)


def net(rows: pa.Table, until: int | None = None) -> pa.Table:
    """Net rows: equal sums at every time, or at every time after `until`, in the order of keys.

    What was said and taken back at one time is gone; up to `until`, before which nobody reads any more, what
    was taken back later too.
    """
    frame = pl.from_arrow(rows.select(ERRORS.names))
    assert isinstance(frame, pl.DataFrame)
    names = [name for name in ERRORS.names if name not in ("time", "diff")]
    if until is not None:
        last = pl.col("time").filter(pl.col("time") <= until).max().over(names)
        frame = frame.with_columns(time=pl.when(pl.col("time") <= until).then(last).otherwise("time"))
    frame = frame.group_by(*names, "time").agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
    ordered = frame.select(ERRORS.names).sort("table", "key", "column", "raw", "time", "diff")
    return ordered.to_arrow().cast(ERRORS)


def write(store: Store, folder: str, name: str, rows: pa.Table) -> DataFile:
    """A file of errors, in the order of keys; a reader of few keys reads little of it."""
    ids = range(1, len(ERRORS) + 1)
    return datafile.write(store, folder, name, rows, row_group=ROWS_PER_GROUP, ids=ids)
