"""A look ahead into a large epoch: how many rows a table gets, and between which keys they lie.

New rows of a large epoch must not all end in one task. So the driver decodes the beginnings of many slices.
Their keys give the cut points of `routing`'s births, so that births get about equally many rows and bytes.
Within a transaction, neighbours in time are mostly neighbours by key as well: so it looks at many slices, and
at a little of each. The sample decides which task does the work, never its result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc

from headrace.core.change_batch import Op
from headrace.core.keycode import keycode
from headrace.pipeline.tasks.routing import Prefixes, prefixes
from headrace.pipeline.tasks.slices import Slice
from headrace.pipeline.tasks.table_task import TableTask
from headrace.sources.contract.decoder import TableChanges, TableFilter
from headrace.spool.reader import SpoolReader

MOST_SLICES = 256
LOOKS = (1 << 16, 1 << 20, 1 << 62)  # bytes of a slice: try the next size until there is a change
ROWS_PER_BIRTH = 1 << 18
BYTES_PER_BIRTH = 64 << 20  # in memory

Sample = tuple[Prefixes, float]  # keys, and the part of a birth that each of them stands for


def with_births(
    reader: SpoolReader, slices: Sequence[Slice], tasks: Mapping[int, TableTask]
) -> dict[int, TableTask]:
    """Add births to the tasks of tables that get very many rows."""
    wanted = {
        number: task.table_filter()
        for number, task in tasks.items()
        # A table without a key is one group, but for what comes after a truncation.
        if not task.schema.is_multiset or task.truncations
    }
    chosen = np.unique(np.linspace(0, len(slices) - 1, MOST_SLICES).astype(int))
    found: dict[int, list[Sample]] = {}
    for number in chosen:
        for table, (keys, births) in _sample(reader, slices[number], wanted):
            found.setdefault(table, []).append((keys, births * len(slices) / len(chosen)))
    return {number: _with(task, found.get(number, ())) for number, task in tasks.items()}


def _sample(
    reader: SpoolReader, chosen: Slice, wanted: Mapping[int, TableFilter]
) -> list[tuple[int, Sample]]:
    """Decode the keys of the beginning of a slice, by table; they stand for all of it."""
    for most in LOOKS:
        data = chosen.read(reader, most)
        found = [
            each
            for each in chosen.decoder.decode(data, chosen.context, wanted)
            if isinstance(each, TableChanges) and each.batch.num_rows
        ]
        if found or len(data) < most:
            break
    share = (chosen.stop - chosen.start) / max(len(data), 1)
    return [(each.table, _keys(each, wanted[each.table], share)) for each in found]


def _keys(changes: TableChanges, wanted: TableFilter, share: float) -> Sample:
    """Return the keys of new rows alone: others mostly have their files, and each birth checks its keys."""
    batch, names = changes.batch, wanted.schema.names
    of_a_row = max(1 / ROWS_PER_BIRTH, batch.nbytes / batch.num_rows / BYTES_PER_BIRTH)
    new = batch.filter(pc.equal(batch.column("_op"), int(Op.INSERT)))
    keys = [new.column(f"n{names.index(name)}") for name in wanted.schema.identity]
    return prefixes(keycode(keys)), of_a_row * share


def _with(task: TableTask, samples: Sequence[Sample]) -> TableTask:
    if not samples:
        return task
    keys = np.concatenate([found for found, _ in samples])
    births = np.concatenate([np.full(len(found), each) for found, each in samples])
    order = np.argsort(keys, kind="stable")
    upto = np.cumsum(births[order])
    count = int(upto[-1]) if len(upto) else 0
    if count < 2:
        return task
    bounds = np.searchsorted(upto, [upto[-1] * i / count for i in range(1, count)])
    cuts = np.unique(keys[order][bounds])
    return replace(task, routes=replace(task.routes, births=tuple(cuts.tolist())))
