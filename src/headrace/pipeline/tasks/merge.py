"""A task: the rows of one group, merged into the files of their table.

    FILE                events of keys, folded into the file where they live, or a new one  merge_keyed
    VECTORS             events of a whole table: rows that go get into deletion vectors     merge_vectors
    TRUNCATED           the same in a truncated table: the file goes, its rows retracted    merge_keyed
    REMAINDER           of such a file without a key, the rows that no change touches       merge_truncated
    KEYLESS             net changes of a table without a key, counted into all its files    merge_keyless
    KEYLESS_TRUNCATED   the same where a truncation takes its rows                          merge_keyless
    KEYLESS_LATER       what came to such a table after a truncation                        merge_keyless

Which of these a group is, `partition` says once, where it makes the group; all parts of a group say the same.
A merge returns actions, never a commit. New files have names of their own, so that a task that runs twice
leaves at most an orphan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from headrace.core.columns import wide
from headrace.core.errors import Definite
from headrace.pipeline.tasks.files import Writing
from headrace.pipeline.tasks.merge_keyed import merge_file, merge_truncated_file
from headrace.pipeline.tasks.merge_keyless import merge_keyless, merge_keyless_later, merge_keyless_truncated
from headrace.pipeline.tasks.merge_truncated import merge_remainder
from headrace.pipeline.tasks.merge_vectors import merge_vectors
from headrace.pipeline.tasks.table_task import Merge, Outcome, SlicePart, TableTask, from_ipc, pack, unpack

RESULTS = "~"  # the group of finished outcomes: they pass through

MERGES: dict[Merge, Callable[[Writing, TableTask, pa.Table], Outcome]] = {
    Merge.FILE: merge_file,
    Merge.VECTORS: merge_vectors,
    Merge.TRUNCATED: merge_truncated_file,
    Merge.REMAINDER: merge_remainder,
    Merge.KEYLESS: merge_keyless,
    Merge.KEYLESS_TRUNCATED: merge_keyless_truncated,
    Merge.KEYLESS_LATER: merge_keyless_later,
}


def merge(group: str, blobs: Iterator[bytes]) -> Iterable[bytes]:
    """The reducing side of an epoch's job."""
    if group == RESULTS:
        yield from blobs
        return
    parts = [unpack(blob, SlicePart) for blob in blobs]
    assert len({part.task.merge for part in parts}) == 1, "a group is of one kind"
    # Parts differ in which columns have holes.
    events = pa.concat_tables([from_ipc(part.events) for part in parts], promote_options="default")
    # And each tells of the truncations that matter to its own.
    truncations = tuple(sorted({place for part in parts for place in part.task.truncations}))
    first = replace(parts[0], task=replace(parts[0].task, truncations=truncations))
    writing = Writing(first.lake.open(), first.epoch)
    yield pack(merge_events(writing, first.task, events))


def merge_events(writing: Writing, task: TableTask, events: pa.Table) -> Outcome:
    """The events of one group, merged; what is wrong with them stops the table, and the others go on."""
    try:
        return MERGES[task.merge](writing, task, wide(events))
    except Definite as error:
        return Outcome(task.name, failure=error)
