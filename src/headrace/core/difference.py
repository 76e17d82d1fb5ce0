"""The difference between two contents of one table, as updates that lead from the one to the other.

    keyed       old, new ─► key events (`core.key_events`): INSERT where only the new has the key, DELETE
                            where only the old has it, PUT where the rows differ in any bit
    any table   old, new ─► history: each row as often as its copies went (-1) or came (+1)

Both express the result of `updates`, the difference of two collections (`core.collection`); a proof reports
rows that differ by it, too. Folding the events onto the old rows gives the new ones, and the sum of the
history is the new contents minus the old. The results have wide offsets (`core.columns`): rows of one key
range may pass 2 GiB in a column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.core.change_batch import TIMESTAMP
from headrace.core.collection import DIFF, between, with_diff
from headrace.core.columns import Ints, ints, wide, wide_schema
from headrace.core.history import history_schema
from headrace.core.key_events import KeyEvent
from headrace.core.keycode import keycode
from headrace.core.schema import TableSchema


@dataclass(frozen=True, slots=True)
class DifferenceMoment:
    """The moment of a difference, and where in it the numbering of its changes begins."""

    time: int
    commit_ts: int
    first: int = 0


def repeats_key(schema: TableSchema, rows: pa.Table) -> bool:
    """Tell whether two rows have one key."""
    codes = pl.Series(_codes(wide(rows), schema.key))
    return bool(codes.n_unique() < len(codes))


def events(schema: TableSchema, old: pa.Table, new: pa.Table, moment: DifferenceMoment) -> pa.Table:
    """The key events that make the new rows of the old; no two rows of either have one key."""
    found = updates(schema, old, new)
    codes = keycode([found.column(f"c{schema.names.index(name)}") for name in schema.key])
    frame = pl.DataFrame({"key": pl.Series(codes), "diff": ints(found, DIFF), "row": np.arange(len(codes))})
    row = {diff: pl.col("row").filter(pl.col("diff") == diff).first() for diff in (-1, 1)}
    changed = frame.group_by("key").agg(old=row[-1], new=row[1]).sort("key")
    came, went = pl.col("old").is_null(), pl.col("new").is_null()
    kinds = changed.select(
        pl.when(came)
        .then(int(KeyEvent.INSERT))
        .when(went)
        .then(int(KeyEvent.DELETE))
        .otherwise(int(KeyEvent.PUT))
    ).to_series()
    # Of rows that go, the old one stands in the event.
    chosen = pa.array(changed.select(pl.coalesce("new", "old")).to_series().to_numpy().astype(np.int64))
    named = {"_key": changed["key"].to_arrow().cast(pa.large_binary())}
    named |= _meta(schema, moment, np.arange(changed.height, dtype=np.int64))
    named["_event"] = pa.array(kinds.to_numpy().astype(np.uint8))
    named |= {f"c{i}": found.column(f"c{i}").take(chosen) for i in range(len(schema.names))}
    named["_from"] = pa.nulls(changed.height, pa.large_binary())
    return pa.table(named)


def history(schema: TableSchema, old: pa.Table, new: pa.Table, moment: DifferenceMoment) -> pa.Table:
    """The rows that went and those that came, one by one, as history tells it."""
    found = updates(schema, old, new)
    copies = np.abs(ints(found, DIFF))
    chosen = pa.array(np.repeat(np.arange(found.num_rows), copies))
    diffs = np.repeat(np.sign(ints(found, DIFF)), copies)
    meta = _meta(schema, moment, np.arange(len(diffs), dtype=np.int64))
    values = [found.column(f"c{i}").take(chosen) for i in range(len(schema.names))]
    behind = (meta[name] for name in ("_ordinal", "_transaction", "_commit_ts"))
    ours = [meta["_time"], pa.array(diffs, pa.int64()), *behind]
    wanted = wide_schema(history_schema(schema))
    own = [each.cast(kind) for each, kind in zip(ours, wanted.types[len(values) :], strict=True)]
    return pa.Table.from_arrays([*values, *own], schema=wanted)


def updates(schema: TableSchema, old: pa.Table, new: pa.Table) -> pa.Table:
    """Find the updates that lead from the old rows to the new ones: columns by number, and `DIFF`.

    By number, so that no user's name collides with ours.
    """
    rows = [wide(each).select(list(schema.names)) for each in (old, new)]
    named = [each.rename_columns([f"c{i}" for i in range(len(schema.names))]) for each in rows]
    one, other = (with_diff(each, pa.array(np.ones(each.num_rows, np.int64))) for each in named)
    return between(one, other.cast(one.schema))


def _codes(rows: pa.Table, names: tuple[str, ...]) -> pa.Array:
    return keycode([rows.column(name) for name in names])


def _meta(schema: TableSchema, moment: DifferenceMoment, numbers: Ints) -> dict[str, pa.Array]:
    count = len(numbers)
    return {
        "_time": pa.array(np.full(count, moment.time), pa.int64()),
        "_ordinal": pa.array(numbers + moment.first, pa.int64()),
        "_transaction": pa.repeat(pa.scalar(schema.transaction.nobody, schema.transaction.type), count),
        "_commit_ts": pa.array(np.full(count, moment.commit_ts), pa.int64()).cast(TIMESTAMP),
    }
