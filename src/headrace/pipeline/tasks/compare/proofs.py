"""Tasks of verify: rows of either side become checksums, or, where these differ, come along themselves.

    source   a piece of a table, as the snapshot shows it ──────────────────┐
             the rows of some keys, by the key's index                      ┤
    lake     a file of the table at a mark                                  ├─ projection ─► Reduced
             a file of its history: what the snapshot does not show, undone ┘

The projection is one function for all four, and the source's rows come out of the very readers of the copy:
what is equal in the lake is equal here, bit for bit, and nothing else is. Values without a lake form are
NULL in the rows of both sides; their texts come along as they stand in `errors/`.

Nothing is written anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.checksum import Sums
from headrace.core.collection import between, consolidate, negate, with_diff
from headrace.core.columns import Ints, contiguous
from headrace.core.errors import HeadraceError
from headrace.core.handoff import AnySnapshot
from headrace.core.schema import TableSchema
from headrace.core.transaction_id import of_somebody
from headrace.decode.copyrows import CopiedRows
from headrace.lake.format import datafile
from headrace.pipeline.tasks.compare.checksums import ByDigest, Checksums, LakeFile
from headrace.pipeline.tasks.key_text import key_texts
from headrace.pipeline.tasks.source_access import SourceAccess
from headrace.pipeline.tasks.table_task import from_ipc, pack, to_ipc, unpack
from headrace.sources.contract.copying import Key as KeyTexts
from headrace.sources.contract.copying import Piece, Reader
from headrace.spark.secrets import Key

MOST_BYTES = 16 << 20  # of rows that one task may bring along
TEXTS = pa.schema([("key", pa.string()), ("column", pa.string()), ("raw", pa.string())])


@dataclass(frozen=True, slots=True)
class Projection:
    """The reduction of a table's rows: to sums of so many buckets, and to the rows of those wanted."""

    schema: TableSchema
    buckets: int
    buckets_wanted: tuple[int, ...] = ()

    def columns(self) -> pa.Schema:
        """The rows that come along: columns by number, so that no user's name collides with ours."""
        return pa.schema([pa.field(f"c{i}", c.type) for i, c in enumerate(self.schema.columns)])


@dataclass(frozen=True, slots=True)
class RowSums:
    """The checksums of some rows, and those of them that were wanted."""

    sums: Sums
    rows: bytes | None = None  # the updates of wanted buckets
    texts: bytes | None = None  # of values without a lake form, as `TEXTS`
    times: frozenset[int] = frozenset()  # of the transactions that were undone
    overfull: bool = False  # more rows were wanted than can come along


def unite(parts: Iterable[RowSums], buckets: int) -> RowSums:
    """Unite them; rows that are too many to come along are left out, and that is said."""
    sums = Sums.zero(buckets)
    rows: list[bytes] = []
    texts: list[bytes] = []
    times: set[int] = set()
    overfull = False
    for part in parts:
        sums += part.sums
        times |= part.times
        texts += [] if part.texts is None else [part.texts]
        rows += [] if part.rows is None else [part.rows]
        overfull |= part.overfull or sum(map(len, rows)) > MOST_BYTES
        if overfull:
            rows.clear()
    return RowSums(sums, _concat_tables(rows), _concat_tables(texts), frozenset(times), overfull)


def _concat_tables(tables: list[bytes]) -> bytes | None:
    return to_ipc(pa.concat_tables([from_ipc(each) for each in tables])) if tables else None


@dataclass(frozen=True, slots=True)
class ProofPiecesTask:
    """Pieces of tables, as the snapshot shows them."""

    access: SourceAccess
    pieces: tuple[tuple[Projection, Piece], ...]


@dataclass(frozen=True, slots=True)
class KeysTask:
    """The rows of some keys of a table, as the source prints them."""

    access: SourceAccess
    projection: Projection
    pieces: tuple[Piece, ...]  # all of the table's
    keys: tuple[KeyTexts, ...]


@dataclass(frozen=True, slots=True)
class FileTask:
    """A file of the table at a mark."""

    projection: Projection
    file: LakeFile


@dataclass(frozen=True, slots=True)
class HistoryTask:
    """A file of the table's history: what `snapshot` does not show is undone, up to the time of the mark."""

    projection: Projection
    file: LakeFile
    schema: pa.Schema  # of the file
    own: dict[str, str] = field(repr=False)
    after: int
    until: int
    snapshot: AnySnapshot


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """The outcome for the rows of some keys, by the number of the piece that they are in."""

    parts: tuple[tuple[int, RowSums], ...]


# --- the source -----------------------------------------------------------------------------------


# What comes back of a table, or of a piece of one; an error is its own, and not that of the others.
Answer = RowSums | HeadraceError


def answers(item: bytes) -> tuple[Answer, ...]:
    """Read what a task brought back, in the order in which it was asked."""
    found: tuple[Answer, ...] = unpack(item, tuple)
    return found


def _answer(one: Callable[[], RowSums]) -> Answer:
    try:
        return one()
    except HeadraceError as error:
        return error


def read_pieces(key: Key, item: bytes) -> bytes:
    """Reduce pieces, one after another over one connection."""
    task = unpack(item, ProofPiecesTask)
    with task.access.reader(key) as reader:
        return pack(tuple(_answer(partial(_piece, reader, *each)) for each in task.pieces))


def _piece(reader: Reader, projection: Projection, piece: Piece) -> RowSums:
    with reader.read(projection.schema.columns, piece) as reading:
        reduced = (
            _reduce(projection, copied.rows, _ones(copied.rows), _texts(projection, copied))
            for copied in reading.rows
        )
        return unite(reduced, projection.buckets)


def read_keys(key: Key, item: bytes) -> bytes:
    """Reduce the rows of some keys."""
    task = unpack(item, KeysTask)
    found: dict[int, list[RowSums]] = {}
    with (
        task.access.reader(key) as reader,
        closing(reader.look_up(task.projection.schema, task.pieces, task.keys)) as rows_by_piece,
    ):
        for number, rows in rows_by_piece:
            found.setdefault(number, []).append(_reduce(task.projection, rows, _ones(rows)))
    united_by = {number: unite(parts, task.projection.buckets) for number, parts in found.items()}
    return pack(MatchedRows(tuple(united_by.items())))


def _ones(rows: pa.Table) -> Ints:
    return np.ones(rows.num_rows, np.int64)


def _texts(projection: Projection, copied: CopiedRows) -> pa.Table:
    """The texts of values that the lake has no form for."""
    said = [TEXTS.empty_table()]
    for values in copied.unrepresentable:
        keys = key_texts(projection.schema, copied.those(values)).to_arrow().cast(pa.string())
        names = pa.array([projection.schema.names[values.column]] * len(values.rows), pa.string())
        said.append(pa.table([keys, names, values.texts], schema=TEXTS))
    return pa.concat_tables(said)


# --- the lake -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LakeTask:
    """All that the lake has of a small table: its files at a mark, and those of its history."""

    buckets: int
    files: tuple[FileTask, ...]
    history: tuple[HistoryTask, ...]


def read_lake_tables(item: bytes) -> bytes:
    """Reduce small tables, one after another."""
    return pack(tuple(_answer(partial(_lake_table, task)) for task in unpack(item, tuple)))


def _lake_table(task: LakeTask) -> RowSums:
    return unite([*map(_file, task.files), *map(_undo, task.history)], task.buckets)


def read_file(item: bytes) -> bytes:
    """Reduce a file of the table."""
    return pack(_file(unpack(item, FileTask)))


def _file(task: FileTask) -> RowSums:
    rows = task.file.rows(task.projection.schema.arrow())
    return unite([_reduce(task.projection, rows, _ones(rows))], task.projection.buckets)


def read_history(item: bytes) -> bytes:
    """Undo what a file of history tells of transactions that the snapshot does not show."""
    return pack(_undo(unpack(item, HistoryTask)))


def _undo(task: HistoryTask) -> RowSums:
    # Rows that a resync wrote make the lake what the source is: no snapshot lacks them.
    history = task.file.rows(task.schema)
    history = history.filter(of_somebody(history[task.own["_transaction"]]))
    time, names = history[task.own["_time"]], history[task.own["_transaction"]]
    within = pc.and_(pc.greater(time, task.after), pc.less_equal(time, task.until))
    hidden = pc.invert(task.snapshot.holds(contiguous(time), contiguous(names)))
    history = history.filter(pc.and_(within, contiguous(hidden)))
    diffs = -contiguous(history[task.own["_diff"]]).to_numpy()
    rows = datafile.conform(history, task.projection.schema.arrow())
    reduced = unite([_reduce(task.projection, rows, diffs)], task.projection.buckets)
    return replace(reduced, times=frozenset(pc.unique(history[task.own["_time"]]).to_pylist()))


# --- both -----------------------------------------------------------------------------------------


def _reduce(projection: Projection, rows: pa.Table, diffs: Ints, texts: pa.Table | None = None) -> RowSums:
    """Updates of a table, reduced."""
    checksums = Checksums(projection.schema.names, projection.schema.identity, ByDigest(projection.buckets))
    which, sums = checksums.of(rows, diffs)
    said = to_ipc(texts) if texts is not None and texts.num_rows else None
    chosen = np.isin(which, projection.buckets_wanted)
    if not chosen.any():
        return RowSums(sums, texts=said)
    mine = (
        rows.select(projection.schema.names)
        .filter(pa.array(chosen))
        .rename_columns(projection.columns().names)
    )
    updates = consolidate(with_diff(mine.cast(projection.columns()), pa.array(diffs[chosen])))
    return RowSums(sums, to_ipc(updates), said)


def net(projection: Projection, plus: RowSums, minus: RowSums) -> pa.Table:
    """The wanted rows of one side over those of the other: columns by number, and `DIFF`."""
    empty = with_diff(projection.columns().empty_table(), pa.array([], pa.int64()))
    one = empty if plus.rows is None else from_ipc(plus.rows)
    other = empty if minus.rows is None else from_ipc(minus.rows)
    return negate(between(one, other.cast(one.schema)))
