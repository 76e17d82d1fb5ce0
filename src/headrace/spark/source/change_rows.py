"""The rows of a stream of changes: a task's files of history, or of a table, in the form that is asked for.

    changes    the row, `_time`, `_diff` (-1 an old row, +1 a new one), `_op`, `_sequence`
    feed       the row, `_change_type`, `_commit_version`, `_commit_timestamp`: as Delta's change data feed
    upserts    the last row of each key in the batch, `_op` (upsert, delete), `_sequence`: for AUTO CDC

`_sequence` is `time << 63 | ordinal` in a decimal: one sortable value for a change. The contents with which a
stream may begin are rows of `_op` read.

**An update is two rows of one time and one ordinal.** They stand side by side in a file, or, where an update
moved a row between groups of keys, in two. So the other half of a row without its neighbour is looked for in
the files whose times overlap, of which three narrow columns are read: how files were cut decides nothing.

**The last row of a key** may be in any file of the batch. A task owns a share of the keys by their hash; it
reads the keys and times of all files, and the rows of those that it owns. Where an incompatible change of
columns began a new folder of history within the batch, each folder has a last row.

This half runs on executors, in processes that start often: it loads no Delta, and Polars only to compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.change_batch import TIMESTAMP
from headrace.core.columns import Flags, Ints, ints
from headrace.core.history import free_names
from headrace.lake.format import datafile
from headrace.lake.format.vector import FileRows
from headrace.lake.store.contract import Store
from headrace.lake.store.open import open_store
from headrace.spark.source.offsets import Offset
from headrace.spark.source.table_read import BATCH_ROWS, sharing, under
from headrace.spark.source.types import batch_schema

if TYPE_CHECKING:
    import polars as pl

_SEQUENCE = pa.decimal128(38, 0)
_OWN: dict[str, dict[str, pa.DataType]] = {
    "changes": {"_time": pa.int64(), "_diff": pa.int64(), "_op": pa.string(), "_sequence": _SEQUENCE},
    "feed": {"_change_type": pa.string(), "_commit_version": pa.int64(), "_commit_timestamp": TIMESTAMP},
    "upserts": {"_op": pa.string(), "_sequence": _SEQUENCE},
}
_CHANGE_TYPES = ("delete", "update_preimage", "insert", "update_postimage")
_OPERATIONS = ("delete", "update", "insert", "update")


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """A stream as Spark's plan carries it: a table, its columns and its form, and where it begins."""

    lake: str
    source: str
    table: str
    form: str
    schema: pa.Schema  # the user's columns that it gives
    whole: bool  # they are all columns, so that a new one is a change
    key: tuple[str, ...]
    epoch: int  # the mark at which the columns were looked at
    start: Offset
    max_marks: int | None

    def batch_schema(self) -> pa.Schema:
        """The schema of the batches that the tasks give."""
        own = _OWN[self.form]
        names = free_names(self.schema.names, own)
        ours = [pa.field(name, kind) for name, kind in zip(names, own.values(), strict=True)]
        return pa.schema([*batch_schema(self.schema), *ours])


@dataclass(frozen=True, slots=True)
class HistoryFiles:
    """Files of one folder of history, and how our columns are called in them."""

    folder: str
    columns: tuple[str, ...]  # the user's that they have
    own: dict[str, str]
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ContentsTask:
    """A task of a table's contents at a mark."""

    folder: str
    live: tuple[FileRows, ...]
    time: int
    epoch: int
    commit_ts: datetime


@dataclass(frozen=True, slots=True)
class ChangesTask:
    """A task of the updates with `after < _time <= until`; `beside` are files with halves of updates."""

    files: HistoryFiles
    after: int
    until: int
    beside: tuple[str, ...] = ()
    marks: tuple[tuple[int, int], ...] = ()  # (time, epoch), in their order
    share: tuple[int, int] = (0, 1)  # of the keys: this one of so many


StreamTask = ContentsTask | ChangesTask


def read(plan: StreamPlan, task: StreamTask) -> Iterator[pa.RecordBatch]:
    """The rows of a task; runs on an executor, perhaps more than once."""
    store = open_store(plan.lake)
    with sharing(store):
        if isinstance(task, ContentsTask):
            tables = _contents(store, plan, task)
        elif plan.form == "upserts":
            tables = _upserts(store, plan, task)
        else:
            tables = _changes(store, plan, task)
        for rows in tables:
            yield from rows.to_batches(max_chunksize=BATCH_ROWS)


def _contents(store: Store, plan: StreamPlan, task: ContentsTask) -> Iterator[pa.Table]:
    sequence = sequences(np.array([task.time]), np.array([0]))[0]
    own: dict[str, list[Any]] = {
        "changes": [task.time, 1, "read", sequence],
        "feed": ["insert", task.epoch, pa.scalar(task.commit_ts, TIMESTAMP)],
        "upserts": ["upsert", sequence],
    }
    for file in task.live:
        for rows in datafile.stream(store, task.folder, file, plan.schema):
            yield _assemble(plan, rows, [pa.repeat(value, rows.num_rows) for value in own[plan.form]])


def _assemble(plan: StreamPlan, rows: pa.Table, ours: Sequence[pa.Array]) -> pa.Table:
    return under(plan.batch_schema(), [*rows.columns, *(pa.chunked_array([each]) for each in ours)])


def _changes(store: Store, plan: StreamPlan, task: ChangesTask) -> Iterator[pa.Table]:
    flags = _update_flags(store, task)
    names = [task.files.own[name] for name in ("_time", "_diff", "_ordinal", "_commit_ts")]
    for path, updates in zip(task.files.paths, flags, strict=True):
        at = 0
        for users, ours in _stream(store, plan, task.files, path, names):
            here = updates[at : at + users.num_rows]
            at += users.num_rows
            time = ints(ours, names[0])
            within = (time > task.after) & (time <= task.until)
            if not within.all():
                mask = pa.array(within)
                users, ours, here = users.filter(mask), ours.filter(mask), here[within]
            if ours.num_rows:
                yield _show(plan, task, users, ours, here)


def _show(plan: StreamPlan, task: ChangesTask, users: pa.Table, ours: pa.Table, updates: Flags) -> pa.Table:
    time, diff, ordinal = (ints(ours, name) for name in ours.column_names[:3])
    kind = pa.array(updates.astype(np.int8) + 2 * (diff > 0))
    if plan.form == "feed":
        marks = np.array(task.marks, np.int64).reshape(-1, 2)
        epochs = marks[np.searchsorted(marks[:, 0], time), 1]
        commit_ts = ours.column(3).combine_chunks()
        return _assemble(plan, users, [_labels(_CHANGE_TYPES, kind), pa.array(epochs), commit_ts])
    own = [pa.array(time), pa.array(diff), _labels(_OPERATIONS, kind), sequences(time, ordinal)]
    return _assemble(plan, users, own)


def _labels(labels: Sequence[str], kinds: pa.Array) -> pa.Array:
    return pa.array(labels, pa.string()).take(kinds)


def _stream(
    store: Store, plan: StreamPlan, files: HistoryFiles, path: str, names: Sequence[str]
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The user's columns, those that the file lacks as NULL; and these of ours.

    Apart, since a later column of the user's may have the name that one of ours has in this folder.
    """
    kinds = [TIMESTAMP if name == files.own["_commit_ts"] else pa.int64() for name in names]
    ours = [pa.field(name, kind) for name, kind in zip(names, kinds, strict=True)]
    users = {field.name: field for field in plan.schema if field.name in files.columns}
    for rows in datafile.stream(store, files.folder, FileRows(path), pa.schema([*users.values(), *ours])):
        columns = [
            rows.column(field.name) if field.name in users else pa.nulls(rows.num_rows, field.type)
            for field in plan.schema
        ]
        yield pa.Table.from_arrays(columns, names=plan.schema.names), rows.select(list(names))


# --- which rows are halves of updates ---------------------------------------------------------


def _update_flags(store: Store, task: ChangesTask) -> list[Flags]:
    """For each file, which of its rows are halves of updates."""
    narrow = [_narrow(store, task.files, path) for path in task.files.paths]
    flags = [_adjacent(*columns) for columns in narrow]
    if all(each.all() for each in flags) or len(task.files.paths) + len(task.beside) < 2:
        return flags
    import polars as pl

    lone = [_frame(columns, ~updates) for columns, updates in zip(narrow, flags, strict=True)]
    others = [_frame(_narrow(store, task.files, path), None) for path in task.beside]
    halves = pl.concat([*lone, *others]).with_columns(diff=-pl.col("diff")).unique()
    for updates, frame in zip(flags, lone, strict=True):
        pairs = frame.with_row_index("at").join(halves, on=["time", "ordinal", "diff"], how="semi")["at"]
        updates[np.flatnonzero(~updates)[pairs.to_numpy()]] = True
    return flags


def _narrow(store: Store, files: HistoryFiles, path: str) -> tuple[Ints, Ints, Ints]:
    names = [files.own[name] for name in ("_time", "_ordinal", "_diff")]
    schema = pa.schema([pa.field(name, pa.int64()) for name in names])
    rows = datafile.read(store, files.folder, FileRows(path), schema=schema)
    time, ordinal, diff = (ints(rows, name) for name in names)
    return time, ordinal, diff


def _adjacent(time: Ints, ordinal: Ints, diff: Ints) -> Flags:
    """The rows that stand beside the other half of their update."""
    updates = np.zeros(len(time), np.bool_)
    pairs = (time[1:] == time[:-1]) & (ordinal[1:] == ordinal[:-1]) & (diff[1:] == -diff[:-1])
    updates[1:] |= pairs
    updates[:-1] |= pairs
    return updates


def _frame(columns: tuple[Ints, Ints, Ints], mask: Flags | None) -> pl.DataFrame:
    import polars as pl

    time, ordinal, diff = columns if mask is None else (each[mask] for each in columns)
    return pl.DataFrame({"time": time, "ordinal": ordinal, "diff": np.sign(diff)})


# --- the last row of each key -----------------------------------------------------------------


def _upserts(store: Store, plan: StreamPlan, task: ChangesTask) -> Iterator[pa.Table]:
    import polars as pl

    files = task.files
    names = [files.own[name] for name in ("_time", "_ordinal", "_diff")]
    last = _last_rows(store, plan, task, names)
    for number, path in enumerate(files.paths):
        places = np.sort(last.filter(pl.col("file") == number)["row"].to_numpy()).astype(np.int64)
        at = 0
        for users, ours in _stream(store, plan, files, path, names):
            low, high = np.searchsorted(places, [at, at + users.num_rows])
            chosen = pa.array(places[low:high] - at)
            at += users.num_rows
            if len(chosen):
                time, ordinal, diff = (ints(ours.take(chosen), name) for name in names)
                operation = pc.if_else(pa.array(diff > 0), "upsert", "delete")
                yield _assemble(plan, users.take(chosen), [operation, sequences(time, ordinal)])


def _last_rows(store: Store, plan: StreamPlan, task: ChangesTask, names: Sequence[str]) -> pl.DataFrame:
    """Find the places (file, row) of the last rows of this task's keys."""
    import polars as pl

    from headrace.core.keycode import keycode
    from headrace.decode.digest import digests

    keys = [plan.schema.field(name) for name in plan.key]
    schema = pa.schema([*keys, *(pa.field(name, pa.int64()) for name in names)])
    number, shares = task.share
    parts = []
    for at, path in enumerate(task.files.paths):
        rows = datafile.read(store, task.files.folder, FileRows(path), schema=schema)
        codes = keycode([rows.column(name) for name in plan.key])
        time, ordinal, diff = (ints(rows, name) for name in names)
        ours = (time > task.after) & (time <= task.until)
        if shares > 1:
            # Executors of any version must cut the keys alike: Polars' own hash differs between its versions.
            ours &= digests(codes)[0] % np.uint64(shares) == number
        columns = {"key": codes.filter(pa.array(ours)), "row": np.flatnonzero(ours)}
        columns |= {"time": time[ours], "ordinal": ordinal[ours], "diff": diff[ours]}
        parts.append(pl.DataFrame(columns).with_columns(file=pl.lit(at)))
    ordered = pl.concat(parts).sort("time", "ordinal", "diff", maintain_order=True)
    return ordered.unique("key", keep="last", maintain_order=True)


def sequences(time: Ints, ordinal: Ints) -> pa.Array:
    """`time << 63 | ordinal` as decimals: what is later in a source's commit order is greater."""
    words = np.empty((len(time), 2), "<u8")
    words[:, 0] = (time.astype(np.uint64) << np.uint64(63)) | ordinal.astype(np.uint64)
    words[:, 1] = time.astype(np.uint64) >> np.uint64(1)
    return pa.Array.from_buffers(_SEQUENCE, len(time), [None, pa.py_buffer(words.tobytes())])
