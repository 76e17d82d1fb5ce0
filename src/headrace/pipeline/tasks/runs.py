"""Layers: what a streamed transaction has done so far, decoded ahead of its commit.

While the transaction runs, tasks turn piece after piece of it into layers, and its commit has only to fold:

    piece of the transaction ─ decode ─► events by key ─ sort ─► a layer: one file a piece and table
                                                                      │  the commit, or never
    a range of keys ◄── its part of every layer, without what was rolled back ◄──┘
          └─► fold onto the rows of the lake, new files, exact history

A layer numbers the changes of its table through the whole transaction, rolled-back ones too, since nobody
knows yet which those are: that number is its `_ordinal`. The commit tells, and the driver makes ranges of
numbers of them (`AbortedChanges`); what lies in one is left out, and the others are counted without it.
Beside a layer with changes of several parts (savepoints) stands a list of those, so that the ranges can be
made.

Only what needs nothing but its own rows is laid down: a table with a key, with no value without a lake
form, no value to be read under another key, no TRUNCATE, and the columns and labels of enums that were
recorded: looks watch those until the commit, and another label may be renamed before one sees it. Of the
rest a piece says that it has it (`PieceResult.fallback`), and the commit decodes that table as if nothing
were here. Layers are a cache, like the spool that they come from: they may be lost at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.core.change_batch import TIMESTAMP
from headrace.core.columns import ints
from headrace.core.errors import Definite
from headrace.core.key_events import KeyEvent, events
from headrace.core.row_groups import by_group, rank
from headrace.decode.kernel import Flags, Ints
from headrace.lake.store.contract import Store
from headrace.pipeline.tasks.decode import DecodeTask, tables_of
from headrace.pipeline.tasks.files import Writing
from headrace.pipeline.tasks.merge import merge_events
from headrace.pipeline.tasks.routing import WIDTH, Prefixes, prefixes
from headrace.pipeline.tasks.table_task import LakeAddress, Outcome, TableTask, pack, unpack
from headrace.sources.contract.decoder import TableFailure

ROWS_PER_BATCH = 8192  # a layer is read in such parts
_KNOWN_AT_COMMIT = ("_time", "_transaction", "_commit_ts")


# --- what travels -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layer:
    """The changes of one table in one piece: a file of the store, and what lies where in it."""

    table: int  # as the stream numbers it
    key: str
    rows: int
    changes: int
    firsts: tuple[bytes, ...]  # the key code with which each batch begins, as `routing` compares it
    inserts: tuple[int, ...]  # rows that appear, by batch
    is_mixed: bool  # some of it was made by parts that may be rolled back alone; they are listed beside it

    @property
    def who(self) -> str:
        """The key of the list of its parts."""
        return self.key.removesuffix(".arrow") + ".who"


@dataclass(frozen=True, slots=True)
class Laying:
    """A piece to lay down, and under which name."""

    piece: DecodeTask
    folder: str

    @property
    def transaction(self) -> int:
        """The number of its transaction, as the stream has it."""
        assert self.piece.slice.own is not None
        return self.piece.slice.own.number


@dataclass(frozen=True, slots=True)
class PieceResult:
    """The outcome of a piece: its layers, and the tables of which it has what no layer can hold."""

    layers: tuple[Layer, ...]
    fallback: frozenset[int]


@dataclass(frozen=True, slots=True)
class AbortedChanges:
    """The numbers of a table's changes that were rolled back: disjoint ranges, in order."""

    starts: Ints
    stops: Ints

    @classmethod
    def of(cls, starts: Ints, stops: Ints) -> AbortedChanges:
        order = np.argsort(starts)
        return cls(starts[order], stops[order])

    def __len__(self) -> int:
        return int((self.stops - self.starts).sum())

    def holds(self, numbers: Ints) -> Flags:
        last = np.searchsorted(self.starts, numbers, side="right") - 1
        inside = last >= 0
        inside[inside] &= numbers[inside] < self.stops[last[inside]]
        return np.asarray(inside, np.bool_)

    def before(self, numbers: Ints) -> Ints:
        """Count the rolled-back changes before each of these, which are none themselves."""
        counts = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.stops - self.starts)])
        return np.asarray(counts[np.searchsorted(self.starts, numbers, side="right")])


@dataclass(frozen=True, slots=True)
class Range:
    """Key codes from `low` on and before `below`, or up to `last`; None: no bound on that side."""

    low: bytes | None = None
    below: bytes | None = None
    last: bytes | None = None

    def holds(self, keys: Prefixes) -> Flags:
        held = np.ones(len(keys), np.bool_)
        if self.low is not None:
            held &= keys >= self.low
        if self.below is not None:
            held &= keys < self.below
        if self.last is not None:
            held &= keys <= self.last
        return held

    def batches(self, layer: Layer) -> range:
        """The batches of a layer in which such keys may lie."""
        firsts = np.array(layer.firsts, dtype=f"S{WIDTH}")
        begin, end = 0, len(firsts)
        if self.low is not None:
            begin = max(0, int(np.searchsorted(firsts, self.low, side="left")) - 1)
        if self.below is not None:
            end = int(np.searchsorted(firsts, self.below, side="left"))
        if self.last is not None:
            end = int(np.searchsorted(firsts, self.last, side="right"))
        return range(begin, max(begin, end))


@dataclass(frozen=True, slots=True)
class Folding:
    """A group to fold: a file of the table, or a birth; see `routing`."""

    epoch: int
    lake: LakeAddress
    task: TableTask  # its routes hold the group's own file, or nothing
    time: int
    transaction: int | str  # its name, as history has it
    commit_ts: int
    aborted_changes: AbortedChanges
    layers: tuple[Layer, ...]
    held_range: Range | None  # the keys that may lie in its file
    home: Range | None  # the keys whose home it is


# --- laying down --------------------------------------------------------------------------------


def sort_run(item: bytes) -> bytes:
    """A task: decode one piece, and lay down what can be."""
    laying = unpack(item, Laying)
    piece = laying.piece
    store = piece.lake.open()
    tables = tables_of(piece)
    found: dict[int, list[pa.Table]] = {}
    data, context, decoder = piece.read(), piece.slice.context, piece.slice.decoder
    # The times are not known yet, and with 0 none is too early.
    fallback = set(decoder.truncations(data, context, dict.fromkeys(tables, 0)))
    wanted = {table: task.table_filter(since=0) for table, task in tables.items()}
    for each in decoder.decode(data, context, wanted):
        if isinstance(each, TableFailure) or each.bad.num_rows or tables[each.table].schema.is_multiset:
            fallback.add(each.table)
        else:
            found.setdefault(each.table, []).append(pa.Table.from_batches([each.batch]))
    layers = []
    for table, batches in found.items():
        changes = pa.concat_tables(batches)
        layer = None if table in fallback else _sort_run(store, laying, tables[table], table, changes)
        if layer is None:
            fallback.add(table)
        else:
            layers.append(layer)
    return pack(PieceResult(tuple(layers), frozenset(fallback)))


def _sort_run(store: Store, laying: Laying, task: TableTask, table: int, changes: pa.Table) -> Layer | None:
    """The layer of one table; None where a value has to be looked up under another key."""
    try:
        found = events(task.schema, changes)
    except Definite:
        return None  # the commit will meet it again, if it is not rolled back, and say so
    if found["_from"].null_count < found.num_rows:
        return None
    found = found.take(pa.array(by_group(rank(found["_key"].combine_chunks()).ids)))
    key = f"{laying.folder}/{laying.piece.number}-{table}.arrow"
    _write(store, key, found.drop_columns([*_KNOWN_AT_COMMIT, "_from"]))
    who = _who(changes, laying.transaction)
    layer = Layer(
        table=table,
        key=key,
        rows=found.num_rows,
        changes=changes.num_rows,
        firsts=tuple(bytes(first) for first in prefixes(_each_first(found["_key"]))),
        inserts=tuple(_inserts(found)),
        is_mixed=bool(np.any(who["part"] != laying.transaction)),
    )
    if layer.is_mixed:
        store.put(layer.who, who.tobytes(), lasting=False)
    return layer


def _write(store: Store, key: str, rows: pa.Table) -> None:
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with store.open_output(key) as sink, pa.ipc.new_file(sink, rows.schema, options=options) as writer:
        writer.write_table(rows.combine_chunks(), max_chunksize=ROWS_PER_BATCH)


def _each_first(keys: pa.ChunkedArray) -> pa.Array:
    return keys.combine_chunks().take(pa.array(range(0, len(keys), ROWS_PER_BATCH)))


def _inserts(found: pa.Table) -> Iterator[int]:
    appears = ints(found, "_event") == KeyEvent.INSERT
    for start in range(0, len(appears), ROWS_PER_BATCH):
        yield int(appears[start : start + ROWS_PER_BATCH].sum())


_WHO = np.dtype([("start", "<i8"), ("stop", "<i8"), ("part", "<i8")])


def _who(changes: pa.Table, transaction: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """Tell which part of the transaction made which changes: runs of their numbers, in order.

    Where transactions are not named by numbers they have no parts.
    """
    numbers = ints(changes, "_ordinal")
    parts = np.full(len(numbers), transaction, np.int64)
    if pa.types.is_integer(changes.schema.field("_transaction").type):
        parts = ints(changes, "_transaction")
    breaks = np.flatnonzero((np.diff(parts) != 0) | (np.diff(numbers) != 1)) + 1
    starts = np.concatenate([np.zeros(1, np.int64), breaks])
    runs = np.zeros(len(starts), _WHO)
    runs["start"], runs["part"] = numbers[starts], parts[starts]
    runs["stop"] = numbers[np.append(breaks, len(numbers)) - 1] + 1
    return runs


def struck_of(store: Store, layers: Sequence[Layer], rolled_back: Ints) -> AbortedChanges:
    """The changes of a table that were rolled back, from its layers' lists of parts."""
    starts, stops = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for layer in layers if len(rolled_back) else ():
        if layer.is_mixed:
            with store.open_input(layer.who) as source:  # raises where it is gone, as a layer's file does
                runs = np.frombuffer(source.read(), _WHO)
            gone = runs[np.isin(runs["part"], rolled_back)]
            starts.append(gone["start"])
            stops.append(gone["stop"])
    return AbortedChanges.of(np.concatenate(starts), np.concatenate(stops))


# --- folding ------------------------------------------------------------------------------------


def fold_layers(item: bytes) -> bytes:
    """A task: one group's part of every layer, folded into the lake."""
    folding = unpack(item, Folding)
    store = folding.lake.open()
    parts = [part for layer in folding.layers for part in _parts(store, folding, layer)]
    if not parts:
        return pack(Outcome(folding.task.name))
    rows = pa.concat_tables(parts, promote_options="default")
    return pack(merge_events(Writing(store, folding.epoch), folding.task, _committed_events(folding, rows)))


def _parts(store: Store, folding: Folding, layer: Layer) -> Iterator[pa.Table]:
    """The rows of a layer for the group, batch by batch."""
    wanted = [each.batches(layer) for each in (folding.held_range, folding.home) if each is not None]
    numbers = sorted({number for each in wanted for number in each})
    if not numbers:
        return
    with store.open_input(layer.key) as source:
        file = pa.ipc.open_file(source)
        for number in numbers:
            yield from _of_batch(folding, pa.Table.from_batches([file.get_batch(number)]))


def _of_batch(folding: Folding, rows: pa.Table) -> Iterator[pa.Table]:
    keys = prefixes(rows["_key"].combine_chunks())
    home = np.zeros(len(keys), np.bool_) if folding.home is None else folding.home.holds(keys)
    mine = home if folding.held_range is None else home | folding.held_range.holds(keys)
    mine &= ~folding.aborted_changes.holds(ints(rows, "_ordinal"))
    if mine.any():
        yield rows.append_column("_home", pa.array(home)).filter(pa.array(mine))


def _committed_events(folding: Folding, rows: pa.Table) -> pa.Table:
    """The events as they are now that the transaction has ended."""
    numbers = ints(rows, "_ordinal")
    ordinals = pa.array(numbers - folding.aborted_changes.before(numbers))
    rows = rows.set_column(rows.column_names.index("_ordinal"), "_ordinal", ordinals)
    kinds = (pa.int64(), folding.task.schema.transaction.type, TIMESTAMP)
    values = (folding.time, folding.transaction, folding.commit_ts)
    for name, kind, value in zip(_KNOWN_AT_COMMIT, kinds, values, strict=True):
        rows = rows.append_column(name, pa.repeat(pa.scalar(value, kind), rows.num_rows))
    return rows.append_column("_from", pa.nulls(rows.num_rows, pa.large_binary()))
