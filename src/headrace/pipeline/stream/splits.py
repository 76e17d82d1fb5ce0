"""A look ahead into a large epoch: how many rows a table gets, and between which keys they lie.

New rows of a large epoch must not all end in one task. A few stretches, spread over the epoch, are
decoded here in the driver; from the keys that they hold come the cut points of `routing`'s births, so that
each birth gets about as many rows. The sample decides who does the work, never what comes of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from headrace.core.keycode import keycode
from headrace.pipeline.tasks.routing import Prefixes, prefixes
from headrace.pipeline.tasks.slices import Cut
from headrace.pipeline.tasks.table_task import TableTask
from headrace.sources.postgres import decoding
from headrace.spool.reader import SpoolReader

SAMPLES = 8
SAMPLE_BYTES = 1 << 20
ROWS_PER_BIRTH = 500_000

Keys = dict[int, list[Prefixes]]


def with_births(
    reader: SpoolReader, cuts: Sequence[Cut], tasks: Mapping[int, TableTask], reference: int
) -> dict[int, TableTask]:
    """The tasks, with births for those tables that get very many rows."""
    chosen = [cuts[i] for i in np.unique(np.linspace(0, len(cuts) - 1, SAMPLES).astype(int))]
    found: Keys = {}
    seen = 0
    for cut in chosen:
        seen += _sample(reader, cut, tasks, reference, found)
    share = sum(cut.stop - cut.start for cut in cuts) / max(seen, 1)
    return {oid: _with(task, found.get(oid, []), share) for oid, task in tasks.items()}


def _sample(
    reader: SpoolReader, cut: Cut, tasks: Mapping[int, TableTask], reference: int, found: Keys
) -> int:
    """Decode the beginning of a stretch; the bytes that were looked at."""
    data = cut.read(reader, SAMPLE_BYTES)
    wanted = {
        oid: task.wanted()
        for oid, task in tasks.items()
        # A table without a key is one group, but for what comes after a truncation.
        if not task.schema.is_multiset or task.truncations
    }
    layouts = decoding.relations_of(cut.relations)
    for each in decoding.decode(data, layouts, wanted, inside=cut.inside, xid_reference=reference):
        if each.changes is not None:
            names = wanted[each.oid].schema.names
            key = [each.changes.batch.column(f"n{names.index(k)}") for k in wanted[each.oid].schema.identity]
            found.setdefault(each.oid, []).append(prefixes(keycode(key)))
    return len(data)


def _with(task: TableTask, samples: Sequence[Prefixes], share: float) -> TableTask:
    keys = np.sort(np.concatenate(samples)) if samples else np.empty(0)
    births = int(len(keys) * share) // ROWS_PER_BIRTH
    if births < 2:
        return task
    cuts = np.unique(keys[[len(keys) * i // births for i in range(1, births)]])
    return replace(task, routes=replace(task.routes, births=tuple(cuts.tolist())))
