"""Values without a lake form: how their raw text follows its row until the row goes.

An infinite timestamp is NULL in the table, and its text stands in `errors/` for as long as the row has
it. To know when it goes, a column that met such a value gets a *shadow*: a text column that holds the
raw value where the lake's column cannot, and NULL elsewhere. Shadows ride along with the row through
`core.key_events` and `core.fold` like any column, so that an unchanged TOAST value, a key change or a
delete treats raw text exactly as it treats the value; what comes out of the fold with a shadow that is
not NULL is a row for `errors/`, +1 when it appears and -1 when it goes; where an update leaves it as it is,
nothing (`write_errors`).

A truncation takes them with its rows; where errors come straight from the stream (full before-images) it
takes back what was said.

Shadows exist inside tasks only: they are in no file of a table and in no history.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.history import OWN
from headrace.core.schema import Column, TableSchema
from headrace.core.truncation import generations
from headrace.lake.format import layout
from headrace.lake.log import errors_table
from headrace.lake.store.contract import Store
from headrace.pipeline.tasks.key_text import key_texts
from headrace.pipeline.tasks.table_task import Errors, TableTask, to_ipc

NO_LAKE_FORM = "VALUE_WITHOUT_LAKE_FORM"
FEW = 1000  # rows that travel with an outcome: many tasks of an epoch then make one file


def _name(column: int) -> str:
    return f"\0{column}"  # no identifier of a source holds a NUL


def extend(task: TableTask) -> TableSchema:
    """The table's schema with its raw columns behind the user's columns."""
    extra = tuple(Column(_name(i), pa.string(), "text", "text") for i in task.raw_columns)
    return replace(task.schema, columns=task.schema.columns + extra)


def widen(task: TableTask, changes: pa.Table, bad: pa.Table) -> pa.Table:
    """A change batch with the raw columns of both images, and of the holes, put in."""
    width = len(task.schema.columns)
    for offset, column in enumerate(task.raw_columns):
        number = width + offset
        for side in ("n", "o"):
            changes = changes.append_column(f"{side}{number}", _raw(changes, bad, side, column))
        if f"u{column}" in changes.column_names:
            changes = changes.append_column(f"u{number}", changes.column(f"u{column}"))
    return changes


def _raw(changes: pa.Table, bad: pa.Table, side: str, column: int) -> pa.Array:
    mask = pc.and_(pc.equal(bad["side"], side), pc.equal(bad["column"], column))
    mine = pl.from_arrow(bad.filter(mask).select(["_time", "_ordinal", "raw"]))
    rows = pl.from_arrow(changes.select(["_time", "_ordinal"]))
    assert isinstance(mine, pl.DataFrame)
    assert isinstance(rows, pl.DataFrame)
    joined = rows.join(mine, on=["_time", "_ordinal"], how="left", maintain_order="left")
    return joined["raw"].to_arrow().cast(pa.string())


def attach(store: Store, task: TableTask, rows: pa.Table) -> pa.Table:
    """Rows of the lake with the raw texts that `errors/` holds for them now."""
    if not task.raw_columns:
        return rows
    keys = key_texts(task.schema, rows)
    live = errors_table.standing(store, task.errors_folder, task.name, keys=keys)
    for column in task.raw_columns:
        name = task.schema.columns[column].name
        of_column = live.filter(pl.col("column") == name).select("key", "raw")
        joined = keys.to_frame("key").join(of_column, on="key", how="left", maintain_order="left")
        rows = rows.append_column(_name(column), joined["raw"].to_arrow().cast(pa.large_string()))
    return rows


def drop(task: TableTask, rows: pa.Table) -> pa.Table:
    """The rows without their raw_columns."""
    return rows.drop_columns([n for n in map(_name, task.raw_columns) if n in rows.column_names])


def write_errors(store: Store, task: TableTask, epoch: int, *pieces: pa.Table) -> Errors:
    """The rows for `errors/` as a task returns them: a few along with it, many in files."""
    if not any(piece.num_rows for piece in pieces):
        return ()
    rows = errors_table.net(pa.concat_tables(pieces))
    if rows.num_rows <= FEW:
        return (to_ipc(rows),) if rows.num_rows else ()
    return tuple(
        errors_table.write(
            store, task.errors_folder, layout.file_name(epoch), rows.slice(start, errors_table.ROWS_PER_FILE)
        )
        for start in range(0, rows.num_rows, errors_table.ROWS_PER_FILE)
    )


def errors(task: TableTask, history: pa.Table) -> pa.Table:
    """The rows for `errors/` that this piece of history (with raw_columns) gives rise to."""
    tables = [errors_table.ERRORS.empty_table()]
    for column in task.raw_columns:
        raw = history.column(_name(column))
        rows = history.filter(pc.is_valid(raw))
        if rows.num_rows:
            tables.append(_error_rows(task, task.schema.columns[column].name, rows, _name(column)))
    return pa.concat_tables(tables)


def _error_rows(task: TableTask, column: str, rows: pa.Table, shadow: str) -> pa.Table:
    time, diff = rows.column_names[-len(OWN) :][:2]
    return errors_table.batch(
        task.name,
        keys=key_texts(task.schema, rows).to_arrow().cast(pa.string()),
        column=column,
        code=NO_LAKE_FORM,
        raw=rows.column(shadow).cast(pa.string()),
        time=rows.column(time),
        diff=rows.column(diff),
    )


def retract_truncated(task: TableTask, history: pa.Table) -> pa.Table:
    """Take back, at each truncation, the errors that this history before it gave rise to.

    For tables whose errors come straight from the stream: errors add up, so taking back all that was said
    leaves nothing standing, whatever stood in between.
    """
    taken = [errors_table.ERRORS.empty_table()]
    if not task.truncations or not task.raw_columns:
        return taken[0]
    time, _, ordinal = history.column_names[-len(OWN) :][:3]
    placed = pa.table({"_time": history.column(time), "_ordinal": history.column(ordinal)})
    generation = generations(task.truncations, placed)
    for number in np.unique(generation[generation < len(task.truncations)]):
        said = errors(task, history.filter(pa.array(generation == number)))
        taken.append(errors_table.taken_back(said, task.truncations[int(number)].time))
    return pa.concat_tables(taken)


def standing(
    store: Store, task: TableTask, epoch: int, time: int, *, of: TableTask | None = None, diff: int = -1
) -> Errors:
    """Take back all errors of the table that stand in the lake; or say those `of` a copy again."""
    found: Errors = ()
    for live in errors_table.standing_in_parts(store, (of or task).errors_folder, task.name):
        # As many rows as stand: each is taken back by one of its own.
        rows = live.select(pl.exclude("diff").repeat_by("diff").explode())
        by_column = rows.group_by("column")
        tables = [_standing_of(task, str(column), some, time, diff) for (column,), some in by_column]
        found += write_errors(store, task, epoch, *tables)
    return found


def _standing_of(task: TableTask, column: str, rows: pl.DataFrame, time: int, diff: int) -> pa.Table:
    return errors_table.batch(
        task.name,
        keys=rows["key"].to_arrow().cast(pa.string()),
        column=column,
        code=NO_LAKE_FORM,
        raw=rows["raw"].to_arrow().cast(pa.string()),
        time=pa.array(np.full(rows.height, time), pa.int64()),
        diff=pa.array(np.full(rows.height, diff), pa.int64()),
    )


def withdraw(task: TableTask, rows: pa.Table, time: int) -> pa.Table:
    """The rows for `errors/` of rows (with raw_columns) that are taken out of the table again."""
    tables = [errors_table.ERRORS.empty_table()]
    for column in task.raw_columns:
        gone = rows.filter(pc.is_valid(rows.column(_name(column))))
        if gone.num_rows:
            raw = gone.column(_name(column)).cast(pa.string())
            tables.append(of_copied_rows(task, gone, column, raw, time, diff=-1))
    return pa.concat_tables(tables)


def of_copied_rows(
    task: TableTask, rows: pa.Table, column: int, raw: pa.Array, time: int, *, diff: int = 1
) -> pa.Table:
    """The rows for `errors/` of copied rows that met such a value."""
    return errors_table.batch(
        task.name,
        keys=key_texts(task.schema, rows).to_arrow().cast(pa.string()),
        column=task.schema.columns[column].name,
        code=NO_LAKE_FORM,
        raw=raw,
        time=pa.array(np.full(rows.num_rows, time), pa.int64()),
        diff=pa.array(np.full(rows.num_rows, diff), pa.int64()),
    )
