"""A task: a range of pages, or of keys, becomes new files of a table.

    COPY ─ decode ─► rows as the lake types them ─► files in the order of the key
                └──► values without a lake form ──► rows for `errors/`

Called by `copying` and `chunking`, on Spark. A range imports the leader's snapshot; a chunk takes its own,
and brings back which transactions that shows. The address travels sealed; the key comes another way. Nothing
is committed here: the files are named by a plan, or are orphans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.core.handoff import ByXid, moved
from headrace.decode import copytext
from headrace.decode.kernel import Bytes
from headrace.decode.values import decode_column, raw
from headrace.lake.store import open_store
from headrace.pipeline import shadows
from headrace.pipeline.records import exact_from
from headrace.pipeline.tasks import Errors, LakeAddress, NewFile, TableTask, pack, unpack
from headrace.pipeline.writing import Writing, without_form, write_sorted
from headrace.sources.postgres import keyrange, snapshot
from headrace.sources.postgres.session import Address, Identity
from headrace.spark.secrets import Key, Sealed

FILE_BYTES = 64 << 20  # of COPY's text for one file; about a third of that as Parquet


@dataclass(frozen=True, slots=True)
class Errand:
    """What every follower is told: where it copies from, and what into."""

    epoch: int
    lake: LakeAddress
    table: TableTask
    identity: Identity
    address: Sealed
    shift: int = 0  # what is added to the server's positions


@dataclass(frozen=True, slots=True)
class RangeTask:
    """A range of pages, as the leader's snapshot shows them; `time` is that of the snapshot."""

    errand: Errand
    range: snapshot.CopyRange
    snapshot_id: str
    time: int


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """A range of keys, as it is when the task comes to it."""

    errand: Errand
    range: keyrange.KeyRange


@dataclass(frozen=True, slots=True)
class RangeDone:
    """What a follower brings back."""

    files: tuple[NewFile, ...]
    rows: int
    size: int  # of the range at the source, in bytes
    errors: Errors
    met: tuple[int, ...]
    handoff: ByXid | None = None  # of a chunk


def copy_range(key: Key, item: bytes) -> bytes:
    """Copy one range of one table into new files."""
    task = unpack(item, RangeTask)
    errand = task.errand
    names = errand.table.schema.names
    address = Address(errand.address.open(key))
    buffers = snapshot.copy(address, errand.identity, task.snapshot_id, names, task.range)
    return pack(_copied(errand, buffers, task.time, task.range.bytes, None))


def copy_chunk(key: Key, item: bytes) -> bytes:
    """Copy one chunk of one table into new files."""
    task = unpack(item, ChunkTask)
    errand = task.errand
    names = errand.table.schema.names
    address = Address(errand.address.open(key))
    with keyrange.chunk(address, errand.identity, names, task.range) as (seen, buffers):
        handoff = moved(seen, errand.shift)
        assert isinstance(handoff, ByXid)
        time = int(exact_from(handoff)) - 1
        return pack(_copied(errand, buffers, time, task.range.bytes, handoff))


def _copied(
    errand: Errand, buffers: Iterable[Bytes], time: int, size: int, handoff: ByXid | None
) -> RangeDone:
    writing = Writing(open_store(errand.lake.url, dict(errand.lake.options) or None), errand.epoch)
    files: list[NewFile] = []
    rows = 0
    errors: Errors = ()
    met: set[int] = set()
    for piece in _gathered(_decode(errand.table, buffer, time) for buffer in buffers):
        whole = pa.concat_tables([part for part, _ in piece])
        files += write_sorted(writing, errand.table, whole)
        rows += whole.num_rows
        met.update(*(found.met for _, found in piece))
        errors += writing.errors(errand.table, *(each for _, found in piece for each in found.errors))
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
    columns = table.schema.columns
    texts = copytext.columns(data, len(columns))
    decoded = [decode_column(text, c.form, c.type) for text, c in zip(texts, columns, strict=True)]
    rows = pa.Table.from_arrays([each.array for each in decoded], schema=table.schema.arrow())
    errors: list[pa.Table] = []
    met = tuple(number for number, each in enumerate(decoded) if len(each.bad))
    for number in met:
        if table.strict or columns[number].name in table.schema.key:
            raise without_form(table, columns[number].name)
        bad = decoded[number].bad
        raws = raw(texts[number], bad)
        errors.append(shadows.copied(table, rows.take(pa.array(bad)), number, raws, time))
    return rows, Met(met, tuple(errors))
