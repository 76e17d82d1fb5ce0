"""A task: a slice of the stream becomes the events of groups of keys.

    bytes ─ decode ─► change batch ─┬─ held by the copy ──► history only (rewind) or nothing (skip)
                                    └─ the others ─► events by key ─► one Part per group (`partition`)

Where the copy was made in chunks, what is held is told by key: all changes become events, and the held ones
among those go no further.

Where rows change keys and leave values out, the first try only says so (`scattered`). Then `trace_origins`
tells of each slice what the driver makes the origins of (`core.origins`), and in the second try every event
knows its own.

History of tables with full before-images is complete in the stream and is written right here; that of
the others needs the rows of the lake and is written by `merge_keyed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core import origins
from headrace.core.chunks import ByChunk
from headrace.core.columns import ints
from headrace.core.errors import Definite
from headrace.core.history import OWN, history
from headrace.core.key_events import events
from headrace.core.keycode import keycode
from headrace.decode.kernel import Bytes
from headrace.pipeline.tasks import partition, raw_values
from headrace.pipeline.tasks.files import Writing, row_sum, without_form, write_history
from headrace.pipeline.tasks.merge import RESULTS
from headrace.pipeline.tasks.slices import Slice
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
from headrace.sources.contract.decoder import TableChanges, TableFailure
from headrace.spark.depot import receive_shared
from headrace.spool.reader import SpoolReader


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """A slice of the stream that one task decodes."""

    slice: Slice
    number: int
    epoch: int
    lake: LakeAddress
    spool: str
    tables: bytes  # of pairs (the source's number of it, TableTask), packed; shared by all slices

    def read(self) -> Bytes:
        return self.slice.read(SpoolReader(Path(self.spool)))


@dataclass(frozen=True, slots=True)
class _Context:
    """The needs of every step of one slice."""

    task: DecodeTask
    writing: Writing


def split(item: bytes) -> Iterable[tuple[str, int, bytes]]:
    """The mapping side of an epoch's job: (group, order, blob)."""
    own = unpack(item, DecodeTask)
    store = own.lake.open()
    context = _Context(own, Writing(store, own.epoch))
    tables = tables_of(own)
    merging = {
        number: replace(task.for_merge(), proves_history=_proves_history(task))
        for number, task in tables.items()
    }
    if own.number == 0:
        for task in merging.values():
            yield from _failing_alone(own, task, _opening_parts(context, task))
    for found in _decode(own, tables):
        task = merging[found.table]
        if isinstance(found, TableFailure):
            yield _result(own, Outcome(task.name, failure=found.failure))
        else:
            rows = _of_table(context, task, found.batch, found.bad)
            yield from _failing_alone(own, task, rows)


def _proves_history(task: TableTask) -> bool:
    """Tell whether images of the stream make all of its history, and merges all of its new rows."""
    apart = task.handoff is not None or task.truncations or task.last_truncation or task.complete_from
    return task.schema.full and not task.schema.is_multiset and not apart


def _failing_alone(
    own: DecodeTask, task: TableTask, blobs: Iterator[tuple[str, int, bytes]]
) -> Iterator[tuple[str, int, bytes]]:
    """Stop a table for what is wrong with its changes; the others of the slice go on."""
    try:
        yield from blobs
    except Definite as error:
        yield _result(own, Outcome(task.name, failure=error))


def trace_origins(item: bytes) -> bytes:
    """A task: what the origins of the tables' events are made of, by the number of the table."""
    own = unpack(item, DecodeTask)
    tables = tables_of(own)
    traces: dict[int, bytes] = {}
    for each in _decode(own, tables):
        if isinstance(each, TableFailure):  # the second try meets it again and says so
            continue
        task = replace(tables[each.table], raw_columns=())
        changes = _apart(task, pa.Table.from_batches([each.batch]))[1]
        if changes.num_rows:
            found = origins.traces(_new(task, events(task.schema, changes))[1])
            traces[each.table] = to_ipc(pa.concat_tables([*_read(traces.get(each.table)), found]))
    return pack(traces)


def _read(data: bytes | None) -> list[pa.Table]:
    return [] if data is None else [from_ipc(data)]


def tables_of(task: DecodeTask) -> dict[int, TableTask]:
    """The tables that are wanted of the slice, by the source's number of each."""
    return dict(unpack(receive_shared(task.tables), tuple))


def _decode(own: DecodeTask, tables: Mapping[int, TableTask]) -> Iterator[TableChanges | TableFailure]:
    wanted = {number: task.table_filter() for number, task in tables.items()}
    return own.slice.decoder.decode(own.read(), own.slice.context, wanted)


def _result(own: DecodeTask, outcome: Outcome) -> tuple[str, int, bytes]:
    return RESULTS, own.number, pack(outcome)


def _of_table(
    context: _Context, task: TableTask, batch: pa.RecordBatch, bad: pa.Table
) -> Iterator[tuple[str, int, bytes]]:
    changes = pa.Table.from_batches([batch])
    if failure := _unfit(task, bad):
        yield _result(context.task, Outcome(task.name, failure=failure))
        return
    known, changes = _apart(task, changes)
    yield from _held_changes(context, task, known)
    if changes.num_rows:
        yield from _live(context, task, changes, bad)


def _apart(task: TableTask, changes: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The changes that the copy holds, and the others; by key it is told of events (`_new`)."""
    if task.handoff is None or isinstance(task.handoff, ByChunk):
        return changes.slice(0, 0), changes
    held = task.handoff.holds(changes["_time"].combine_chunks(), changes["_transaction"].combine_chunks())
    return changes.filter(held), changes.filter(pc.invert(held))


def _new(task: TableTask, found: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The events that chunks of the copy hold, and the others."""
    if not isinstance(task.handoff, ByChunk):
        return found.slice(0, 0), found
    held = task.handoff.holds(found["_key"], found["_time"], found["_transaction"])
    return found.filter(held), found.filter(pc.invert(held))


def _unfit(task: TableTask, bad: pa.Table) -> Definite | None:
    """Tell whether a value without a lake form stops the table: a key's does, any does if it is strict."""
    for number in pc.unique(bad["column"]).to_pylist():
        name = task.schema.names[number]
        if task.strict or name in task.schema.key:
            return without_form(task, name)
    return None


def _held_changes(context: _Context, task: TableTask, held: pa.Table) -> Iterator[tuple[str, int, bytes]]:
    """Changes that the copy holds: they change no state, and rewind the table's history."""
    if not held.num_rows:
        return
    held = held.filter(pc.greater(held["_time"], task.complete_from))
    outcome = Outcome(task.name, held_count=_transactions(held))
    if task.schema.full:
        # Before a truncation that the copy holds there is nothing to rewind from.
        held = held.filter(pc.greater(held["_time"], task.last_truncation))
        plain = replace(task, raw_columns=())
        outcome = replace(outcome, history=write_history(context.writing, plain, history(task.schema, held)))
    yield _result(context.task, outcome)


def _live(
    context: _Context, task: TableTask, changes: pa.Table, bad: pa.Table
) -> Iterator[tuple[str, int, bytes]]:
    met = tuple(sorted(set(bad["column"].to_pylist())))
    outcome = Outcome(task.name, changes=changes.num_rows, last_commit_ts=_latest(changes), unfit_columns=met)
    if task.schema.full:
        yield _result(context.task, _straight(context, replace(task, raw_columns=met), changes, bad, outcome))
    elif unforeseen := tuple(c for c in met if c not in task.raw_columns):
        yield _result(context.task, replace(outcome, unforeseen=unforeseen))
        return
    else:
        yield _result(context.task, outcome)
    if task.schema.is_multiset:
        yield from _parts(context, partition.of_changes(task, changes))
        return
    found = events(raw_values.extend(task), raw_values.widen(task, changes, bad))
    known, found = _new(task, found)
    if known.num_rows:
        known = known.filter(pc.greater(known["_time"], task.complete_from))
        yield _result(context.task, Outcome(task.name, held_count=_transactions(known)))
    if not found.num_rows:
        return
    if task.origins is not None:
        found = origins.with_origins(found, from_ipc(receive_shared(task.origins)), task.truncations)
    elif partition.is_scattered(task, found):
        yield _result(context.task, Outcome(task.name, is_scattered=True))
        return
    yield from _parts(context, partition.of_events(task, found))


def _transactions(rows: pa.Table) -> int:
    return len(pc.unique(rows["_time"]))


def _latest(changes: pa.Table) -> int:
    return int(pc.max(changes["_commit_ts"]).cast(pa.int64()).as_py())


def _straight(
    context: _Context, task: TableTask, changes: pa.Table, bad: pa.Table, outcome: Outcome
) -> Outcome:
    """History, and rows for `errors/`, straight from the tuples of a table with full before-images."""
    # Before a truncation that the copy holds there is nothing to rewind from.
    changes = changes.filter(pc.greater(changes["_time"], task.last_truncation))
    history_rows = history(raw_values.extend(task), raw_values.widen(task, changes, bad))
    new = _not_held(task, history_rows)
    diffs = ints(history_rows, _own(history_rows)["_diff"])
    return replace(
        outcome,
        balance=row_sum(task.schema, history_rows, diffs) if task.proves_history else 0,
        history=write_history(context.writing, task, _whole(task, history_rows)),
        errors=context.writing.errors(
            task, raw_values.errors(task, new), raw_values.retract_truncated(task, new)
        ),
    )


def _whole(task: TableTask, history_rows: pa.Table) -> pa.Table:
    """Select the history from when on the stream has all of the table."""
    return (
        history_rows.filter(pc.greater(history_rows[_own(history_rows)["_time"]], task.complete_from))
        if task.complete_from
        else history_rows
    )


def _own(history_rows: pa.Table) -> dict[str, str]:
    """The names of our columns in a table's history."""
    return dict(zip(OWN, history_rows.column_names[-len(OWN) :], strict=True))


def _not_held(task: TableTask, history_rows: pa.Table) -> pa.Table:
    """Select the history of changes that the copy does not hold; for the others the copy speaks."""
    if not isinstance(task.handoff, ByChunk) or not history_rows.num_rows:
        return history_rows
    own = _own(history_rows)
    keys = keycode([history_rows.column(name) for name in task.schema.key])
    held = task.handoff.holds(
        keys, history_rows.column(own["_time"]), history_rows.column(own["_transaction"])
    )
    return history_rows.filter(pc.invert(held))


def _opening_parts(context: _Context, task: TableTask) -> Iterator[tuple[str, int, bytes]]:
    """Bring once, with the first slice, what a table's truncations mean whatever its changes are."""
    if task.last_truncation:
        yield _result(context.task, Outcome(task.name, last_truncation=task.last_truncation))
    if not task.truncations:
        return
    outcome = Outcome(
        task.name,
        changes=len(task.truncations),
        last_commit_ts=max(t.commit_ts for t in task.truncations),
    )
    if task.schema.full and task.has_errors:
        # Of other tables the raw texts come with the rows (`raw_values.attach`).
        writing, time = context.writing, task.truncations[0].time
        standing = raw_values.standing(writing.store, task, writing.epoch, time)
        outcome = replace(outcome, errors=standing)
    yield _result(context.task, outcome)
    yield from _parts(context, partition.of_files(task))


def _parts(context: _Context, shares: Iterable[partition.Share]) -> Iterator[tuple[str, int, bytes]]:
    for group, task, rows in shares:
        yield _part(context, task, group, rows)


def _part(context: _Context, task: TableTask, group: str, rows: pa.Table) -> tuple[str, int, bytes]:
    own = context.task
    part = SlicePart(own.epoch, own.lake, task, to_ipc(rows))
    return f"{task.name}:{group}", own.number, pack(part)
