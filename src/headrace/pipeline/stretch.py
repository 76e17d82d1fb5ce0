"""A task: a stretch of the stream becomes the events of groups of keys.

    bytes ─ decode ─► change batch ─┬─ held by the copy ──► history only (rewind) or nothing (skip)
                                    └─ the others ─► events by key ─► one Part per group of `routing`

History of tables with full before-images is complete in the stream and is written right here; that of
the others needs the rows of the lake and is written by `merging`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.errors import Definite
from headrace.core.events import events
from headrace.core.history import history
from headrace.core.multiset import net
from headrace.decode.kernel import Bytes
from headrace.lake.store import open_store
from headrace.pipeline import shadows
from headrace.pipeline.merging import RESULTS
from headrace.pipeline.routing import Routes, prefixes
from headrace.pipeline.tasks import Outcome, Part, Stretch, TableTask, pack, to_ipc, unpack
from headrace.pipeline.writing import Writing, without_form, write_history
from headrace.sources.postgres import decoding
from headrace.spool.reader import SpoolReader

ALL = "*"  # the group of all rows of a multiset


@dataclass(frozen=True, slots=True)
class _Context:
    """What every step of one stretch needs."""

    stretch: Stretch
    writing: Writing


def split(item: bytes) -> Iterable[tuple[str, int, bytes]]:
    """The mapping side of an epoch's job: (group, order, blob)."""
    stretch = unpack(item, Stretch)
    store = open_store(stretch.lake.url, dict(stretch.lake.options) or None)
    context = _Context(stretch, Writing(store, stretch.epoch))
    tables = dict(stretch.tables)
    for found in _decoded(stretch):
        task = tables[found.oid]
        if found.changes is None:
            yield _result(stretch, Outcome(task.name, failure=found.failure))
        else:
            rows = _of_table(context, task, found.changes.batch, found.changes.bad)
            yield from _failing_alone(stretch, task, rows)


def _failing_alone(
    stretch: Stretch, task: TableTask, blobs: Iterator[tuple[str, int, bytes]]
) -> Iterator[tuple[str, int, bytes]]:
    """What is wrong with the changes of one table stops that table; the others of the stretch go on."""
    try:
        yield from blobs
    except Definite as error:
        yield _result(stretch, Outcome(task.name, failure=error))


def _decoded(stretch: Stretch) -> Iterator[decoding.TableChanges]:
    return decoding.decode(
        _bytes(stretch),
        decoding.relations_of(stretch.relations),
        {oid: decoding.Wanted(task.name, task.schema, task.applied) for oid, task in stretch.tables},
        inside=stretch.inside,
        xid_reference=stretch.xid_reference,
    )


def _bytes(stretch: Stretch) -> Bytes:
    if stretch.data is not None:
        return np.frombuffer(stretch.data, np.uint8)
    return SpoolReader(Path(stretch.spool)).read(stretch.start, stretch.stop)


def _result(stretch: Stretch, outcome: Outcome) -> tuple[str, int, bytes]:
    return RESULTS, stretch.number, pack(outcome)


def _of_table(
    context: _Context, task: TableTask, batch: pa.RecordBatch, bad: pa.Table
) -> Iterator[tuple[str, int, bytes]]:
    changes = pa.Table.from_batches([batch])
    if failure := _unfit(task, bad):
        yield _result(context.stretch, Outcome(task.name, failure=failure))
        return
    if task.handoff is not None:
        held = task.handoff.held(changes["_time"].combine_chunks(), changes["_xid"].combine_chunks())
        yield from _held(context, task, changes.filter(held))
        changes = changes.filter(pc.invert(held))
    if changes.num_rows:
        yield from _live(context, task, changes, bad)


def _unfit(task: TableTask, bad: pa.Table) -> Definite | None:
    """Whether a value without a lake form stops the table: a key's does, any does if it is strict."""
    for number in pc.unique(bad["column"]).to_pylist():
        name = task.schema.names[number]
        if task.strict or name in task.schema.key:
            return without_form(task, name)
    return None


def _held(context: _Context, task: TableTask, held: pa.Table) -> Iterator[tuple[str, int, bytes]]:
    """Changes that the copy holds: they change no state, and rewind the table's history."""
    if not held.num_rows:
        return
    outcome = Outcome(task.name, held=len(pc.unique(held["_time"])))
    if task.schema.full:
        plain = replace(task, shadows=())
        outcome = replace(outcome, history=write_history(context.writing, plain, history(task.schema, held)))
    yield _result(context.stretch, outcome)


def _live(
    context: _Context, task: TableTask, changes: pa.Table, bad: pa.Table
) -> Iterator[tuple[str, int, bytes]]:
    met = tuple(sorted(set(bad["column"].to_pylist())))
    outcome = Outcome(task.name, changes=changes.num_rows, last_commit_ts=_latest(changes), met=met)
    if task.schema.full:
        yield _result(context.stretch, _straight(context, replace(task, shadows=met), changes, bad, outcome))
    elif unforeseen := tuple(c for c in met if c not in task.shadows):
        yield _result(context.stretch, replace(outcome, unforeseen=unforeseen))
        return
    else:
        yield _result(context.stretch, outcome)
    if task.schema.is_multiset:
        yield _part(context, task, ALL, net(task.schema, changes))
        return
    found = events(shadows.extend(task), shadows.widen(task, changes, bad))
    if task.whole:
        everywhere = pa.array(np.ones(found.num_rows, np.bool_))
        yield _part(context, task, ALL, found.append_column("_home", everywhere))
    elif len(task.routes.files) > 1 and found["_from"].null_count < found.num_rows:
        yield _result(context.stretch, Outcome(task.name, scattered=True))
    else:
        yield from _parts(context, task, found)


def _latest(changes: pa.Table) -> int:
    return int(pc.max(changes["_commit_ts"]).cast(pa.int64()).as_py())


def _straight(
    context: _Context, task: TableTask, changes: pa.Table, bad: pa.Table, outcome: Outcome
) -> Outcome:
    """History, and rows for `errors/`, straight from the tuples of a table with full before-images."""
    told = history(shadows.extend(task), shadows.widen(task, changes, bad))
    return replace(
        outcome,
        history=write_history(context.writing, task, told),
        errors=shadows.errors(task, told),
    )


def _parts(context: _Context, task: TableTask, found: pa.Table) -> Iterator[tuple[str, int, bytes]]:
    """The events, file by file of the table; overlapping files each get the events of shared keys."""
    places = task.routes.places(prefixes(found["_key"].combine_chunks()))
    order = np.argsort(places.files, kind="stable")
    bounds = np.flatnonzero(np.diff(places.files[order], prepend=-1))
    for low, high in zip(bounds, [*bounds[1:], len(order)], strict=True):
        rows = order[low:high]
        events_there = found.take(pa.array(places.rows[rows]))
        events_there = events_there.append_column("_home", pa.array(places.home[rows]))
        number = int(places.files[rows[0]])
        # The group's merge needs its own file only: a part stays small however many files there are.
        own = replace(task, routes=Routes.over(task.routes.files[number : number + 1]))
        yield _part(context, own, str(number), events_there)


def _part(context: _Context, task: TableTask, group: str, rows: pa.Table) -> tuple[str, int, bytes]:
    stretch = context.stretch
    part = Part(stretch.epoch, stretch.lake, task, to_ipc(rows))
    return f"{task.name}:{group}", stretch.number, pack(part)
