"""A merge: the net changes of a table without a key, taken out of and put into its files.

A row is told apart by all of its values, so equal rows are copies of one another and may lie in any
file. The files in whose range a row lies that has to go are visited in turn; each gives what it has.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.columns import Ints, column, ints
from headrace.core.groups import group
from headrace.core.keycode import keycode
from headrace.core.multiset import KEY, NET, fold_multiset
from headrace.core.schema import TableSchema
from headrace.pipeline.routing import prefixes
from headrace.pipeline.tasks import Outcome, TableTask
from headrace.pipeline.writing import SMALL_FILE, Writing, read_file, row_missing, write_sorted


def merge_multiset(writing: Writing, task: TableTask, nets: pa.Table) -> Outcome:
    """Copies of a row may lie in any file: the files are visited in turn, each gives what it has."""
    net = _consolidated(nets)
    gone = net.filter(pc.less(net[NET], 0))
    outcome = Outcome(task.name)
    for number in task.routes.touching(prefixes(column(gone, KEY))) if gone.num_rows else ():
        file = task.routes.files[number]
        rows = read_file(writing.store, task, file.path)
        here = _present(task.schema, rows, gone)
        if here.any():
            left = fold_multiset(task.schema, rows, _with_net(gone, -here)).final
            gone = _with_net(gone, ints(gone, NET) + here)
            rewritten = Outcome(
                task.name,
                add=write_sorted(writing, task, left),
                remove=(file.path,),
                rows=left.num_rows - rows.num_rows,
            )
            outcome = outcome.combine(rewritten)
    if short := int(np.count_nonzero(ints(gone, NET))):
        return Outcome(task.name, failure=row_missing(task.name, short))
    return outcome.combine(_added(writing, task, net.filter(pc.greater(net[NET], 0)), outcome.remove))


def _added(writing: Writing, task: TableTask, new: pa.Table, gone: tuple[str, ...]) -> Outcome:
    """New rows, together with those of a small file that nothing else touched."""
    if not new.num_rows:
        return Outcome(task.name)
    small = [f for f in task.routes.files if f.size < SMALL_FILE and f.path not in gone][-1:]
    base = read_file(writing.store, task, small[0].path if small else None)
    rows = fold_multiset(task.schema, base, new).final
    return Outcome(
        task.name,
        add=write_sorted(writing, task, rows),
        remove=tuple(file.path for file in small),
        rows=rows.num_rows - base.num_rows,
    )


def _present(schema: TableSchema, rows: pa.Table, gone: pa.Table) -> Ints:
    """How many of the copies that have to go this file can give, for each of the rows."""
    codes = keycode([rows.column(name) for name in schema.names])
    counts = pl.Series("key", codes).value_counts(name="there")
    wanted = pl.DataFrame({"key": pl.Series(column(gone, KEY)), "net": ints(gone, NET)})
    joined = wanted.join(counts, on="key", how="left", maintain_order="left")
    there: Ints = joined["there"].fill_null(0).to_numpy().astype(np.int64)
    return np.minimum(there, -ints(gone, NET))


def _with_net(rows: pa.Table, net: Ints) -> pa.Table:
    return rows.set_column(rows.column_names.index(NET), NET, pa.array(net, pa.int64()))


def _consolidated(nets: pa.Table) -> pa.Table:
    """One row for each distinct row of the table, with its net count."""
    groups = group(column(nets, KEY))
    sums = groups.sums(ints(nets, NET))
    uneven = np.flatnonzero(sums)
    return _with_net(nets.take(pa.array(groups.first[uneven])), sums[uneven])
