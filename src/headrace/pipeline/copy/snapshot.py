"""The snapshot of the tables that have no copy yet, read in parallel while the stream goes on.

    leader (here)      a snapshot, by slot or by xid, exported and open until the last follower is done
    followers (tasks)  import the snapshot, COPY one range of a table, decode, write one file or more

A table whose last range is in comes out of `finished`, small ones first, without waiting for big ones;
small ones share a task and its connection. When the leader's connection dies, what is finished stays;
`Lost` tells the caller to begin again with what is missing: a new snapshot, joined to the same stream by
its own handoff.

What is true of one table concerns no other (`tasks.copy.Answer`). One that can't be read is `Refused`; one
that can't be read just now is `Postponed`, to another copy: somebody holds it, or it was truncated or
rewritten after the snapshot and before its last range was read (such statements do not spare the readers of
an older snapshot).

With `handoff = "chunks"` the tables whose keys allow it are then copied by `chunked`, without a leader. A
table that was begun in chunks is finished in chunks, whatever the configuration says now: what it has
is in the lake.

At most `connections` ranges are under way at once, however many executors and copies there are.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from headrace.core.chunks import ByChunk, exact_from
from headrace.core.errors import HeadraceError
from headrace.core.failpoint import failpoint
from headrace.core.handoff import Handoff, moved
from headrace.core.names import TableName
from headrace.pipeline.copy.chunked import Chunking, Wanted
from headrace.pipeline.copy.context import (
    SMALL_BYTES,
    Broken,
    Copied,
    Lost,
    Postponed,
    Progress,
    Refused,
    Room,
    Site,
    shared,
)
from headrace.pipeline.state import schema_check
from headrace.pipeline.state.config import SourceConfig
from headrace.pipeline.state.records import SourceRecord, TableRecord
from headrace.pipeline.tasks.copy import FILE_BYTES, Answer, RangeDone, RangesTask, answers, copy_ranges
from headrace.pipeline.tasks.table_task import LakeAddress, TableTask, pack
from headrace.sources.postgres.catalog import definitions, locks, table_def
from headrace.sources.postgres.catalog.locks import TableBusy
from headrace.sources.postgres.catalog.sizes import Size
from headrace.sources.postgres.session.address import Address
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import Identity, identify, verify
from headrace.sources.postgres.session.statements import Session
from headrace.sources.postgres.snapshot import key_range, page_ranges
from headrace.sources.postgres.snapshot.leader import By, Leader, lead
from headrace.sources.postgres.snapshot.page_ranges import CopyRange
from headrace.sources.postgres.snapshot.table_access import overtaken
from headrace.sources.postgres.upstream import Upstream
from headrace.sources.postgres.writers import writers
from headrace.spark.jobs import Jobs
from headrace.spark.secrets import Key, Sealed, seal

Ranges = list[CopyRange]
BY: Mapping[str, By] = {"slot": "slot", "xid": "xid", "chunks": "xid"}


@dataclass(slots=True)
class _Table:
    task: TableTask
    left: int  # ranges that are not in yet; below zero: nothing more is wanted of it
    done: list[RangeDone] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What there is to copy, and W."""

    looks: list[table_def.TableLook]
    sizes: Mapping[int, Size]
    chunked: Set[TableName]
    barred: Set[int]


class Copying:
    """One attempt to copy some tables under one snapshot; runs in threads of the driver."""

    def __init__(
        self,
        address: Address,
        identity: Identity,
        source: SourceRecord,
        records: Sequence[TableRecord],
        tasks: Callable[[TableRecord], TableTask],
        lake: LakeAddress,
        jobs: Jobs,
        config: SourceConfig,
        epoch: int,
        room: Room,
    ) -> None:
        self.names = frozenset(record.name for record in records)
        self.site = Site(address, identity, lake, jobs, room, epoch, base=Upstream.of(source.upstream).base)
        self._slot = Upstream.of(source.upstream).slot
        self._source = source
        self._records = {record.name: record for record in records}
        self._tables = {record.name: _Table(tasks(record), 0) for record in records}
        self._config = config
        self._thread = threading.Thread(target=self._work, name="headrace-copying", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def over(self) -> bool:
        """Whether nothing more will come; it has ended before its last word is looked for."""
        return not self._thread.is_alive() and self.site.finished.empty()

    def stop(self) -> None:
        """Give up what is under way; files of unfinished tables are orphans."""
        self.site.stopping.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            self._attempt()
        except HeadraceError as error:
            self.site.finished.put(Lost(error))
        except BaseException as error:
            # A bug must not leave the run waiting for ever: it is for the main thread.
            self.site.finished.put(Broken(error))
            raise

    def _attempt(self) -> None:
        seen = self._look_around()
        failpoint("copy.snapshot.before")
        whole = [look for look in seen.looks if look.name not in seen.chunked]
        if whole:
            with self._lead(seen.barred) as leader:
                self.site.waits_for = None
                self._copy(leader, page_ranges.ranges(whole, seen.sizes, FILE_BYTES))
        chunked = [look for look in seen.looks if look.name in seen.chunked]
        if chunked:
            tables = [
                Wanted(self._records[look.name], self._tables[look.name].task, seen.sizes[look.oid])
                for look in chunked
            ]
            with closing(connect(self.site.address, role="chunks")) as connection:
                verify(identify(connection), self.site.identity)
                Chunking(self.site, tables, self._config.chunk_bytes).run(connection, seen.barred)

    def _look_around(self) -> _Seen:
        with closing(connect(self.site.address, role="copy")) as connection:
            looks = self._looked(connection)
            measured = locks.measured(connection, {look.oid: look.name for look in looks})
            looks = [look for look in looks if self._is_there(look, measured)]
            self._measure(measured.sizes)
            chunked = self._chunked(connection, looks)
            # After the permanent slot is made: what holds a write lock now began before it (W).
            barred = writers(connection, [look.oid for look in looks])
            return _Seen(looks, measured.sizes, chunked, barred)

    def _is_there(self, look: table_def.TableLook, measured: locks.Measured) -> bool:
        """Whether the table can be read; one that was dropped meanwhile is so no more at the next look."""
        busy = measured.busy.get(look.name)
        if busy is None and look.oid not in measured.sizes:
            busy = overtaken(f"{look.name} was dropped or made anew a moment ago")
        if busy is not None:
            self.site.finished.put(Postponed(look.name, busy))
        return busy is None

    def _chunked(self, connection: Session, looks: Sequence[table_def.TableLook]) -> set[TableName]:
        """The tables to be copied in chunks: those that were begun so, or that may be and shall."""
        begun = {n: r.handoff for n, r in self._records.items() if isinstance(r.handoff, ByChunk)}
        given_up = {name for name, handoff in begun.items() if handoff.given_up}
        names = {look.name for look in looks} - given_up
        if self._config.handoff != "chunks":
            return names & begun.keys()
        return names - (key_range.disorder(connection, looks).keys() - begun.keys())

    def _looked(self, connection: Session) -> list[table_def.TableLook]:
        """The tables that are still what was recorded; the others are refused."""
        known = [self._records[name] for name in sorted(self._records)]
        changed = schema_check.look(connection, self._source, known, self._source.start).changed(known)
        for name, error in changed.items():
            self.site.finished.put(Refused(name, self._tables[name].task.folder, error))
        present = [record.oid for record in known if record.name not in changed]
        return list(definitions.look(connection, present).values())

    def _lead(self, barred: Set[int]) -> Leader:
        """A snapshot, as soon as the transactions that bar it have ended; gives way to a stop."""
        return lead(
            self.site.address,
            self.site.identity,
            self._slot,
            by=BY[self._config.handoff],
            barred=barred,
            seconds=math.inf,
            waiting=self.site.waiting,
        )

    def _measure(self, sizes: Mapping[int, Size]) -> None:
        for name, record in self._records.items():
            size = sizes.get(record.oid)
            self.site.progress[name] = Progress(size.rows if size else 0, size.bytes if size else 0)

    def _copy(self, leader: Leader, ranges: Sequence[CopyRange]) -> None:
        sealed, key = seal(self.site.address.conninfo)
        for name, pieces in Counter(each.table for each in ranges).items():
            self._tables[name].left, self._tables[name].done = pieces, []
        with ThreadPoolExecutor(self.site.connections, "headrace-follower") as pool:
            started = [
                pool.submit(self._ranges, leader, pieces, sealed, key) for pieces in self._shared(ranges)
            ]
            try:
                for future in as_completed(started):
                    for piece, answer in future.result():
                        self._take(piece.table, answer, self._handoff(leader))
            finally:
                for future in started:
                    future.cancel()

    def _shared(self, ranges: Sequence[CopyRange]) -> list[Ranges]:
        """The ranges as they go into tasks, small tables first: some small ones together, others alone."""
        by_size = sorted(ranges, key=lambda each: self.site.progress[each.table].bytes_known)
        small = [each for each in by_size if each.bytes <= SMALL_BYTES]
        large = [each for each in by_size if each.bytes > SMALL_BYTES]
        some = shared(len(small), self.site.connections)
        return [small[at : at + some] for at in range(0, len(small), some)] + [[one] for one in large]

    def _ranges(
        self, leader: Leader, pieces: Ranges, sealed: Sealed, key: Key
    ) -> list[tuple[CopyRange, Answer]]:
        self.site.check_stop()
        wanted = [piece for piece in pieces if self._tables[piece.table].left >= 0]
        task = RangesTask(
            errand=self.site.errand(sealed),
            snapshot_id=leader.snapshot_id,
            time=exact_from(self._handoff(leader)).last,
            ranges=tuple((self._tables[piece.table].task, piece) for piece in wanted),
        )
        with self.site.connected():
            for piece in wanted:
                failpoint("copy.range.before", str(piece.table))
            [answer] = self.site.jobs.run(partial(copy_ranges, key), [pack(task)])
            for piece in wanted:
                failpoint("copy.range.after", str(piece.table))
        return list(zip(wanted, answers(answer), strict=True))

    def _handoff(self, leader: Leader) -> Handoff:
        return moved(leader.handoff, self.site.base)

    def _take(self, name: TableName, answer: Answer, handoff: Handoff) -> None:
        table, progress = self._tables[name], self.site.progress[name]
        if table.left < 0:
            return
        if not isinstance(answer, RangeDone):
            table.left = -1
            folder = table.task.folder
            self.site.finished.put(
                Postponed(name, answer) if isinstance(answer, TableBusy) else Refused(name, folder, answer)
            )
            return
        table.done.append(answer)
        table.left -= 1
        progress.add(answer)
        if table.left == 0:
            progress.bytes_done = progress.bytes_known
            self.site.finished.put(_copied(name, table, handoff))


def _copied(name: TableName, table: _Table, handoff: Handoff) -> Copied:
    return Copied(
        name=name,
        folder=table.task.folder,
        files=tuple(file for done in table.done for file in done.files),
        rows=sum(done.rows for done in table.done),
        errors=tuple(piece for done in table.done for piece in done.errors),
        shadows=tuple(sorted({column for done in table.done for column in done.met})),
        handoff=handoff,
    )
