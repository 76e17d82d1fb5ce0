"""Work ahead: layers of transactions that still run, and the epoch of one that has ended.

    thread    spool, as it grows ─► pieces ─► Spark: layers      one job after the other, small ones
    commit    the rest of the pieces ─► layers; then one job: a group of keys a task, all layers ─► files

The thread runs as long as an attempt; an epoch calls `finish`. A transaction with much work ahead gets an
epoch of its own.

The work ahead is never needed. If anything goes wrong in it (a damaged file, a lost worker, a value that no
layer can hold), the transaction, or a table of it, is *cold*: it is decoded at its commit as if nothing had
been done. If the error is a real one, it comes again there and counts. So this module reports only bugs.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from headrace.core.errors import Definite, HeadraceError
from headrace.lake.format import layout
from headrace.lake.store.contract import Store
from headrace.pipeline.stream.batches import Pieces, ended_transaction, own_files
from headrace.pipeline.tasks.decode import DecodeTask
from headrace.pipeline.tasks.routing import Routes
from headrace.pipeline.tasks.runs import (
    AbortedChanges,
    Folding,
    Layer,
    Laying,
    PieceResult,
    Range,
    fold_layers,
    sort_run,
    struck_of,
)
from headrace.pipeline.tasks.slices import Slice
from headrace.pipeline.tasks.table_task import LakeAddress, Outcome, Outcomes, TableTask, pack, unpack
from headrace.sources.contract.decoder import Decoder, RunningTransaction
from headrace.spark.jobs import Jobs
from headrace.spool.reader import SpoolReader
from headrace.spool.running_files import TransactionName

PIECE_BYTES = 16 << 20
PIECES_PER_JOB = 4
POLL_SECONDS = 0.2
ROWS_PER_GROUP = 250_000

Tables = Mapping[int, TableTask]


@dataclass(frozen=True, slots=True)
class AheadContext:
    """The place of the work ahead."""

    store: Store
    lake: LakeAddress
    source: str
    spool: Path
    jobs: Jobs
    ships_bytes: bool
    decoder: Decoder


@dataclass(slots=True)
class _Work:
    """The work that has been done for one transaction."""

    pieces: Pieces
    tables: Tables  # as they were when it began: a later change makes them cold
    layers: list[Layer] = field(default_factory=list)
    fallback: set[int] = field(default_factory=set)
    spoilt: bool = False  # none of this work counts
    number: int = 0


@dataclass(frozen=True, slots=True)
class CommittedTransaction:
    """A transaction that has committed, after its record in the spool and the look at the server."""

    own: TransactionName
    length: int
    time: int
    transaction: int | str  # its name in history
    commit_ts: int
    rolled_back: np.ndarray[tuple[int], np.dtype[np.int64]]
    epoch: int


def ended_as(reader: SpoolReader, transaction: np.void, decoder: Decoder, epoch: int) -> CommittedTransaction:
    """Make a streamed transaction from its record in the spool."""
    own = own_files(transaction)
    assert decoder.running is not None  # it was streamed
    return CommittedTransaction(
        own=own,
        length=int(transaction["length"]),
        time=int(transaction["time"]),
        transaction=decoder.running.transaction_name(ended_transaction(reader, own, transaction, decoder)),
        commit_ts=int(transaction["commit_ts"]),
        rolled_back=reader.aborted_parts(own),
        epoch=epoch,
    )


class EagerDecoding:
    """The work ahead of one attempt. The owner keeps `tables`, the lake's tables of now, up to date."""

    def __init__(self, site: AheadContext, tables: Callable[[], Tables]) -> None:
        self._site = site
        self._tables = tables
        self._folder = f"{layout.ahead_folder(site.source)}/{uuid.uuid4().hex}"
        self._work: dict[TransactionName, _Work] = {}
        self._lock = threading.Lock()  # held while pieces of any transaction are laid down
        self._over = threading.Event()
        self._bug: BaseException | None = None
        self._thread = threading.Thread(target=self._ahead, name="headrace-eager", daemon=True)

    def start(self) -> None:
        """Forget what an earlier attempt left, and begin."""
        self._remove(layout.ahead_folder(self._site.source))
        self._thread.start()

    def close(self) -> None:
        """End, and leave nothing behind."""
        self._over.set()
        self._thread.join()
        self._remove(self._folder)

    def check(self) -> None:
        """Raise the unexpected error that ended the thread, if there was one."""
        if self._bug is not None:
            raise self._bug

    # --- ahead of the commit --------------------------------------------------------------------

    def _ahead(self) -> None:
        reader = SpoolReader(self._site.spool)
        try:
            while not self._over.wait(POLL_SECONDS):
                self._turn(reader)
        except BaseException as error:  # the owner raises it: a thread must not end in silence
            self._bug = error
            raise

    def _turn(self, reader: SpoolReader) -> None:
        running = reader.running()
        for own, length in running.items():
            with self._lock:
                if own not in self._work and length >= PIECE_BYTES:
                    self._work[own] = self._begin(own)
                work = self._work.get(own)
                if work is not None:
                    whole = (length - work.pieces.at) // PIECE_BYTES * PIECE_BYTES
                    self._sort_runs(work, work.pieces.at + min(whole, PIECES_PER_JOB * PIECE_BYTES))
        with self._lock:
            # The owner takes transactions that have committed; the others were rolled back or lost.
            for own in [own for own in self._work if own not in running and not reader.has_streamed(own)]:
                del self._work[own]
                self._remove(self._place(own))

    def _begin(self, own: TransactionName) -> _Work:
        decoder = self._site.decoder
        assert decoder.running is not None  # it has begun to be streamed
        context = decoder.running.within(RunningTransaction(own.number))
        pieces = Pieces(SpoolReader(self._site.spool), decoder, 0, context, own, PIECE_BYTES)
        return _Work(pieces, self._tables())

    def _sort_runs(self, work: _Work, stop: int) -> None:
        """Lay down the pieces up to this address."""
        if work.spoilt or work.pieces.at >= stop:
            return
        try:
            with self._site.jobs.share(pack(tuple(work.tables.items()))) as tables:
                items = [self._item(work, each, tables) for each in work.pieces.upto(stop)]
                for answer in self._site.jobs.run(sort_run, items):
                    piece = unpack(answer, PieceResult)
                    work.layers.extend(piece.layers)
                    work.fallback |= piece.fallback
        except HeadraceError:
            # It was rolled back meanwhile; or a file is damaged, and then the commit meets and reports that.
            work.spoilt = True

    def _item(self, work: _Work, piece: Slice, tables: bytes) -> bytes:
        work.number += 1
        assert piece.own is not None
        task = DecodeTask(
            slice=piece.carrying(work.pieces.reader) if self._site.ships_bytes else piece,
            number=work.number,
            epoch=0,
            lake=self._site.lake,
            spool=str(self._site.spool),
            tables=tables,
        )
        return pack(Laying(task, self._place(piece.own)))

    def _place(self, own: TransactionName) -> str:
        return f"{self._folder}/{own.segment}-{own.number}"

    # --- at the commit --------------------------------------------------------------------------

    def finish(
        self, transaction: CommittedTransaction, tasks: Tables
    ) -> tuple[Outcomes, dict[int, TableTask]]:
        """Fold the layers; return the outcomes, and the tables that have to be decoded the ordinary way."""
        with self._lock:
            work = self._work.pop(transaction.own, None) or self._begin(transaction.own)
            self._sort_runs(work, transaction.length)
            work.spoilt |= work.pieces.at < transaction.length
        fallback = _cold(work, tasks, transaction)
        warm = [(table, task) for table, task in tasks.items() if table not in fallback]
        try:
            outcomes = self._fold(work, warm, transaction)
        except Definite:
            # A layer is gone. An error of a table itself never gets here: it comes back as its outcome.
            outcomes, fallback = Outcomes(), dict(tasks)
        self._remove(self._place(transaction.own))
        return outcomes, fallback

    def _fold(
        self, work: _Work, warm: Sequence[tuple[int, TableTask]], ended: CommittedTransaction
    ) -> Outcomes:
        outcomes = Outcomes()
        items: list[bytes] = []
        for table, task in warm:
            layers = tuple(layer for layer in work.layers if layer.table == table)
            aborted = struck_of(self._site.store, layers, ended.rolled_back)
            changes = sum(layer.changes for layer in layers) - len(aborted)
            if changes:
                outcomes.take(Outcome(task.name, changes=changes, last_commit_ts=ended.commit_ts))
                items.extend(map(pack, self._foldings(task, layers, aborted, ended)))
        for answer in self._site.jobs.run(fold_layers, items):
            outcomes.take(unpack(answer, Outcome))
        return outcomes

    def _foldings(
        self, task: TableTask, layers: tuple[Layer, ...], aborted: AbortedChanges, ended: CommittedTransaction
    ) -> Iterator[Folding]:
        task = replace(task.for_merge(), from_sorted_runs=True, handoff=None)
        for file, held, home in groups_of(replace(task.routes, births=_births(layers))):
            routes = Routes.over(task.routes.files[file : file + 1] if file is not None else ())
            concerned = tuple(
                layer
                for layer in layers
                if any(each is not None and len(each.batches(layer)) for each in (held, home))
            )
            if concerned:
                yield Folding(
                    epoch=ended.epoch,
                    lake=self._site.lake,
                    task=replace(task, routes=routes),
                    time=ended.time,
                    transaction=ended.transaction,
                    commit_ts=ended.commit_ts,
                    aborted_changes=aborted,
                    layers=concerned,
                    held_range=held,
                    home=home,
                )

    def _remove(self, folder: str) -> None:
        for key in self._site.store.list(folder):
            self._site.store.delete(key)


def _cold(work: _Work, tasks: Tables, ended: CommittedTransaction) -> dict[int, TableTask]:
    """Find the tables, as they are now, whose layers lack some of the transaction's changes."""
    touched = {layer.table for layer in work.layers} | work.fallback
    return {
        table: task
        for table, task in tasks.items()
        if work.spoilt
        or table in work.fallback
        or table not in work.tables  # it came while the transaction ran
        or (table in touched and not _as_it_was(work.tables[table], task, ended))
    }


def _as_it_was(known: TableTask, task: TableTask, ended: CommittedTransaction) -> bool:
    return (
        known.schema == task.schema
        and not task.raw_columns
        and task.handoff is None
        and task.applied_until <= ended.time
    )


def _births(layers: tuple[Layer, ...]) -> tuple[bytes, ...]:
    """Choose where to cut the new rows, so that each group gets about as many."""
    batches = sorted((f, n) for layer in layers for f, n in zip(layer.firsts, layer.inserts, strict=True))
    counts = np.cumsum([inserts for _, inserts in batches])
    groups = int(counts[-1]) // ROWS_PER_GROUP if len(counts) else 0
    if groups < 2:
        return ()
    cuts = np.searchsorted(counts, [int(counts[-1]) * i // groups for i in range(1, groups)])
    return tuple(sorted({batches[cut][0] for cut in cuts.tolist()}))


def groups_of(routes: Routes) -> Iterator[tuple[int | None, Range | None, Range | None]]:
    """Each file and birth of a table: the keys that may lie in it, and those whose home it is."""
    files = routes.files
    for number, file in enumerate(files):
        held = Range(low=file.low, last=file.high)
        later = next((other.low for other in files[number + 1 :]), None)
        home = Range(low=file.low if number else None, below=later)
        empty = number > 0 and later == file.low  # the first one's begins below all keys
        yield number, held, None if routes.births or empty else home
    if routes.births:
        edges = [None, *routes.births, None]
        for low, below in pairwise(edges):
            yield None, None, Range(low=low, below=below)
    elif not files:
        yield None, None, Range()
