"""The snapshot of the tables that have no copy yet, read in parallel while the stream goes on.

    the driver (here)   a moment of the source, held open until the last reader is done
    readers (tasks)     by its ticket, a piece of a table each, as files of the lake

A table is finished once its last piece is in: small tables first, without waiting for big ones; small ones
share a task and its connection. If no reader reached a snapshot, another one is tried. If a snapshot is lost,
finished tables stay; `CopyLost` tells the caller to begin again with the missing ones, under a new snapshot,
joined to the stream by its own handoff.

The error of one table does not concern the others (`tasks.copy.Answer`). A table that can't be read is
`CopyRefused`. One that can't be read just now is `CopyPostponed` to another copy: a session has locked it, or
it was truncated or rewritten after the snapshot and before its last piece was read (such statements take rows
away from readers of older snapshots).

With `handoff = "chunks"`, `by_chunks` then copies the tables whose keys allow it, without a long snapshot. A
table that was begun in chunks is finished in chunks, whatever the configuration says now: its first chunks
are in the lake.

At most `connections` pieces are under way at once, however many executors and copies there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field, replace

from headrace.core.chunks import ByChunk
from headrace.core.failpoint import failpoint
from headrace.core.handoff import Handoff
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.pipeline.copy.by_chunks import Chunking, TableToCopy
from headrace.pipeline.copy.context import (
    CopiedTable,
    CopyPostponed,
    CopyProgress,
    CopyRefused,
    CopyThread,
    Readers,
    Room,
    SourceCopyContext,
)
from headrace.pipeline.state import schema_check
from headrace.pipeline.state.config import SourceConfig
from headrace.pipeline.state.records import SourceRecord, TableRecord
from headrace.pipeline.tasks.copy import FILE_BYTES, Answer, RangeDone
from headrace.pipeline.tasks.table_task import LakeAddress, TableTask
from headrace.sources import registry
from headrace.sources.contract.copying import CopyOrder, CopyPlan, Piece, Snapshot, TableSizes
from headrace.sources.contract.errors import MISSED_SECONDS, MomentMissed, TableBusy
from headrace.sources.contract.hash_key import hash_key
from headrace.sources.contract.mirror import Address, Mirror
from headrace.sources.contract.values import Json, TableDef
from headrace.spark.jobs import Jobs

AWAKE_SECONDS = 60.0  # between two questions to a snapshot that is being read


@dataclass(slots=True)
class _Table:
    task: TableTask
    pieces_left: int  # pieces that are not in yet; below zero: the table is not wanted any more
    ranges_done: list[RangeDone] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _CopyableTables:
    """The tables that can be copied, how big they are, and what their copy waits for."""

    tables: list[TableDef]
    sizes: TableSizes
    plan: CopyPlan


class Copying(CopyThread):
    """One attempt to copy some tables under one snapshot."""

    site: SourceCopyContext

    def __init__(
        self,
        address: Address,
        identity: Json,
        source: SourceRecord,
        records: Sequence[TableRecord],
        tasks: Callable[[TableRecord], TableTask],
        lake: LakeAddress,
        jobs: Jobs,
        config: SourceConfig,
        epoch: int,
        room: Room,
        reached: Position,
    ) -> None:
        site = SourceCopyContext(
            lake,
            jobs,
            room,
            epoch,
            kind=source.kind,
            address=address,
            identity=identity,
            hash_key=hash_key(source.column_rules),
        )
        super().__init__(site, frozenset(record.name for record in records))
        self._source = source
        self._records = {record.name: record for record in records}
        self._tables = {record.name: _Table(tasks(record), 0) for record in records}
        self._config = config
        self._reached = reached
        self._started: Sequence[Future[list[tuple[Piece, Answer]]]] = ()

    def _attempt(self) -> None:
        self.site.await_started(self.site.spark)
        seen = self._look_around()
        failpoint("copy.snapshot.before")
        chunked = self._tables_in_chunks(seen)
        whole = [table for table in seen.tables if table.name not in chunked]
        if whole:
            self._copy_whole(seen, whole)
        if chunked:
            sizes = seen.sizes.sizes
            tables = [TableToCopy(self._records[n], self._tables[n].task, sizes[n]) for n in sorted(chunked)]
            chunking = Chunking(self.site, tables, self._config.chunk_bytes, lambda name: name in self.names)
            chunking.run(seen.plan)

    def _copy_whole(self, seen: _CopyableTables, tables: Sequence[TableDef]) -> None:
        """Copy tables under one snapshot. If readers missed it, try another one here: nobody else waits."""
        waiting = replace(self.site.waiting, check=self._check)
        names = [table.name for table in tables]
        target = piece_bytes(sum(seen.sizes.sizes[name].bytes for name in names), self._readers())
        pieces = seen.sizes.pieces(names, target)
        for pause in (*MISSED_SECONDS, None):
            self._started = ()
            try:
                with seen.plan.snapshot(tables, waiting) as snapshot:
                    self._copy(snapshot, pieces)
                return
            except MomentMissed:
                if pause is None:
                    raise
                self.site.stopping.wait(pause)
                self.site.check_stop()

    def _look_around(self) -> _CopyableTables:
        source = registry.by_kind(self._source.kind)
        with closing(source.connect(self.site.address, role="copy")) as connection:
            mirror = connection.mirror(self._source.upstream, self.site.identity)
            same = self._same(mirror)
            measured = mirror.measure(same)
            for name, busy in measured.busy.items():
                self.site.events.put(CopyPostponed(name, busy))
            self._measure(measured)
            tables = [table for table in same if table.name in measured.sizes]
            order = CopyOrder(tables, self._readers(), self._config.options, self._reached)
            return _CopyableTables(tables, measured, mirror.plan_copy(order))

    def _readers(self) -> int:
        return min(self.site.connections, self.site.jobs.at_once)

    def _tables_in_chunks(self, seen: _CopyableTables) -> Set[TableName]:
        """Select the tables to copy in chunks: those begun so, and, if configured, those with fit keys."""
        begun = {n: r.handoff for n, r in self._records.items() if isinstance(r.handoff, ByChunk)}
        given_up = {name for name, handoff in begun.items() if handoff.given_up}
        names = {table.name for table in seen.tables} - given_up
        return names & {*begun, *seen.plan.by_ranges}

    def _same(self, mirror: Mirror) -> list[TableDef]:
        """Return the tables that still fit their records, with their news; refuse the others."""
        known = [self._records[name] for name in sorted(self._records)]
        check = schema_check.check_records(mirror, known, self._source.start)
        changed = check.changed_tables(known)
        for name, error in changed.items():
            self.site.events.put(CopyRefused(name, self._tables[name].task.folder, error))
        same = [check.renew(record).definition for record in known if record.name not in changed]
        for table in same:
            copied = self._tables[table.name]
            copied.task = replace(copied.task, details=table.details)
        return same

    def _measure(self, measured: TableSizes) -> None:
        for name in self._records:
            size = measured.sizes.get(name)
            self.site.progress[name] = CopyProgress(size.rows if size else 0, size.bytes if size else 0)

    def _copy(self, snapshot: Snapshot, pieces: Sequence[Piece]) -> None:
        readers = self.site.readers(snapshot.ticket, "copy")
        for name, count in Counter(each.table for each in pieces).items():
            self._tables[name].pieces_left, self._tables[name].ranges_done = count, []
        with ThreadPoolExecutor(self.site.connections, "headrace-follower") as pool:
            started = [pool.submit(self._read, readers, share) for share in snapshot.shares(pieces)]
            self._started = started
            try:
                _ = snapshot.handoff  # only now: its readers may have to be there first
                self.site.waits_for = None
                for piece, answer, handoff in _read_under(snapshot, started):
                    self._take(piece.table, answer, handoff)
            finally:
                for future in started:
                    future.cancel()

    def _check(self) -> None:
        """Raise if the wait for a snapshot must end: the copy is stopped, or one of its readers failed."""
        self.site.check_stop()
        for future in self._started:
            if future.done():
                future.result()

    def _read(self, readers: Readers, share: Sequence[Piece]) -> list[tuple[Piece, Answer]]:
        self.site.check_stop()
        wanted = [p for p in share if p.table in self.names and self._tables[p.table].pieces_left >= 0]
        with self.site.connect():
            for piece in wanted:
                failpoint("copy.range.before", str(piece.table))
            answers = readers.copy((self._tables[piece.table].task, piece) for piece in wanted)
            for piece in wanted:
                failpoint("copy.range.after", str(piece.table))
        return list(zip(wanted, answers, strict=True))

    def _take(self, name: TableName, answer: Answer, handoff: Handoff) -> None:
        table, progress = self._tables[name], self.site.progress.get(name)
        if table.pieces_left < 0 or progress is None or name not in self.names:
            return
        if not isinstance(answer, RangeDone):
            table.pieces_left = -1
            folder = table.task.folder
            self.site.events.put(
                CopyPostponed(name, answer)
                if isinstance(answer, TableBusy)
                else CopyRefused(name, folder, answer)
            )
            return
        table.ranges_done.append(answer)
        table.pieces_left -= 1
        progress.add(answer)
        if table.pieces_left == 0:
            progress.bytes_done = progress.bytes_known
            self.site.events.put(_copy_done(name, table, handoff))


def piece_bytes(total: int, readers: int) -> int:
    """Choose the size of a piece: at most a file's, and such that all readers get equally many."""
    rounds = max(1, -(-total // (FILE_BYTES * readers)))
    return max(FILE_BYTES // 2, -(-total // (rounds * readers)))


def _read_under(
    snapshot: Snapshot, started: Sequence[Future[list[tuple[Piece, Answer]]]]
) -> Iterator[tuple[Piece, Answer, Handoff]]:
    """Yield answers as the readers end; query the snapshot meanwhile, so that its connection stays awake.

    The readers find out whether the snapshot is still held: those that need it no more go on without it.
    """
    left = set(started)
    while left:
        ended, left = wait(left, AWAKE_SECONDS, FIRST_COMPLETED)
        snapshot.alive()
        for future in ended:
            answers = future.result()
            handoff = snapshot.settle()
            yield from ((piece, answer, handoff) for piece, answer in answers)


def _copy_done(name: TableName, table: _Table, handoff: Handoff) -> CopiedTable:
    return CopiedTable(
        name=name,
        folder=table.task.folder,
        files=tuple(file for done in table.ranges_done for file in done.files),
        rows=sum(done.rows for done in table.ranges_done),
        errors=tuple(piece for done in table.ranges_done for piece in done.errors),
        raw_columns=tuple(sorted({column for done in table.ranges_done for column in done.unfit_columns})),
        handoff=handoff,
    )
