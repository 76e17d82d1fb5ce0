"""A merge: the net changes of a table without a key, taken out of and put into its files.

A row is told apart by all of its values, so equal rows are copies of one another and may lie in any
file. The files in whose range a row lies that has to go are visited in turn; each gives what it has.

Where the table is truncated, the rows that changes touched before it are counted out of the files here, and
the rest of each file goes by itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.columns import Ints, column, ints, wide, wide_schema
from headrace.core.keycode import keycode
from headrace.core.multiset import KEY, NET, fold_multiset, net_schema
from headrace.core.row_groups import group
from headrace.core.schema import TableSchema
from headrace.core.truncation import Truncation, take_back
from headrace.pipeline.tasks.files import (
    SMALL_FILE,
    Writing,
    read_file,
    row_missing,
    write_history,
    write_sorted,
)
from headrace.pipeline.tasks.merge_truncated import retract
from headrace.pipeline.tasks.partition import END
from headrace.pipeline.tasks.routing import prefixes
from headrace.pipeline.tasks.table_task import Outcome, TableTask


def merge_keyless(writing: Writing, task: TableTask, nets: pa.Table) -> Outcome:
    """Copies of a row may lie in any file: the files are visited in turn, each gives what it has."""
    net = _consolidate(nets)
    gone = net.filter(pc.less(net[NET], 0))
    outcome = Outcome(task.name)
    for number in task.routes.touching(prefixes(column(gone, KEY))) if gone.num_rows else ():
        file = task.routes.files[number]
        rows = read_file(writing.store, task, file)
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
    return outcome.combine(_add_rows(writing, task, net.filter(pc.greater(net[NET], 0)), outcome.remove))


# --- truncated --------------------------------------------------------------------------------


def merge_keyless_truncated(writing: Writing, task: TableTask, nets: pa.Table) -> Outcome:
    """The rows that changes touched before a truncation: what of them was there when it came.

    Their copies are counted in all files, whose own merges (`merge_truncated`) leave them alone.
    """
    touched = pl.Series(column(nets, KEY)).unique()
    there = [wide(nets)]
    for number in task.routes.touching(prefixes(touched.to_arrow())):
        rows = read_file(writing.store, task, task.routes.files[number])
        there.append(_count_rows(task.schema, rows, touched))
    left = _consolidate(pa.concat_tables(there))
    if short := int((ints(left, NET) < 0).sum()):
        return Outcome(task.name, failure=row_missing(task.name, short))
    gone = Outcome(task.name, rows=-sum(int(ints(each, NET).sum()) for each in there[1:]))
    # That they went counts for the table's size above; of those that came only history tells.
    return replace(retract(writing, task, _copies(task.schema, left)), rows=gone.rows)


def merge_keyless_later(writing: Writing, task: TableTask, nets: pa.Table) -> Outcome:
    """Merge what came after a truncation, to be taken by the next one or to stay: no file knows of it."""
    outcome, retractions = Outcome(task.name), []
    for end in _distinct(nets):
        mine = pc.equal(nets[END[0]], end.time) if end else pc.is_null(nets[END[0]])
        if end:
            mine = pc.and_(mine, pc.equal(nets[END[1]], end.ordinal))
        left = _consolidate(nets.filter(mine).drop_columns(list(END)))
        if short := int((ints(left, NET) < 0).sum()):
            return Outcome(task.name, failure=row_missing(task.name, short))
        rows = _copies(task.schema, left)
        if end:
            retractions.append(take_back(task.schema, rows, end))
        else:
            outcome = replace(outcome, add=write_sorted(writing, task, rows), rows=rows.num_rows)
    gone = pa.concat_tables(retractions) if retractions else pa.table({})
    return replace(outcome, history=write_history(writing, task, gone))


def _distinct(nets: pa.Table) -> list[Truncation | None]:
    """The truncations by which the rows end; None for those that stay."""
    found = nets.select(list(END)).group_by(list(END)).aggregate([])
    rows = zip(*(found[name].to_pylist() for name in END), strict=True)
    return [None if row[0] is None else Truncation(*row) for row in rows]


def _count_rows(schema: TableSchema, rows: pa.Table, touched: pl.Series) -> pa.Table:
    """The rows of a file that are among the touched, each once with the number of its copies, as nets."""
    codes = keycode([rows.column(name) for name in schema.names])
    mask = pl.Series(codes).is_in(touched.implode()).to_arrow()
    rows, codes = rows.filter(mask), codes.filter(mask)
    groups = group(codes)
    first = pa.array(groups.first)
    named = {f"c{i}": rows.column(name).take(first) for i, name in enumerate(schema.names)}
    counts = groups.sums(np.ones(len(codes), np.int64))
    layout = wide_schema(net_schema(schema))
    return pa.table(named | {KEY: codes.take(first), NET: pa.array(counts)}, schema=layout)


def _copies(schema: TableSchema, nets: pa.Table) -> pa.Table:
    """The rows themselves, each as often as it is there."""
    return fold_multiset(schema, schema.arrow().empty_table(), nets).final


# --- both -------------------------------------------------------------------------------------


def _add_rows(writing: Writing, task: TableTask, new: pa.Table, gone: tuple[str, ...]) -> Outcome:
    """New rows, together with those of a small file that nothing else touched."""
    if not new.num_rows:
        return Outcome(task.name)
    small = [f for f in task.routes.files if f.size < SMALL_FILE and f.path not in gone][-1:]
    base = read_file(writing.store, task, small[0] if small else None)
    rows = fold_multiset(task.schema, base, new).final
    return Outcome(
        task.name,
        add=write_sorted(writing, task, rows),
        remove=tuple(file.path for file in small),
        rows=rows.num_rows - base.num_rows,
    )


def _present(schema: TableSchema, rows: pa.Table, gone: pa.Table) -> Ints:
    """Count for each of the rows the copies that have to go and that this file can give."""
    codes = keycode([rows.column(name) for name in schema.names])
    counts = pl.Series("key", codes).value_counts(name="there")
    wanted = pl.DataFrame({"key": pl.Series(column(gone, KEY)), "net": ints(gone, NET)})
    joined = wanted.join(counts, on="key", how="left", maintain_order="left")
    there: Ints = joined["there"].fill_null(0).to_numpy().astype(np.int64)
    return np.minimum(there, -ints(gone, NET))


def _with_net(rows: pa.Table, net: Ints) -> pa.Table:
    return rows.set_column(rows.column_names.index(NET), NET, pa.array(net, pa.int64()))


def _consolidate(nets: pa.Table) -> pa.Table:
    """One row for each distinct row of the table, with its net count."""
    groups = group(column(nets, KEY))
    sums = groups.sums(ints(nets, NET))
    uneven = np.flatnonzero(sums)
    return _with_net(nets.take(pa.array(groups.first[uneven])), sums[uneven])
