"""The copy of tables in chunks: key ranges, each in a short transaction with a snapshot of its own.

    driver    W has ended? ─► walk the key's index: where the next chunk ends ─┐
              at most `connections` chunks under way                          │
    tasks     BEGIN; what do I see?; COPY the range; decode, write files  ◄───┘

No transaction of ours is older than one chunk, and a copy that was ended goes on with the chunks that it has
not: what a table's record has of them is in the lake. W is waited for once, before the first chunk: from then
on every snapshot shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from math import ceil

from headrace.core.chunks import ByChunk, Chunk, Span
from headrace.core.errors import Definite, Transient
from headrace.core.failpoint import failpoint
from headrace.core.names import TableName
from headrace.pipeline.copies import ChunkCopied, Refused, Site
from headrace.pipeline.copytasks import ChunkTask, RangeDone, copy_chunk
from headrace.pipeline.records import TableRecord
from headrace.pipeline.tasks import TableTask, pack, unpack
from headrace.sources.postgres.catalog import Size
from headrace.sources.postgres.keyrange import KeyRange, next_bound, prepare
from headrace.sources.postgres.session import Session
from headrace.sources.postgres.visibility import refuse_standby, see
from headrace.spark.secrets import Key, Sealed, seal

AGAIN_SECONDS = 0.2
KEYS_AT_ONCE = 200  # single keys that are read in one snapshot


@dataclass(frozen=True, slots=True)
class Wanted:
    """A table to be copied, or to be finished."""

    record: TableRecord
    task: TableTask
    size: Size


class Chunking:
    """One attempt; runs in the copying thread of the driver."""

    def __init__(self, site: Site, tables: Sequence[Wanted], chunk_bytes: int) -> None:
        self._site = site
        self._tables = sorted(tables, key=lambda wanted: wanted.size.bytes)
        self._tasks: Mapping[TableName, TableTask] = {each.record.name: each.task for each in tables}
        self._chunk_bytes = chunk_bytes
        self._refused: set[TableName] = set()

    def run(self, connection: Session, barred: Set[int]) -> None:
        """Copy what is missing; `connection` plans."""
        refuse_standby(self._site.identity)
        self._await(connection, barred)
        prepare(connection)
        sealed, key = seal(self._site.address.conninfo)
        under_way: dict[Future[RangeDone], KeyRange] = {}
        with ThreadPoolExecutor(self._site.connections, "headrace-chunk") as pool:
            try:
                for piece in self._planned(connection):
                    under_way[pool.submit(self._chunk, piece, sealed, key)] = piece
                    # One chunk for each connection, and one that is planned for each.
                    while len(under_way) >= 2 * self._site.connections:
                        self._reap(under_way)
                while under_way:
                    self._reap(under_way)
            finally:
                for future in under_way:
                    future.cancel()

    def _await(self, connection: Session, barred: Set[int]) -> None:
        """Until a snapshot shows all of W; gives way to a stop."""
        while True:
            self._site.check_stop()
            try:
                see(connection.pgconn, barred)
            except Transient as error:
                if error.code != "PG_SNAPSHOT_BARRED":
                    raise
                self._site.waits_for = error
                self._site.stopping.wait(AGAIN_SECONDS)
            else:
                self._site.waits_for = None
                return

    def _planned(self, connection: Session) -> Iterator[KeyRange]:
        """The chunks, small tables first; those of a table that was refused meanwhile are left out."""
        for wanted in self._tables:
            for piece in pieces(connection, wanted, self._chunk_bytes):
                self._site.check_stop()
                if wanted.record.name in self._refused:
                    break
                yield piece

    def _chunk(self, piece: KeyRange, sealed: Sealed, key: Key) -> RangeDone:
        self._site.check_stop()
        task = ChunkTask(self._site.errand(self._tasks[piece.table], sealed), piece)
        with self._site.connected():
            failpoint("copy.chunk.before", str(piece.table))
            [answer] = self._site.jobs.run(partial(copy_chunk, key), [pack(task)])
            failpoint("copy.chunk.after", str(piece.table))
        return unpack(answer, RangeDone)

    def _reap(self, under_way: dict[Future[RangeDone], KeyRange]) -> None:
        """Hand out what is done, as soon as anything is."""
        done, _ = wait(under_way, return_when=FIRST_COMPLETED)
        for future in done:
            self._take(under_way.pop(future), future)

    def _take(self, piece: KeyRange, future: Future[RangeDone]) -> None:
        try:
            done = future.result()
        except Definite as error:  # true of this table; the others go on
            if piece.table not in self._refused:
                self._refused.add(piece.table)
                self._site.finished.put(Refused(piece.table, error))
            return
        assert done.handoff is not None
        self._site.progress[piece.table].add(done)
        chunks = tuple(Chunk(span, done.handoff) for span in piece.spans)
        self._site.finished.put(ChunkCopied(piece.table, chunks, done))


def pieces(connection: Session, wanted: Wanted, chunk_bytes: int) -> Iterator[KeyRange]:
    """The chunks that a table still needs, about so many bytes each.

    Their number of rows follows the statistics. Where those are far too low the chunks grow as they come,
    twice as large whenever there are twice as many as were foreseen.
    """
    record, size = wanted.record, wanted.size
    foreseen = max(1, ceil(size.bytes / chunk_bytes))
    rows = max(1, ceil(size.rows / foreseen))
    made = 0
    missing = list(record.handoff.gaps()) if isinstance(record.handoff, ByChunk) else [Span()]
    keys = [gap for gap in missing if gap.one_key]
    for first in range(0, len(keys), KEYS_AT_ONCE):
        some = tuple(keys[first : first + KEYS_AT_ONCE])
        yield KeyRange(record.name, record.schema.key, some, len(some), len(some))
    for gap in (gap for gap in missing if not gap.one_key):
        low, over = gap.low, False
        while not over:
            step = rows << min(made // (2 * foreseen), 40)
            span = Span(low, gap.high)
            high = next_bound(connection, record.schema, record.name, span, step) if foreseen > 1 else None
            over = high is None
            yield KeyRange(record.name, record.schema.key, (Span(low, high or gap.high),), step, chunk_bytes)
            low, made = high, made + 1
