"""The difference between two contents of one table, as updates that lead from the one to the other.

    keyed       old, new ─► key events (`core.events`): INSERT where only the new has the key, DELETE where
                            only the old has it, PUT where the rows differ in any bit
    any table   old, new ─► history: each row as often as its copies went (-1) or came (+1)

Folding the events onto the old rows gives the new ones, and the sum of the history is what was there less in
the one than in the other. Rows are told apart by keycode, so that -0.0 and 0.0, or two NaNs, differ. What
comes out has wide offsets (`core.columns`): rows of one key range may pass 2 GiB in a column. Called by a
reconcile, for one range of keys at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.core.changes import TIMESTAMP
from headrace.core.columns import Ints, wide, wide_schema
from headrace.core.events import Event
from headrace.core.groups import group
from headrace.core.history import history_schema
from headrace.core.keycode import keycode
from headrace.core.schema import TableSchema

NOBODY = 0  # the xid of what no transaction of the source did


@dataclass(frozen=True, slots=True)
class Moment:
    """When the difference takes place, and where in it the numbering of its changes begins."""

    time: int
    commit_ts: int
    first: int = 0


def doubled(schema: TableSchema, rows: pa.Table) -> bool:
    """Whether two rows have one key."""
    codes = pl.Series(_codes(wide(rows), schema.key))
    return bool(codes.n_unique() < len(codes))


def events(schema: TableSchema, old: pa.Table, new: pa.Table, moment: Moment) -> pa.Table:
    """The key events that make the new rows of the old; no two rows of either have one key."""
    both = _frame(schema, old).join(_frame(schema, new), on="key", how="full", coalesce=True, suffix="_new")
    came, went = pl.col("row").is_null(), pl.col("row_new").is_null()
    changed = both.filter(came | went | (pl.col("whole") != pl.col("whole_new"))).sort("key")
    kinds = changed.select(
        pl.when(came).then(int(Event.INSERT)).when(went).then(int(Event.DELETE)).otherwise(int(Event.PUT))
    ).to_series()
    # Of rows that go, the old one stands in the event; the new ones follow all old ones here.
    source = changed.select(
        pl.when(went).then(pl.col("row")).otherwise(pl.col("row_new") + old.num_rows)
    ).to_series()
    chosen = pa.array(source.to_numpy().astype(np.int64))
    rows = _together(old, new)
    named = {"_key": changed["key"].to_arrow().cast(pa.large_binary())}
    named |= _meta(moment, np.arange(changed.height, dtype=np.int64))
    named["_event"] = pa.array(kinds.to_numpy().astype(np.uint8))
    named |= {f"c{i}": rows.column(name).take(chosen) for i, name in enumerate(schema.names)}
    named["_from"] = pa.nulls(changed.height, pa.large_binary())
    return pa.table(named)


def history(schema: TableSchema, old: pa.Table, new: pa.Table, moment: Moment) -> pa.Table:
    """What went and what came, row by row, as history tells it."""
    rows = _together(old, new)
    codes = _codes(rows, schema.names)
    groups = group(codes)
    sums = groups.sums(np.where(np.arange(rows.num_rows) < old.num_rows, -1, 1))
    uneven = np.flatnonzero(sums)
    copies = np.abs(sums[uneven])
    chosen = pa.array(np.repeat(groups.first[uneven], copies))
    diffs = np.repeat(np.sign(sums[uneven]), copies)
    meta = _meta(moment, np.arange(len(diffs), dtype=np.int64))
    values = [rows.column(name).take(chosen) for name in schema.names]
    ours = [meta["_time"], pa.array(diffs, pa.int64()), meta["_ordinal"], meta["_xid"], meta["_commit_ts"]]
    return pa.Table.from_arrays([*values, *ours], schema=wide_schema(history_schema(schema)))


def _together(old: pa.Table, new: pa.Table) -> pa.Table:
    return pa.concat_tables([wide(old), wide(new).cast(wide_schema(old.schema))])


def _frame(schema: TableSchema, rows: pa.Table) -> pl.DataFrame:
    rows = wide(rows)
    key = pl.Series("key", _codes(rows, schema.key))
    return pl.DataFrame(
        {"key": key, "whole": pl.Series(_codes(rows, schema.names)), "row": np.arange(rows.num_rows)}
    )


def _codes(rows: pa.Table, names: tuple[str, ...]) -> pa.Array:
    return keycode([rows.column(name) for name in names])


def _meta(moment: Moment, numbers: Ints) -> dict[str, pa.Array]:
    count = len(numbers)
    return {
        "_time": pa.array(np.full(count, moment.time), pa.int64()),
        "_ordinal": pa.array(numbers + moment.first, pa.int64()),
        "_xid": pa.array(np.full(count, NOBODY), pa.int64()),
        "_commit_ts": pa.array(np.full(count, moment.commit_ts), pa.int64()).cast(TIMESTAMP),
    }
