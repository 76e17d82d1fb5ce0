"""An epoch without Spark, stream or server: a world's changes through groups and merges, into files.

The tasks' input is made by hand (rows at rest in several files, changes cut into stretches); their work is
the pipeline's own. The outcome is what the lake would hold, and all that history says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core import origins
from headrace.core.chunks import ByChunk
from headrace.core.history import history
from headrace.core.key_events import events
from headrace.core.names import TableName
from headrace.core.schema import TableSchema
from headrace.lake.format import datafile
from headrace.lake.format.vector import FileRows
from headrace.lake.store.open import open_store
from headrace.pipeline.tasks import partition
from headrace.pipeline.tasks.files import Writing, read_file, write_sorted
from headrace.pipeline.tasks.merge import merge
from headrace.pipeline.tasks.routing import FileRange, Routes
from headrace.pipeline.tasks.table_task import (
    LakeAddress,
    Outcome,
    SlicePart,
    TableTask,
    from_ipc,
    pack,
    to_ipc,
    unpack,
)
from tests.laws.core.worlds import Row, Side, World, changes, rows, sides, table, truncations


@dataclass(frozen=True)
class Merged:
    """The result of an epoch for a table."""

    outcome: Outcome
    contents: list[Row]
    history: list[Side]


def merged(
    folder: Path,
    world: World,
    schema: TableSchema,
    files: Sequence[Sequence[Row]],
    stretches: Sequence[Sequence[int]],
    births: tuple[bytes, ...] = (),
    handoff: ByChunk | None = None,
) -> Merged:
    """The whole of a world in one epoch; of a scattered table the origins are made, as in a run."""
    store = open_store(folder)
    task = TableTask(TableName("public", "t"), schema, "t", "h", "e", Routes.over(()), 0)
    written = [new for some in files for new in write_sorted(Writing(store, 1), task, table(some))]
    ranges = [FileRange(n.file.path, n.file.size, n.file.rows, n.low, n.high) for n in written]
    routes = replace(Routes.over(ranges), births=births)
    emptied = truncations(world, range(len(world.transactions)), schema)
    task = replace(task, routes=routes, truncations=emptied, handoff=handoff)
    outcome = merged_epoch(folder, world, task, stretches)
    if outcome.is_scattered:
        told = [origins.traces(found) for some in stretches if (found := _events(world, task, some)).num_rows]
        moved = to_ipc(origins.origins(pa.concat_tables(told), emptied))
        outcome = merged_epoch(folder, world, replace(task, origins=moved), stretches)
    kept = [r.path for r in ranges if r.path not in outcome.remove]
    paths = [*kept, *(new.file.path for new in outcome.add)]
    told = [datafile.read(store, "h", file) for file in outcome.history]
    straight = [history(schema, _changed(world, schema, some)) for some in stretches] if schema.full else []
    return Merged(
        outcome,
        contents=[row for path in paths for row in rows(read_file(store, task, FileRows(path)))],
        history=[side for some in (*told, *straight) for side in sides(some)],
    )


def merged_epoch(folder: Path, world: World, task: TableTask, stretches: Sequence[Sequence[int]]) -> Outcome:
    """The outcome of one epoch; of a scattered table that alone."""
    parts: dict[str, list[bytes]] = defaultdict(list)
    outcome = Outcome(task.name)
    shares = partition.of_files(task) if task.truncations else iter(())
    for share in (*shares, *(s for some in stretches for s in _shares(world, task, some))):
        if isinstance(share, Outcome):
            outcome = outcome.combine(share)
        else:
            group, own, found = share
            parts[group].append(pack(SlicePart(2, LakeAddress(str(folder)), own, to_ipc(found))))
    if outcome.is_scattered:
        return outcome
    for group, blobs in parts.items():
        for answer in merge(group, iter(blobs)):
            outcome = outcome.combine(unpack(answer, Outcome))
    return outcome


def _shares(world: World, task: TableTask, numbers: Sequence[int]) -> Iterator[partition.Share | Outcome]:
    if task.schema.is_multiset:
        changed = _changed(world, task.schema, numbers)
        yield from partition.of_changes(task, changed) if changed.num_rows else ()
        return
    found = _events(world, task, numbers)
    if task.origins is not None:
        found = origins.with_origins(found, from_ipc(task.origins), task.truncations)
    elif partition.is_scattered(task, found):
        yield Outcome(task.name, is_scattered=True)
        return
    if found.num_rows:
        yield from partition.of_events(task, found)


def _events(world: World, task: TableTask, numbers: Sequence[int]) -> pa.Table:
    found = events(task.schema, _changed(world, task.schema, numbers))
    if not isinstance(task.handoff, ByChunk):
        return found
    return found.filter(pc.invert(task.handoff.holds(found["_key"], found["_time"], found["_transaction"])))


def _changed(world: World, schema: TableSchema, numbers: Sequence[int]) -> pa.Table:
    return changes(world, schema, numbers)
