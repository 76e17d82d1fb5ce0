"""A look ahead into a large epoch: how many rows a table gets, and between which keys they lie.

New rows of a large epoch must not all end in one task. A few slices, spread over the epoch, are
decoded here in the driver; from the keys that they hold come the cut points of `routing`'s births, so that
each birth gets about as many rows. The sample decides who does the work, never what comes of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from headrace.core.keycode import keycode
from headrace.pipeline.tasks.routing import Prefixes, prefixes
from headrace.pipeline.tasks.slices import Slice
from headrace.pipeline.tasks.table_task import TableTask
from headrace.sources.contract.decoder import TableChanges
from headrace.spool.reader import SpoolReader

SAMPLES = 8
SAMPLE_BYTES = 1 << 20
ROWS_PER_BIRTH = 500_000

Keys = dict[int, list[Prefixes]]


def with_births(
    reader: SpoolReader, slices: Sequence[Slice], tasks: Mapping[int, TableTask]
) -> dict[int, TableTask]:
    """The tasks, with births for those tables that get very many rows."""
    chosen = [slices[i] for i in np.unique(np.linspace(0, len(slices) - 1, SAMPLES).astype(int))]
    found: Keys = {}
    seen = 0
    for each in chosen:
        seen += _sample(reader, each, tasks, found)
    share = sum(each.stop - each.start for each in slices) / max(seen, 1)
    return {oid: _with(task, found.get(oid, []), share) for oid, task in tasks.items()}


def _sample(reader: SpoolReader, chosen: Slice, tasks: Mapping[int, TableTask], found: Keys) -> int:
    """Decode the beginning of a slice; the bytes that were looked at."""
    data = chosen.read(reader, SAMPLE_BYTES)
    wanted = {
        oid: task.wanted()
        for oid, task in tasks.items()
        # A table without a key is one group, but for what comes after a truncation.
        if not task.schema.is_multiset or task.truncations
    }
    for each in chosen.decoder.decode(data, chosen.context, wanted):
        if isinstance(each, TableChanges):
            schema = wanted[each.table].schema
            key = [each.batch.column(f"n{schema.names.index(k)}") for k in schema.identity]
            found.setdefault(each.table, []).append(prefixes(keycode(key)))
    return len(data)


def _with(task: TableTask, samples: Sequence[Prefixes], share: float) -> TableTask:
    keys = np.sort(np.concatenate(samples)) if samples else np.empty(0)
    births = int(len(keys) * share) // ROWS_PER_BIRTH
    if births < 2:
        return task
    cuts = np.unique(keys[[len(keys) * i // births for i in range(1, births)]])
    return replace(task, routes=replace(task.routes, births=tuple(cuts.tolist())))
