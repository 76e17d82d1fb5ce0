"""A merge: rows that a truncation takes, and that nothing else touches.

A truncated table is retracted file by file, each in a task of its own, so that the memory that it takes is
that of a file, whatever the table's size. A file's rows go into history as they are, without a fold.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.history import OWN
from headrace.core.keycode import keycode
from headrace.core.multiset import KEY
from headrace.core.truncation import take_back
from headrace.pipeline.tasks import raw_values
from headrace.pipeline.tasks.files import Writing, read_file, write_history
from headrace.pipeline.tasks.table_task import Outcome, TableTask


def merge_remainder(writing: Writing, task: TableTask, keys: pa.Table) -> Outcome:
    """The rows of a file, but for those of these keys, which another group takes out."""
    [file] = task.routes.files
    rows = read_file(writing.store, task, file)
    if keys.num_rows:
        mine = pl.Series(keycode([rows.column(name) for name in task.schema.identity]))
        touched = pl.Series(keys.column(KEY).combine_chunks()).unique()
        rows = rows.filter((~mine.is_in(touched.implode())).to_arrow())
    gone = Outcome(task.name, remove=(file.path,))
    return gone.combine(retract(writing, task, rows))


def retract(writing: Writing, task: TableTask, rows: pa.Table) -> Outcome:
    """Retract these rows in history and errors at the first truncation."""
    if not rows.num_rows:
        return Outcome(task.name)
    rows = raw_values.attach(writing.store, task, rows)
    history_rows = take_back(raw_values.extend(task), rows, task.truncations[0])
    history = belonging(task, history_rows)
    return Outcome(
        task.name,
        history=write_history(writing, task, history, is_ordered=True),
        errors=writing.errors(task, raw_values.errors(task, history_rows)),
        rows=-rows.num_rows,
    )


def belonging(task: TableTask, history_rows: pa.Table) -> pa.Table:
    """Pick what belongs to the table's history.

    By xid the copy lacks commits from before it is exact. Without full before-images they belong to its
    contents only.
    """
    if task.schema.full or task.handoff is None or task.handoff.until is None:
        return history_rows
    time = history_rows.column(history_rows.column_names[-len(OWN)])
    return history_rows.filter(pc.invert(task.handoff.until.mask(time)))
