"""A look ahead for TRUNCATEs: what each table of an epoch has to know of them before its changes are read.

    the slices' messages ─►  truncations of each table ─┬─ held by the copy ─► what was before is forgotten
                                                           └─ the others ─► the task's `truncations`

Every task needs them, whichever slice holds them: all files of a truncated table have to go, and changes
before and after a truncation must not meet. They are found in the driver, which reads no
rows for it.

A truncation that the copy holds changes no state. But a copy tells nothing of rows that were gone when it was
made, so what the table held before can't be had by rewinding: its history begins at the truncation's time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headrace.core.chunks import ByChunk
from headrace.core.truncation import Truncation
from headrace.pipeline.tasks.slices import Slice
from headrace.pipeline.tasks.table_task import TableTask
from headrace.spool.reader import SpoolReader


def with_truncations(
    reader: SpoolReader, slices: Sequence[Slice], tasks: Mapping[int, TableTask]
) -> dict[int, TableTask]:
    """The tasks, with the truncations of their tables in these slices."""
    wanted = {table: task.applied_until for table, task in tasks.items()}
    found: dict[int, list[Truncation]] = {}
    for each in slices:
        new = each.decoder.truncations(each.read(reader), each.context, wanted)
        for table, some in new.items():
            found.setdefault(table, []).extend(some)
    # Slices of one transaction may hold its truncations in any order (`TableSchema.is_ordered`).
    return {table: _with(task, sorted(found.get(table, []))) for table, task in tasks.items()}


def rows_to_go(tasks: Mapping[int, TableTask]) -> int:
    """Count the rows of files that the truncations take: work that no change tells of."""
    return sum(f.rows for task in tasks.values() if task.truncations for f in task.routes.files)


def _with(task: TableTask, found: Sequence[Truncation]) -> TableTask:
    if not found:
        return task
    held = np.zeros(len(found), np.bool_)
    if task.handoff is not None:
        times = pa.array([each.time for each in found], pa.int64())
        names = pa.array([each.transaction for each in found], task.schema.transaction.type)
        handoff = task.handoff
        if isinstance(handoff, ByChunk):
            if torn := handoff.incomplete(times, names):
                return replace(task, incomplete=torn)
            handoff = handoff.chunks[0].handoff  # as good as any other
        held = np.asarray(handoff.holds(times, names).to_numpy(zero_copy_only=False), np.bool_)
    live = tuple(t for t, known in zip(found, held, strict=True) if not known)
    last = max((t.time for t, known in zip(found, held, strict=True) if known), default=0)
    # A table that is not rewound begins after all that its copy holds anyway.
    return replace(task, truncations=live, forgets=last if task.schema.full else 0)
