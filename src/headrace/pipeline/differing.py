"""Tasks: two contents of one table, compared range by range of its keys, and what is to be done about it.

    files of both ─ sample ─► bounds of ranges, each with about as many rows
    files of both ─ apart ═ shuffle by range ═ compare ─► Compared: the difference as a file of events
    those files   ─ route ═ shuffle by file of the table ═ `merging` ─► files, history, errors

What is the same costs a read and is not written again. Where events can't say it, in a table without a key or
one that has a key twice, or another identity than its files are sorted by, `rewrite` takes the place of the
last two: all rows are written anew, and history tells what went and what came.

Called by `reconciling`. A range is as large as memory allows a task, whatever the size of the table.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headrace.core import difference
from headrace.core.difference import Moment
from headrace.core.keycode import keycode
from headrace.lake import datafile
from headrace.lake.store import Store, open_store
from headrace.pipeline import groups, shadows
from headrace.pipeline.routing import FileRange, Prefixes, Routes, prefixes
from headrace.pipeline.tasks import LakeAddress, Outcome, Part, TableTask, from_ipc, pack, to_ipc, unpack
from headrace.pipeline.writing import Writing, write_history, write_sorted

ROWS_PER_RANGE = 250_000
BLOB_BYTES = 16 << 20
SAMPLES = 128  # keys of a file

_EVENTS_PER_RANGE = 1 << 32  # their ordinals do not meet those of another range


@dataclass(frozen=True, slots=True)
class Comparison:
    """What every task of one comparison is told."""

    epoch: int
    lake: LakeAddress
    table: TableTask  # as it shall be; its shadows are those of both, and it knows no files
    moment: Moment
    folder: str  # of what the comparison writes for itself

    @property
    def store(self) -> Store:
        return open_store(self.lake.url, dict(self.lake.options) or None)


@dataclass(frozen=True, slots=True)
class Half:
    """A file of the old or of the new contents."""

    given: Comparison
    task: TableTask  # of the contents that it belongs to, without files
    file: FileRange
    new: bool
    bounds: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class _Rows:
    given: Comparison
    new: bool
    rows: bytes  # with their shadows


@dataclass(frozen=True, slots=True)
class Compared:
    """What came of a range."""

    changes: int = 0
    doubled: bool = False  # a key is there twice: events can't tell rows apart
    events: str | None = None  # the key of the file that holds them


@dataclass(frozen=True, slots=True)
class Applying:
    """A file of events to be routed to the files of the table."""

    given: Comparison
    task: TableTask  # with its files
    events: str


def halves(given: Comparison, task: TableTask, *, new: bool) -> list[Half]:
    """The files of one side."""
    alone = replace(task, routes=Routes.over(()), shadows=given.table.shadows)
    return [Half(given, alone, file, new) for file in task.routes.files]


# --- bounds -------------------------------------------------------------------------------------


def sample(item: bytes) -> bytes:
    """The task: some keys of a file, evenly spread over its rows."""
    half = unpack(item, Half)
    rows = _read(half)
    return prefixes(_identities(half, rows.take(pa.array(_spread(rows.num_rows))))).tobytes()


def _spread(rows: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.unique(np.linspace(0, max(rows - 1, 0), SAMPLES).astype(np.int64))[:rows]


def bounds(samples: Iterable[bytes], rows: int) -> tuple[bytes, ...]:
    """Where each range but the first begins."""
    found = np.sort(np.frombuffer(b"".join(samples), dtype=prefixes(pa.array([], pa.large_binary())).dtype))
    ranges = -(-rows // ROWS_PER_RANGE)
    if ranges < 2 or not len(found):
        return ()
    cuts: Prefixes = np.unique(found[[len(found) * i // ranges for i in range(1, ranges)]])
    return tuple(cuts.tolist())


# --- comparing ----------------------------------------------------------------------------------


def apart(item: bytes) -> Iterator[tuple[str, int, bytes]]:
    """The mapping side: the rows of a file, range by range."""
    half = unpack(item, Half)
    store = half.given.store
    rows = shadows.attach(store, half.task, _read(half))
    if not rows.num_rows:
        return
    edges = np.array(half.bounds, dtype=prefixes(pa.array([], pa.large_binary())).dtype)
    numbers = np.searchsorted(edges, prefixes(_identities(half, rows)), side="right")
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    for low, high in zip(starts, [*starts[1:], len(order)], strict=True):
        mine = rows.take(pa.array(order[low:high]))
        for piece in _pieces(mine):
            share = _Rows(half.given, half.new, to_ipc(piece))
            yield f"{int(numbers[order[low]]):012d}", int(half.new), pack(share)


def _read(half: Half) -> pa.Table:
    """The file's rows, also where another program wrote it."""
    task = half.task
    return datafile.read(half.given.store, task.folder, half.file.path, schema=task.schema.arrow())


def _identities(half: Half, rows: pa.Table) -> pa.Array:
    """By the identity that the table shall have."""
    return keycode([rows.column(name) for name in half.given.table.schema.identity])


def _pieces(rows: pa.Table) -> Iterator[pa.Table]:
    step = max(1, rows.num_rows * BLOB_BYTES // max(rows.nbytes, 1))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def compare(group: str, blobs: Iterator[bytes]) -> Iterable[bytes]:
    """The reducing side: the events of a range, in a file of their own where there are any."""
    given, old, new = _sides(blobs)
    schema = shadows.extend(given.table)
    moment = replace(given.moment, first=int(group) * _EVENTS_PER_RANGE)
    if schema.is_multiset:
        yield pack(Compared(changes=difference.history(schema, old, new, moment).num_rows))
        return
    if difference.doubled(schema, old) or difference.doubled(schema, new):
        yield pack(Compared(changes=1, doubled=True))
        return
    found = difference.events(schema, old, new, moment)
    if not found.num_rows:
        yield pack(Compared())
        return
    key = f"{given.folder}/{group}-{uuid.uuid4().hex}.arrow"
    with given.store.open_output(key) as sink:
        sink.write(to_ipc(found))
    yield pack(Compared(changes=found.num_rows, events=key))


def rewrite(group: str, blobs: Iterator[bytes]) -> Iterable[bytes]:
    """The reducing side where events can't say it: the new rows of a range, and what history tells."""
    given, old, new = _sides(blobs)
    writing = Writing(given.store, given.epoch)
    moment = replace(given.moment, first=int(group) * _EVENTS_PER_RANGE)
    rows = shadows.drop(given.table, new)
    told = difference.history(given.table.schema, shadows.drop(given.table, old), rows, moment)
    yield pack(
        Outcome(
            given.table.name,
            add=write_sorted(writing, given.table, rows),
            history=write_history(writing, given.table, told) if told.num_rows else (),
            rows=new.num_rows - old.num_rows,
        )
    )


def _sides(blobs: Iterator[bytes]) -> tuple[Comparison, pa.Table, pa.Table]:
    """The old rows come before the new ones."""
    parts = [unpack(blob, _Rows) for blob in blobs]
    given = parts[0].given
    nothing = shadows.extend(given.table).arrow().empty_table()
    sides = [
        pa.concat_tables(
            [nothing, *(from_ipc(part.rows).cast(nothing.schema) for part in parts if part.new == new)]
        )
        for new in (False, True)
    ]
    return given, sides[0], sides[1]


# --- applying -----------------------------------------------------------------------------------


def route(item: bytes) -> Iterator[tuple[str, int, bytes]]:
    """The mapping side of the merge: the events of a range, by the file that each concerns."""
    applying = unpack(item, Applying)
    data = applying.given.store.get(applying.events)
    assert data is not None, "the comparison wrote it"
    for number, (name, task, rows) in enumerate(groups.of_events(applying.task, from_ipc(data))):
        part = Part(applying.given.epoch, applying.given.lake, task, to_ipc(rows))
        yield f"{task.name}:{name}", number, pack(part)


def standing_errors(given: Comparison, old: TableTask, new: TableTask) -> Sequence[bytes | None]:
    """Where all rows are written anew: the old errors taken back, and those of the new copy."""
    time = given.moment.time
    return shadows.standing(given.store, old, time), shadows.standing(given.store, new, time, diff=1)
