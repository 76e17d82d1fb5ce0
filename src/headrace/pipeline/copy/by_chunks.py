"""The copy of tables in chunks: key ranges, each in a short transaction with a snapshot of its own.

    driver    may be joined? ─► walk along the key: where the next chunk ends ─┐
              at most `connections` chunks under way                          │
    tasks     what do I see?; read the range; write files                 ◄───┘

No transaction of ours is older than one chunk. A copy that was ended goes on with the missing chunks: those
in the table's record are in the lake. The source waits once, before the first chunk, until every later
snapshot may be joined to the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from math import ceil

from headrace.core.chunks import Bound, ByChunk, Chunk, KeySpan
from headrace.core.errors import Definite
from headrace.core.failpoint import failpoint
from headrace.core.names import TableName
from headrace.pipeline.copy.context import ChunkCopied, CopyPostponed, CopyRefused, Readers, SourceCopyContext
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.tasks.copy import Answer, RangeDone
from headrace.pipeline.tasks.table_task import TableTask
from headrace.sources.contract.copying import CopyPlan, KeyRange, KeyWalk
from headrace.sources.contract.errors import StepTooLong, TableBusy
from headrace.sources.contract.values import TableDef, TableSize
from headrace.sources.shared.copying import SMALL_BYTES, parts_per_task

KEYS_AT_ONCE = 200  # single keys that are read in one snapshot


UnderWay = dict[Future[tuple[Answer, ...]], list[KeyRange]]


@dataclass(frozen=True, slots=True)
class TableToCopy:
    """A table to be copied, or to be finished."""

    record: TableRecord
    task: TableTask
    size: TableSize


class Chunking:
    """One attempt; runs in the copying thread of the driver."""

    def __init__(
        self,
        site: SourceCopyContext,
        tables: Sequence[TableToCopy],
        chunk_bytes: int,
        is_wanted: Callable[[TableName], bool],
    ) -> None:
        self._site = site
        self._is_wanted = is_wanted
        self._tables = sorted(tables, key=lambda wanted: wanted.size.bytes)
        self._tasks: Mapping[TableName, TableTask] = {each.record.name: each.task for each in tables}
        self._chunk_bytes = chunk_bytes
        self._given_up: set[TableName] = set()
        self._postponed: list[CopyPostponed] = []  # whose chunks are still under way

    def run(self, plan: CopyPlan) -> None:
        """Copy the missing chunks."""
        assert plan.key_walk is not None  # tables are in chunks
        with plan.key_walk(self._site.waiting) as key_walk:
            self._site.waits_for = None
            self._copy_all(key_walk, self._site.readers(key_walk.ticket, "chunk"))

    def _copy_all(self, key_walk: KeyWalk, readers: Readers) -> None:
        under_way: UnderWay = {}
        with ThreadPoolExecutor(self._site.connections, "headrace-chunk") as pool:
            try:
                for planned in self._share_out(self._plan_chunks(key_walk)):
                    chunks = [piece for piece in planned if not self._is_over(piece.table)]
                    if chunks:
                        under_way[pool.submit(self._copy, chunks, readers)] = chunks
                    # A task for each connection, and one that is planned for each.
                    while len(under_way) >= 2 * self._site.connections:
                        self._reap(under_way)
                while under_way:
                    self._reap(under_way)
                self._let_go(under_way)
            finally:
                for future in under_way:
                    future.cancel()

    def _plan_chunks(self, key_walk: KeyWalk) -> Iterator[KeyRange]:
        """Yield the chunks, small tables first; leave out tables that were given up meanwhile."""
        for wanted in self._tables:
            name = wanted.record.name
            try:
                for piece in pieces(key_walk, wanted, self._chunk_bytes, self._site.check_stop):
                    self._site.check_stop()
                    if self._is_over(name):
                        break
                    yield piece
            except (Definite, TableBusy) as error:
                self._give_up(name, error)

    def _is_over(self, name: TableName) -> bool:
        """Tell whether to read no more of the table: it was given up, or nobody wants its copy."""
        return name in self._given_up or not self._is_wanted(name)

    def _share_out(self, planned: Iterator[KeyRange]) -> Iterator[list[KeyRange]]:
        """Group the chunks into tasks: several small tables, which come first, share a task."""
        small = {each.record.name for each in self._tables if each.size.bytes <= self._small}
        each = parts_per_task(len(small), self._site.connections)
        held: list[KeyRange] = []
        for piece in planned:
            if piece.table in small:
                held.append(piece)
                if len(held) < each:
                    continue
                yield held
                held = []
            else:
                if held:
                    yield held
                    held = []
                yield [piece]
        if held:
            yield held

    @property
    def _small(self) -> int:
        """Return the bytes of a table that is one small chunk."""
        return min(SMALL_BYTES, self._chunk_bytes)

    def _copy(self, chunks: Sequence[KeyRange], readers: Readers) -> tuple[Answer, ...]:
        self._site.check_stop()
        with self._site.connect():
            for piece in chunks:
                failpoint("copy.chunk.before", str(piece.table))
            answers = readers.copy((self._tasks[piece.table], piece) for piece in chunks)
            for piece in chunks:
                failpoint("copy.chunk.after", str(piece.table))
        return answers

    def _reap(self, under_way: UnderWay) -> None:
        """Yield finished chunks as soon as there are any."""
        done, _ = wait(under_way, return_when=FIRST_COMPLETED)
        for future in done:
            for piece, answer in zip(under_way.pop(future), future.result(), strict=True):
                self._take(piece, answer)
        self._let_go(under_way)

    def _let_go(self, under_way: UnderWay) -> None:
        """Leave tables to another copy once none of their chunks is under way: none may be copied twice."""
        busy = {piece.table for chunks in under_way.values() for piece in chunks}
        for each in [each for each in self._postponed if each.name not in busy]:
            self._postponed.remove(each)
            self._site.events.put(each)

    def _take(self, piece: KeyRange, answer: Answer) -> None:
        if not isinstance(answer, RangeDone):
            self._give_up(piece.table, answer)
            return
        progress = self._site.progress.get(piece.table)
        if progress is None or not self._is_wanted(piece.table):
            return
        progress.add(answer)
        chunks = tuple(Chunk.of(span, answer.handoff) for span in piece.spans)
        folder = self._tasks[piece.table].folder
        self._site.events.put(ChunkCopied(piece.table, folder, chunks, answer))

    def _give_up(self, name: TableName, error: Definite | TableBusy) -> None:
        """Plan no more chunks of the table; those under way still count."""
        if name in self._given_up:
            return
        self._given_up.add(name)
        if isinstance(error, TableBusy):
            self._postponed.append(CopyPostponed(name, error))
        else:
            self._site.events.put(CopyRefused(name, self._tasks[name].folder, error))


def pieces(
    key_walk: KeyWalk, table: TableToCopy, chunk_bytes: int, check: Callable[[], None]
) -> Iterator[KeyRange]:
    """Yield the chunks that a table still needs, about so many bytes each.

    Their number of rows follows the statistics. If those are far too low, the chunks grow: their size doubles
    whenever there are twice as many as expected.
    """
    record, size = table.record, table.size
    foreseen = max(1, ceil(size.bytes / chunk_bytes))
    made = 0
    missing = list(record.handoff.gaps()) if isinstance(record.handoff, ByChunk) else [KeySpan()]
    keys = [gap for gap in missing if gap.one_key]
    for first in range(0, len(keys), KEYS_AT_ONCE):
        some = tuple(keys[first : first + KEYS_AT_ONCE])
        yield KeyRange(record.name, record.number, record.schema.key, some, len(some), len(some))
    walk = Walk(key_walk, record.definition, max(1, ceil(size.rows / foreseen)), check)
    for gap in (gap for gap in missing if not gap.one_key):
        low, over = gap.low, False
        while not over:
            span = KeySpan(low, gap.high)
            high = walk.next(span, made // (2 * foreseen)) if foreseen > 1 else None
            over = high is None
            span = KeySpan(low, high or gap.high)
            yield KeyRange(record.name, record.number, record.schema.key, (span,), walk.step, chunk_bytes)
            low, made = high, made + 1


@dataclass(slots=True)
class Walk:
    """The walk along a table's key, from the end of one chunk to that of the next."""

    key_walk: KeyWalk
    table: TableDef
    rows: int  # of a chunk, as foreseen
    check: Callable[[], None]
    step: int = 1  # the rows of the last chunk
    halvings: int = 0  # how often a step took too long

    def next(self, span: KeySpan, attempts: int) -> Bound | None:
        """Find the next chunk's end; halve the number of rows whenever the server takes too long for them."""
        while True:
            self.step = max(1, (self.rows << min(attempts, 40)) >> self.halvings)
            try:
                return self.key_walk.next_bound(self.table, span, self.step, self.check)
            except StepTooLong:
                if self.step == 1:
                    raise
                self.halvings += 1
