"""A task: ranges of pages, or of keys, become new files of their tables.

    COPY ─ decode ─► rows as the lake types them ─► files in the order of the key
                └──► values without a lake form ──► rows for `errors/`

Called by `copy.snapshot` and `copy.chunked`, on Spark. A range imports the leader's snapshot; a chunk takes
its own, and brings back which transactions that shows. A large range is a task of its own; small ones share
one, and its connection. The address travels sealed; the key comes another way. Nothing is committed here: the
files are named by a plan, or are orphans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from headrace.core.chunks import exact_from
from headrace.core.errors import Definite
from headrace.core.handoff import ByXid, moved
from headrace.decode import copyrows
from headrace.decode.kernel import Bytes
from headrace.pipeline.tasks import raw_values
from headrace.pipeline.tasks.files import Writing, without_form, write_sorted
from headrace.pipeline.tasks.table_task import Errors, LakeAddress, NewFile, TableTask, pack, unpack
from headrace.sources.postgres.catalog.locks import TableBusy
from headrace.sources.postgres.session.address import Address
from headrace.sources.postgres.session.identity import Identity
from headrace.sources.postgres.snapshot import key_range
from headrace.sources.postgres.snapshot.follower import Follower, copy
from headrace.sources.postgres.snapshot.page_ranges import CopyRange
from headrace.spark.secrets import Key, Sealed

FILE_BYTES = 64 << 20  # of COPY's text for one file; about a third of that as Parquet


@dataclass(frozen=True, slots=True)
class Errand:
    """What every follower is told: where it copies from, and what into."""

    epoch: int
    lake: LakeAddress
    identity: Identity
    address: Sealed
    base: int = 0  # what is added to the server's positions


@dataclass(frozen=True, slots=True)
class RangesTask:
    """Ranges of pages, as the leader's snapshot shows them; `time` is that of the snapshot."""

    errand: Errand
    snapshot_id: str
    time: int
    ranges: tuple[tuple[TableTask, CopyRange], ...]


@dataclass(frozen=True, slots=True)
class ChunksTask:
    """Ranges of keys, each as it is when the task comes to it."""

    errand: Errand
    ranges: tuple[tuple[TableTask, key_range.KeyRange], ...]


@dataclass(frozen=True, slots=True)
class RangeDone:
    """What a follower brings back."""

    files: tuple[NewFile, ...]
    rows: int
    size: int  # of the range at the source, in bytes
    errors: Errors
    met: tuple[int, ...]
    handoff: ByXid | None = None  # of a chunk


# What comes back of a range. An error that comes back is true of its table; one that is raised, of the
# source.
Answer = RangeDone | TableBusy | Definite


def answers(item: bytes) -> tuple[Answer, ...]:
    """What a task brought back, in the order of its ranges."""
    found: tuple[Answer, ...] = unpack(item, tuple)
    return found


def copy_ranges(key: Key, item: bytes) -> bytes:
    """Copy ranges of tables into new files."""
    task = unpack(item, RangesTask)
    errand = task.errand
    with _follower(errand, key, "copy") as follower:

        def one(table: TableTask, piece: CopyRange) -> RangeDone:
            buffers = copy(follower.connection, task.snapshot_id, table.schema.names, piece)
            with closing(buffers):
                return _copied(errand, table, buffers, task.time, piece.bytes, None)

        return pack(tuple(_answered(partial(one, *each)) for each in task.ranges))


def copy_chunks(key: Key, item: bytes) -> bytes:
    """Copy chunks of tables into new files, each under a snapshot of its own."""
    task = unpack(item, ChunksTask)
    errand = task.errand
    with _follower(errand, key, "chunk") as follower:

        def one(table: TableTask, piece: key_range.KeyRange) -> RangeDone:
            key_range.prepare(follower.connection)
            with key_range.chunk(follower.connection, table.schema.names, piece) as (seen, buffers):
                handoff = moved(seen, errand.base)
                assert isinstance(handoff, ByXid)
                time = exact_from(handoff).last
                with closing(buffers):
                    return _copied(errand, table, buffers, time, piece.bytes, handoff)

        return pack(tuple(_answered(partial(one, *each)) for each in task.ranges))


def _follower(errand: Errand, key: Key, role: str) -> Follower:
    return Follower(Address(errand.address.open(key)), errand.identity, role=role)


def _answered(one: Callable[[], RangeDone]) -> Answer:
    try:
        return one()
    except (TableBusy, Definite) as error:
        return error


def _copied(
    errand: Errand,
    table: TableTask,
    buffers: Iterable[Bytes],
    time: int,
    size: int,
    handoff: ByXid | None,
) -> RangeDone:
    writing = Writing(errand.lake.open(), errand.epoch)
    files: list[NewFile] = []
    rows = 0
    errors: Errors = ()
    met: set[int] = set()
    for piece in _gathered(_decode(table, buffer, time) for buffer in buffers):
        whole = pa.concat_tables([part for part, _ in piece])
        files += write_sorted(writing, table, whole)
        rows += whole.num_rows
        met.update(*(found.met for _, found in piece))
        errors += writing.errors(table, *(each for _, found in piece for each in found.errors))
    return RangeDone(tuple(files), rows, size, errors, tuple(met), handoff)


@dataclass(frozen=True, slots=True)
class Met:
    """Values without a lake form: in which columns, and their rows for `errors/`."""

    met: tuple[int, ...] = ()
    errors: tuple[pa.Table, ...] = ()


Piece = tuple[pa.Table, Met]


def _gathered(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Decoded pieces, gathered to what is written in one go: memory stays bounded by it."""
    held: list[Piece] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += piece[0].nbytes
        if size >= 3 * FILE_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _decode(table: TableTask, data: Bytes, time: int) -> Piece:
    """Rows of COPY as the lake types them, and rows for `errors/`."""
    copied = copyrows.decode(data, table.schema.columns)
    for values in copied.unrepresentable:
        name = table.schema.names[values.column]
        if table.strict or name in table.schema.key:
            raise without_form(table, name)
    errors = (
        raw_values.copied(table, copied.those(values), values.column, values.texts, time)
        for values in copied.unrepresentable
    )
    return copied.rows, Met(tuple(values.column for values in copied.unrepresentable), tuple(errors))
