"""Tasks: two contents of one table, compared by ranges of its keys, and what is to be done about it.

    files of both ─ sample ─► bounds of ranges, each with about as many rows
    each file     ─ sum_up ─► its rows and their digests, summed by range     `comparison` says what differs
    those ranges  ─ apart ═ shuffle by lots of ranges ═ compare ─► Compared: the difference, in files
    those files   ─ route ═ shuffle by file of the table ═ `tasks.merge` ─► files, history, errors

What is the same costs one read and goes nowhere. Where events can't say it, in a table without a key or
one that has a key twice, or another identity than its files are sorted by, `rewrite` takes the place of the
last two: all rows are written anew, and history tells what went and what came.

A lot is as large as memory allows a task, whatever the table's size.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from headrace.core import difference
from headrace.core.checksum import Sums
from headrace.core.columns import Ints, row_bytes, wide
from headrace.core.difference import DifferenceMoment
from headrace.core.keycode import keycode
from headrace.lake.format.vector import FileRows, file_rows
from headrace.lake.store.contract import Store
from headrace.pipeline.tasks import partition, raw_values
from headrace.pipeline.tasks.compare.checksums import ByRange, Checksums, LakeFile
from headrace.pipeline.tasks.files import Writing, write_history, write_sorted
from headrace.pipeline.tasks.routing import FileRange, Prefixes, Routes, prefixes
from headrace.pipeline.tasks.table_task import (
    Errors,
    LakeAddress,
    Outcome,
    SlicePart,
    TableTask,
    from_ipc,
    pack,
    to_ipc,
    unpack,
)

ROWS_PER_RANGE = 2_500
ROWS_PER_LOT = 250_000
BYTES_PER_RANGE = 1 << 20  # in memory
BYTES_PER_LOT = 128 << 20
MOST_RANGES = 4096
BLOB_BYTES = 16 << 20
SAMPLES = 1024  # keys of a file

_EVENTS_PER_LOT = 1 << 32  # their ordinals do not meet those of another lot


@dataclass(frozen=True, slots=True)
class ComparisonTerms:
    """The terms of a comparison, as every task of it has them."""

    epoch: int
    lake: LakeAddress
    table: TableTask  # as it shall be; its raw columns are those of both, and it knows no files
    moment: DifferenceMoment
    folder: str  # of what the comparison writes for itself

    @property
    def store(self) -> Store:
        return self.lake.open()


@dataclass(frozen=True, slots=True)
class SideFile:
    """A file of the old or of the new contents."""

    terms: ComparisonTerms
    task: TableTask  # of the contents that it belongs to, without files
    file: FileRange
    new: bool
    bounds: tuple[bytes, ...] = ()
    lots: tuple[tuple[int, int], ...] = ()  # the ranges whose rows are wanted, and the lot that each goes to

    @property
    def place(self) -> tuple[bool, FileRows]:
        """The place that tells it apart from all others of its comparison."""
        return self.new, file_rows(self.file)

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that tell rows apart: the identity that the table shall have."""
        return self.terms.table.schema.identity

    @property
    def ranges(self) -> ByRange:
        return ByRange(self.bounds)


@dataclass(frozen=True, slots=True)
class FileSums:
    """The sums of a file's rows, in the ranges in which it has any."""

    ranges: Ints
    sums: Sums
    sizes: Ints  # bytes in memory


@dataclass(frozen=True, slots=True)
class KeySample:
    """Some keys of a file, and what its rows take in memory."""

    keys: bytes
    size: int


@dataclass(frozen=True, slots=True)
class _Rows:
    terms: ComparisonTerms
    new: bool
    rows: bytes  # with their raw columns


@dataclass(frozen=True, slots=True)
class LotResult:
    """The outcome of a lot."""

    changes: int = 0
    has_double_keys: bool = False  # a key is there twice: events can't tell rows apart
    events: str | None = None  # the key of the file that holds them


@dataclass(frozen=True, slots=True)
class Applying:
    """A file of events to be routed to the files of the table."""

    terms: ComparisonTerms
    task: TableTask  # with its files
    events: str


def side_files(terms: ComparisonTerms, task: TableTask, *, new: bool) -> list[SideFile]:
    """The files of one side."""
    alone = replace(task, routes=Routes.over(()), raw_columns=terms.table.raw_columns)
    return [SideFile(terms, alone, file, new) for file in task.routes.files]


# --- bounds -------------------------------------------------------------------------------------


def sample(item: bytes) -> bytes:
    """The task: some keys of a file, evenly spread over its rows."""
    side_file = unpack(item, SideFile)
    rows = _read(side_file)
    keys = prefixes(_identities(side_file, rows.take(pa.array(_spread(rows.num_rows)))))
    return pack(KeySample(keys.tobytes(), int(row_bytes(rows).sum())))


def _spread(rows: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.unique(np.linspace(0, max(rows - 1, 0), SAMPLES).astype(np.int64))[:rows]


def bounds(samples: Sequence[KeySample], rows: int) -> tuple[bytes, ...]:
    """Find where each range but the first begins: so that none has very many rows, or very large ones."""
    keys = b"".join(each.keys for each in samples)
    found = np.sort(np.frombuffer(keys, dtype=prefixes(pa.array([], pa.large_binary())).dtype))
    size = sum(each.size for each in samples)
    ranges = min(max(-(-rows // ROWS_PER_RANGE), -(-size // BYTES_PER_RANGE)), MOST_RANGES)
    if ranges < 2 or not len(found):
        return ()
    cuts: Prefixes = np.unique(found[[len(found) * i // ranges for i in range(1, ranges)]])
    return tuple(cuts.tolist())


# --- summing up ---------------------------------------------------------------------------------


def sum_up(item: bytes) -> bytes:
    """The task: the rows of a file, summed by range."""
    side_file = unpack(item, SideFile)
    rows = raw_values.attach(side_file.terms.store, side_file.task, _read(side_file))
    names = raw_values.extend(side_file.terms.table).names
    checksums = Checksums(names, side_file.identity, side_file.ranges)
    which, sums = checksums.of(rows)
    sizes = np.zeros(side_file.ranges.count, np.int64)
    np.add.at(sizes, which, row_bytes(rows))
    found = np.unique(which)
    return pack(FileSums(found, sums.only(found), sizes[found]))


# --- comparing ----------------------------------------------------------------------------------


def apart(item: bytes) -> Iterator[tuple[str, int, bytes]]:
    """The mapping side: the wanted rows of a file, lot by lot."""
    side_file = unpack(item, SideFile)
    rows = _read(side_file)
    wanted = np.array(side_file.lots, np.int64).reshape(-1, 2)
    ranges = side_file.ranges.numbers(_identities(side_file, rows))
    inside = np.isin(ranges, wanted[:, 0])
    rows = raw_values.attach(side_file.terms.store, side_file.task, rows.filter(pa.array(inside)))
    if not rows.num_rows:
        return
    lots = wanted[np.searchsorted(wanted[:, 0], ranges[inside]), 1]
    order = np.argsort(lots, kind="stable")
    starts = np.flatnonzero(np.diff(lots[order], prepend=-1))
    for low, high in zip(starts, [*starts[1:], len(order)], strict=True):
        mine = rows.take(pa.array(order[low:high]))
        for piece in _pieces(mine):
            share = _Rows(side_file.terms, side_file.new, to_ipc(piece))
            yield f"{int(lots[order[low]]):012d}", int(side_file.new), pack(share)


def _read(side_file: SideFile) -> pa.Table:
    file = LakeFile(side_file.terms.lake, side_file.task.folder, file_rows(side_file.file))
    return file.rows(side_file.task.schema.arrow())


def _identities(side_file: SideFile, rows: pa.Table) -> pa.Array:
    return keycode([rows.column(name) for name in side_file.identity])


def _pieces(rows: pa.Table) -> Iterator[pa.Table]:
    step = max(1, rows.num_rows * BLOB_BYTES // max(rows.nbytes, 1))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def compare(group: str, blobs: Iterator[bytes]) -> Iterable[bytes]:
    """The reducing side: the events of a lot, in a file of their own where there are any."""
    given, old, new = _sides(blobs)
    schema = raw_values.extend(given.table)
    moment = replace(given.moment, first=int(group) * _EVENTS_PER_LOT)
    if schema.is_multiset:
        yield pack(LotResult(changes=difference.history(schema, old, new, moment).num_rows))
        return
    if difference.repeats_key(schema, old) or difference.repeats_key(schema, new):
        yield pack(LotResult(changes=1, has_double_keys=True))
        return
    found = difference.events(schema, old, new, moment)
    if not found.num_rows:
        yield pack(LotResult())
        return
    key = f"{given.folder}/{group}-{uuid.uuid4().hex}.arrow"
    with given.store.open_output(key) as sink:
        sink.write(to_ipc(found))
    yield pack(LotResult(changes=found.num_rows, events=key))


def rewrite(group: str, blobs: Iterator[bytes]) -> Iterable[bytes]:
    """The reducing side where events can't say it: the new rows of a lot, and what history tells."""
    given, old, new = _sides(blobs)
    writing = Writing(given.store, given.epoch)
    moment = replace(given.moment, first=int(group) * _EVENTS_PER_LOT)
    rows = raw_values.drop(given.table, new)
    history_rows = difference.history(given.table.schema, raw_values.drop(given.table, old), rows, moment)
    yield pack(
        Outcome(
            given.table.name,
            add=write_sorted(writing, given.table, rows),
            history=write_history(writing, given.table, history_rows) if history_rows.num_rows else (),
            rows=new.num_rows - old.num_rows,
        )
    )


def _sides(blobs: Iterator[bytes]) -> tuple[ComparisonTerms, pa.Table, pa.Table]:
    """The old rows come before the new ones; with wide offsets."""
    parts = [unpack(blob, _Rows) for blob in blobs]
    given = parts[0].terms
    nothing = wide(raw_values.extend(given.table).arrow().empty_table())
    sides = [
        pa.concat_tables(
            [nothing, *(from_ipc(part.rows).cast(nothing.schema) for part in parts if part.new == new)]
        )
        for new in (False, True)
    ]
    return given, sides[0], sides[1]


# --- applying -----------------------------------------------------------------------------------


def route(item: bytes) -> Iterator[tuple[str, int, bytes]]:
    """The mapping side of the merge: the events of a lot, by the file that each concerns."""
    applying = unpack(item, Applying)
    data = applying.terms.store.get(applying.events)
    assert data is not None, "the comparison wrote it"
    for number, (name, task, rows) in enumerate(partition.of_events(applying.task, from_ipc(data))):
        part = SlicePart(applying.terms.epoch, applying.terms.lake, task, to_ipc(rows))
        yield f"{task.name}:{name}", number, pack(part)


def standing_errors(terms: ComparisonTerms, old: TableTask, new: TableTask) -> Errors:
    """Take the old errors back, and say those of the new copy: all rows are written anew."""
    said = partial(raw_values.standing, terms.store, old, terms.epoch, terms.moment.time)
    return said() + said(of=new, diff=1)
