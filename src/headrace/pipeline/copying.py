"""The snapshot of the tables that have no copy yet, read in parallel while the stream goes on.

    leader (here)      a snapshot, by slot or by xid, exported and open until the last follower is done
    followers (tasks)  import the snapshot, COPY one range of a table, decode, write one file or more

A table whose last range is in comes out of `finished`, small ones first, without waiting for big ones.
When the leader's connection dies, what is finished stays; `Lost` tells the caller to begin again with
what is missing: a new snapshot, joined to the same stream by its own handoff. A table that was truncated or
rewritten after the snapshot and before its last range was read is copied again by this attempt itself: such
statements do not spare the readers of an older snapshot.

With `handoff = "chunks"` the tables whose keys allow it are then copied by `chunking`, without a leader. A
table that was begun in chunks is finished in chunks, whatever the configuration says now: what it has
is in the lake.

At most `connections` ranges are under way at once, however many executors and copies there are.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from headrace.core.chunks import ByChunk
from headrace.core.errors import Definite, HeadraceError, Transient
from headrace.core.failpoint import failpoint
from headrace.core.handoff import Handoff, moved
from headrace.core.names import TableName
from headrace.pipeline import looking
from headrace.pipeline.chunking import Chunking, Wanted
from headrace.pipeline.config import SourceConfig
from headrace.pipeline.copies import Broken, Copied, Lost, Progress, Refused, Room, Site
from headrace.pipeline.copytasks import FILE_BYTES, RangeDone, RangeTask, copy_range
from headrace.pipeline.records import SourceRecord, TableRecord, exact_from
from headrace.pipeline.tasks import LakeAddress, TableTask, pack, unpack
from headrace.sources.postgres import catalog, keyrange, snapshot, upstream
from headrace.sources.postgres.session import Address, Identity, Session, connect, identify, verify
from headrace.spark.jobs import Jobs
from headrace.spark.secrets import Key, Sealed, seal

LEAD_SECONDS = 5.0
BY: Mapping[str, snapshot.By] = {"slot": "slot", "xid": "xid", "chunks": "xid"}


@dataclass(slots=True)
class _Table:
    task: TableTask
    left: int
    done: list[RangeDone] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What there is to copy, and W."""

    looks: list[catalog.TableLook]
    sizes: Mapping[int, catalog.Size]
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
        self.site = Site(address, identity, lake, jobs, room, epoch, shift=source.shift)
        self._slot = source.slot
        self._source = source
        self._records = {record.name: record for record in records}
        self._tables = {record.name: _Table(tasks(record), 0) for record in records}
        self._config = config
        self._overtaken: set[TableName] = set()  # by a TRUNCATE: to be copied by another snapshot
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
        """Snapshot after snapshot, while tables are truncated under our hands: each is copied for itself."""
        wanted = set(self._records)
        while wanted:
            self._overtaken.clear()
            self._round(wanted)
            wanted = set(self._overtaken)

    def _round(self, wanted: Set[TableName]) -> None:
        seen = self._look_around(wanted)
        failpoint("copy.snapshot.before")
        whole = [look for look in seen.looks if look.name not in seen.chunked]
        if whole:
            with self._lead(seen.barred) as leader:
                self.site.waits_for = None
                self._copy(leader, snapshot.ranges(whole, seen.sizes, FILE_BYTES))
        chunked = [look for look in seen.looks if look.name in seen.chunked]
        if chunked:
            tables = [
                Wanted(self._records[look.name], self._tables[look.name].task, seen.sizes[look.oid])
                for look in chunked
            ]
            with closing(connect(self.site.address, role="chunks")) as connection:
                verify(identify(connection), self.site.identity)
                Chunking(self.site, tables, self._config.chunk_bytes).run(connection, seen.barred)

    def _look_around(self, wanted: Set[TableName]) -> _Seen:
        with closing(connect(self.site.address, role="copy")) as connection:
            looks = self._looked(connection, wanted)
            oids = [look.oid for look in looks]
            sizes = catalog.sizes(connection, oids)
            self._measure(sizes, wanted)
            chunked = self._chunked(connection, looks)
            # After the permanent slot is made: what holds a write lock now began before it (W).
            return _Seen(looks, sizes, chunked, upstream.writers(connection, oids))

    def _chunked(self, connection: Session, looks: Sequence[catalog.TableLook]) -> set[TableName]:
        """The tables to be copied in chunks: those that were begun so, or that may be and shall."""
        begun = {n: r.handoff for n, r in self._records.items() if isinstance(r.handoff, ByChunk)}
        given_up = {name for name, handoff in begun.items() if handoff.given_up}
        names = {look.name for look in looks} - given_up
        if self._config.handoff != "chunks":
            return names & begun.keys()
        return names - (keyrange.disorder(connection, looks).keys() - begun.keys())

    def _looked(self, connection: Session, wanted: Set[TableName]) -> list[catalog.TableLook]:
        """The tables that are still what was recorded; the others are refused."""
        known = [self._records[name] for name in sorted(wanted)]
        changed = looking.look(connection, self._source, known, self._source.start).changed(known)
        for name, error in changed.items():
            self.site.finished.put(Refused(name, error))
        present = [record.oid for record in known if record.name not in changed]
        return list(catalog.look(connection, present).values())

    def _lead(self, barred: Set[int]) -> snapshot.Leader:
        """A snapshot, as soon as the transactions that bar it have ended; gives way to a stop."""
        while True:
            try:
                return snapshot.lead(
                    self.site.address,
                    self.site.identity,
                    self._slot,
                    by=BY[self._config.handoff],
                    barred=barred,
                    seconds=LEAD_SECONDS,
                )
            except Transient as error:
                if error.code not in ("PG_SLOT_WAITS", "PG_SNAPSHOT_BARRED"):
                    raise
                self.site.waits_for = error
            self.site.check_stop()

    def _measure(self, sizes: dict[int, catalog.Size], wanted: Set[TableName]) -> None:
        for name in wanted:
            size = sizes.get(self._records[name].oid)
            self.site.progress[name] = Progress(size.rows if size else 0, size.bytes if size else 0)

    def _copy(self, leader: snapshot.Leader, ranges: Sequence[snapshot.CopyRange]) -> None:
        sealed, key = seal(self.site.address.conninfo)
        for name, pieces in Counter(each.table for each in ranges).items():
            self._tables[name].left, self._tables[name].done = pieces, []
        small_first = sorted(ranges, key=lambda each: self.site.progress[each.table].bytes_known)
        with ThreadPoolExecutor(self.site.connections, "headrace-follower") as pool:
            started = {
                pool.submit(self._range, leader, each, sealed, key): each.table for each in small_first
            }
            try:
                for future in as_completed(started):
                    self._take(started[future], future, self._handoff(leader))
            finally:
                for future in started:
                    future.cancel()

    def _range(
        self, leader: snapshot.Leader, each: snapshot.CopyRange, sealed: Sealed, key: Key
    ) -> RangeDone:
        self.site.check_stop()
        task = RangeTask(
            errand=self.site.errand(self._tables[each.table].task, sealed),
            range=each,
            snapshot_id=leader.snapshot_id,
            time=int(exact_from(self._handoff(leader))) - 1,
        )
        with self.site.connected():
            failpoint("copy.range.before", str(each.table))
            [answer] = self.site.jobs.run(partial(copy_range, key), [pack(task)])
            failpoint("copy.range.after", str(each.table))
        return unpack(answer, RangeDone)

    def _handoff(self, leader: snapshot.Leader) -> Handoff:
        return moved(leader.handoff, self.site.shift)

    def _take(self, name: TableName, future: Future[RangeDone], handoff: Handoff) -> None:
        try:
            done = future.result()
        except Definite as error:  # true of this table; the others go on
            if self._tables[name].left >= 0:
                self._tables[name].left = -1
                self.site.finished.put(Refused(name, error))
            return
        except Transient as error:
            if error.code != "PG_COPY_OVERTAKEN":
                raise
            self._tables[name].left = -1
            self._overtaken.add(name)
            return
        table, progress = self._tables[name], self.site.progress[name]
        table.done.append(done)
        table.left -= 1
        progress.add(done)
        if table.left == 0:
            progress.bytes_done = progress.bytes_known
            self.site.finished.put(_copied(name, table, handoff))


def _copied(name: TableName, table: _Table, handoff: Handoff) -> Copied:
    return Copied(
        name=name,
        files=tuple(file for done in table.done for file in done.files),
        rows=sum(done.rows for done in table.done),
        errors=tuple(piece for done in table.done for piece in done.errors),
        shadows=tuple(sorted({column for done in table.done for column in done.met})),
        handoff=handoff,
    )
