"""The files that a task writes: of a table in the order of its keys, of history in the order of time.

A file is written under a new name of the epoch and returned as a value; committing it is the driver's. Also
here: the errors that a task can find a table guilty of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.core.columns import Ints, row_bytes, wide, wide_schema
from headrace.core.errors import Definite, HeadraceError
from headrace.core.history import OWN, history_ids
from headrace.core.keycode import keycode
from headrace.core.names import TableName
from headrace.core.schema import TableSchema
from headrace.lake.format import datafile, layout
from headrace.lake.format.plan import DataFile
from headrace.lake.format.vector import TableFile
from headrace.lake.store.contract import Store
from headrace.pipeline.tasks import raw_values
from headrace.pipeline.tasks.routing import WIDTH
from headrace.pipeline.tasks.table_task import Errors, NewFile, Outcome, TableTask

# A file smaller than this takes in new rows although none of its own changed; a larger one is left
# alone and the new rows become a file of their own.
SMALL_FILE = 4 << 20
ROWS_PER_FILE = 1 << 20
# In memory: a task that rewrites a file holds it several times over, and repetitive text of this size may be
# a few kilobytes on the disk.
BYTES_PER_FILE = 128 << 20


@dataclass(frozen=True, slots=True)
class Writing:
    """The place where this task writes, and under which epoch's names."""

    store: Store
    epoch: int  # of a copy: the one that was next when it began

    def errors(self, task: TableTask, *pieces: pa.Table) -> Errors:
        """Rows for `errors/`, as an outcome carries them."""
        return raw_values.write_errors(self.store, task, self.epoch, *pieces)

    def file(
        self, folder: str, table: pa.Table, keys: tuple[bytes, bytes] | None, ids: Sequence[int]
    ) -> DataFile:
        name = layout.file_name(self.epoch)
        return datafile.write(self.store, folder, name, table, sort_range=keys, ids=ids)


def read_file(store: Store, task: TableTask, file: TableFile | None) -> pa.Table:
    """The file's rows that are not deleted, with wide offsets; a column that was added later is NULL."""
    schema = wide_schema(task.schema.arrow())
    return schema.empty_table() if file is None else datafile.read(store, task.folder, file, schema=schema)


def write_history(
    writing: Writing, task: TableTask, history: pa.Table, *, is_ordered: bool = False
) -> tuple[DataFile, ...]:
    """Files of history; rows in the order of time (if they are not yet), so that statistics prune by it."""
    if not history.num_rows:
        return ()
    time, diff, ordinal = history.column_names[-len(OWN) :][:3]
    rows = raw_values.drop(task, history)
    if not is_ordered:
        rows = rows.sort_by([(time, "ascending"), (ordinal, "ascending"), (diff, "ascending")])
    ids = history_ids(task.schema)
    return tuple(
        writing.file(task.history_folder, rows.slice(low, high - low), None, ids)
        for low, high in pairwise(_cuts(rows))
    )


def write_sorted(writing: Writing, task: TableTask, rows: pa.Table) -> tuple[NewFile, ...]:
    """The rows in the order of their keys, in files of bounded size."""
    if not rows.num_rows:
        return ()
    # Rows of a copy mostly are in order: to put them into it costs as much as to write them.
    if not are_ascending(rows, task.schema.identity):
        order = pl.Series(_keys(rows, task.schema.identity)).arg_sort().to_arrow()
        rows = wide(rows).take(order)
    return tuple(_new_file(writing, task, rows.slice(low, high - low)) for low, high in pairwise(_cuts(rows)))


def _keys(rows: pa.Table, identity: Sequence[str]) -> pa.Array:
    return keycode([rows.column(name) for name in identity])


def are_ascending(rows: pa.Table, identity: Sequence[str], codes: pa.Array | None = None) -> bool:
    """Tell whether rows are in the order of their keys, which numbers have themselves.

    Whoever has the codes of the keys already hands them over.
    """
    first = rows.column(identity[0])
    if len(identity) > 1 or first.null_count or not pa.types.is_integer(first.type):
        return bool(pl.Series(_keys(rows, identity) if codes is None else codes).is_sorted())
    values = [chunk.to_numpy() for chunk in first.chunks if len(chunk)]
    within = all(bool((each[1:] >= each[:-1]).all()) for each in values)
    return within and all(before[-1] <= after[0] for before, after in pairwise(values))


def _cuts(rows: pa.Table) -> list[int]:
    """Find where files of about one size end: as few as keep to the bounds, a row at least in each."""
    count = rows.num_rows
    if _at_most(rows) <= BYTES_PER_FILE:
        return _even(count, max(-(-count // ROWS_PER_FILE), 1))
    ends = np.cumsum(row_bytes(rows))
    total = int(ends[-1]) if len(ends) else 0
    pieces = max(-(-count // ROWS_PER_FILE), -(-total // BYTES_PER_FILE), 1)
    if total <= BYTES_PER_FILE:
        return _even(count, pieces)
    by_bytes = np.searchsorted(ends, [total * i // pieces for i in range(1, pieces)], side="right")
    return [int(cut) for cut in np.unique([*_even(count, pieces), *by_bytes])]


def _even(rows: int, pieces: int) -> list[int]:
    return [rows * i // pieces for i in range(pieces + 1)]


def _at_most(rows: pa.Table) -> int:
    """More than `row_bytes` has in all, without a look at each row; of nested columns nothing is known."""
    if any(pa.types.is_nested(field.type) for field in rows.schema):
        return BYTES_PER_FILE + 1
    most: int = rows.nbytes + 8 * rows.num_rows * rows.num_columns
    return most


def _new_file(writing: Writing, task: TableTask, rows: pa.Table) -> NewFile:
    """A file, and the key codes of its first and last row, cut as `routing` compares them."""
    ends = (rows.slice(at, 1) for at in (0, rows.num_rows - 1))
    low, high = (_keys(row, task.schema.identity)[0].as_py()[:WIDTH] for row in ends)
    return NewFile(writing.file(task.folder, rows, (low, high), task.schema.ids), low, high)


def without_form(task: TableTask, column: str) -> Definite:
    """A value that its column's lake type cannot hold, where that stops the table.

    Rows are told apart by their key, so a key must not lose its value; a strict table loses none.
    """
    if column in task.schema.key:
        return Definite(
            "KEY_WITHOUT_LAKE_FORM",
            f"a key of {task.name} holds a value that its lake type cannot",
            detail=f'column "{column}"',
            hint="remove the value at the source (an infinity, a NaN), or give the table another identity, "
            f"then headrace tables resync {task.name}",
        )
    return Definite(
        "STRICT_VALUE_WITHOUT_LAKE_FORM",
        f"{task.name} holds a value that its lake type cannot, and the source is strict",
        detail=f'column "{column}"',
        hint="remove the value at the source, or set strict = false to keep its text in errors/, "
        f"then headrace tables resync {task.name}",
    )


def row_missing(table: TableName, rows: int, where: str | None = None) -> Definite:
    """Something that the source changed is not there to be changed."""
    return Definite(
        "ROW_MISSING",
        f"rows of {table} that the source changed are not in the lake, or are there twice",
        detail=f"{rows} rows" + (f", {where}" if where else ""),
        hint=f"headrace tables resync {table}: it is copied anew; please report it",
    )


def row_sum(schema: TableSchema, rows: pa.Table, diffs: Ints | None = None) -> int:
    """Sum a hash of each row, as often as it counts, modulo 2^64: equal collections have equal sums."""
    if not rows.num_rows:
        return 0
    frame = pl.from_arrow(rows.select(list(schema.names)))
    assert isinstance(frame, pl.DataFrame)
    hashes = frame.hash_rows(seed=0).to_numpy()
    if diffs is not None:  # one below zero, read as unsigned, is its own negative modulo 2^64
        hashes = hashes * diffs.view(np.uint64)
    return int(np.add.reduce(hashes, dtype=np.uint64))


def _row_differs(table: TableName) -> Definite:
    return Definite(
        "ROW_DIFFERS",
        f"rows of {table} were others at the source than in the lake when they were changed",
        detail="the old rows in the log do not lead from the rows in the lake to those that came of them",
        hint=f"see what writes the table past the log, then headrace tables resync {table}",
    )


def verdict(outcome: Outcome) -> HeadraceError | None:
    """Say why the table can't be published, if it can't."""
    if outcome.failure is not None:
        return outcome.failure
    if outcome.expected_keys != outcome.matched_keys and not outcome.missing_values:
        return row_missing(outcome.table, abs(outcome.expected_keys[0] - outcome.matched_keys[0]))
    if outcome.balance and not outcome.missing_values:
        return _row_differs(outcome.table)
    return None
