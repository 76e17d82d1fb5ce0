"""The snapshot of the tables that have no copy yet, read in parallel while the stream goes on.

    leader (here)      temporary slot + exported snapshot, open until the last follower is done
    followers (tasks)  import the snapshot, COPY one range of a table, decode, write one file or more

A table whose last range is in comes out of `finished`, small ones first, without waiting for big ones.
When the leader's connection dies, what is finished stays; `Lost` tells the caller to begin again with
what is missing: a new snapshot, joined to the same stream by its own handoff.

At most `connections` ranges are under way at once, however many executors there are.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from headrace.core.errors import Definite, HeadraceError, Transient
from headrace.core.failpoint import failpoint
from headrace.core.frontier import LsnFrontier
from headrace.core.handoff import ByPosition, Handoff
from headrace.core.names import TableName
from headrace.decode import copytext
from headrace.decode.kernel import Bytes
from headrace.decode.values import decode_column, raw
from headrace.lake.store import open_store
from headrace.pipeline import looking, shadows
from headrace.pipeline.records import SourceRecord, TableRecord
from headrace.pipeline.tasks import LakeAddress, NewFile, TableTask, join_ipc, pack, to_ipc, unpack
from headrace.pipeline.writing import Writing, without_form, write_sorted
from headrace.sources.postgres import catalog, snapshot, upstream
from headrace.sources.postgres.session import Address, Identity, Session, connect
from headrace.spark.jobs import Jobs
from headrace.spark.secrets import Key, Sealed, seal

LEAD_SECONDS = 5.0
FILE_BYTES = 64 << 20  # of COPY's text for one file; about a third of that as Parquet


@dataclass(slots=True)
class Progress:
    """How far the copy of one table is."""

    rows_known: int
    bytes_known: int
    rows_done: int = 0
    bytes_done: int = 0


@dataclass(frozen=True, slots=True)
class Copied:
    """A table whose copy is complete: its files wait to be committed."""

    name: TableName
    files: tuple[NewFile, ...]
    rows: int
    errors: bytes | None
    shadows: tuple[int, ...]
    handoff: Handoff


@dataclass(frozen=True, slots=True)
class Refused:
    """A table that can't be copied, for a reason of its own."""

    name: TableName
    error: HeadraceError


@dataclass(frozen=True, slots=True)
class Lost:
    """The snapshot is gone; tables that are not `Copied` need another one."""

    error: HeadraceError


@dataclass(frozen=True, slots=True)
class Broken:
    """A bug."""

    error: BaseException


Event = Copied | Refused | Lost | Broken


@dataclass(frozen=True, slots=True)
class RangeTask:
    """What a follower is told. The address travels sealed; the key comes another way."""

    epoch: int
    lake: LakeAddress
    table: TableTask
    range: snapshot.CopyRange
    snapshot_id: str
    identity: Identity
    address: Sealed
    time: int


@dataclass(frozen=True, slots=True)
class RangeDone:
    """What a follower brings back."""

    files: tuple[NewFile, ...]
    rows: int
    size: int  # of the range at the source, in bytes
    errors: bytes | None
    met: tuple[int, ...]


@dataclass(slots=True)
class _Table:
    task: TableTask
    left: int
    done: list[RangeDone] = field(default_factory=list)


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
        connections: int,
        epoch: int,
    ) -> None:
        self.finished: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.progress: dict[TableName, Progress] = {}
        self.names = frozenset(record.name for record in records)
        self._address = address
        self._identity = identity
        self._slot = source.slot
        self._publication = source.publication
        self._records = {record.name: record for record in records}
        self.waits_for: Transient | None = None  # what keeps the snapshot from being taken
        self._tables = {record.name: _Table(tasks(record), 0) for record in records}
        self._lake = lake
        self._jobs = jobs
        self._connections = connections
        self._stop = threading.Event()
        self._epoch = epoch
        self._thread = threading.Thread(target=self._work, name="headrace-copying", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Give up what is under way; files of unfinished tables are orphans."""
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            self._attempt()
        except HeadraceError as error:
            self.finished.put(Lost(error))
        except BaseException as error:
            # A bug must not leave the run waiting for ever: it is for the main thread.
            self.finished.put(Broken(error))
            raise

    def _attempt(self) -> None:
        with closing(connect(self._address, role="copy")) as connection:
            looks = self._looked(connection)
            oids = [look.oid for look in looks]
            sizes = catalog.sizes(connection, oids)
            self._measure(sizes)
            # After the permanent slot is made: what holds a write lock now began before it (W).
            barred = upstream.writers(connection, oids)
        failpoint("copy.snapshot.before")
        with self._lead(barred) as leader:
            self.waits_for = None
            self._copy(leader, snapshot.ranges(looks, sizes, FILE_BYTES))

    def _looked(self, connection: Session) -> list[catalog.TableLook]:
        """The tables that are still what was recorded; the others are refused."""
        known = [self._records[name] for name in sorted(self._records)]
        changed = looking.look(connection, self._publication, known).changed
        for name, error in changed.items():
            self.finished.put(Refused(name, error))
        present = [record.oid for record in known if record.name not in changed]
        return list(catalog.look(connection, present).values())

    def _lead(self, barred: Set[int]) -> snapshot.Leader:
        """A snapshot, as soon as the transactions that bar it have ended; gives way to a stop."""
        while True:
            try:
                return snapshot.lead(
                    self._address, self._identity, self._slot, barred=barred, seconds=LEAD_SECONDS
                )
            except Transient as error:
                if error.code not in ("PG_SLOT_WAITS", "PG_SNAPSHOT_BARRED"):
                    raise
                self.waits_for = error
            self._check_stop()

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise Transient("COPY_STOPPED", "the copy was stopped", hint="run again to copy what is missing")

    def _measure(self, sizes: dict[int, catalog.Size]) -> None:
        for name, record in self._records.items():
            size = sizes.get(record.oid)
            self.progress[name] = Progress(size.rows if size else 0, size.bytes if size else 0)

    def _copy(self, leader: snapshot.Leader, ranges: Sequence[snapshot.CopyRange]) -> None:
        sealed, key = seal(self._address.conninfo)
        for each in ranges:
            self._tables[each.table].left += 1
        handoff = ByPosition(LsnFrontier(leader.consistent_point))
        small_first = sorted(ranges, key=lambda each: self.progress[each.table].bytes_known)
        with ThreadPoolExecutor(self._connections, "headrace-follower") as pool:
            started = {
                pool.submit(self._range, leader, each, sealed, key): each.table for each in small_first
            }
            try:
                for future in as_completed(started):
                    self._take(started[future], future, handoff)
            finally:
                for future in started:
                    future.cancel()

    def _range(
        self, leader: snapshot.Leader, each: snapshot.CopyRange, sealed: Sealed, key: Key
    ) -> RangeDone:
        self._check_stop()
        task = RangeTask(
            epoch=self._epoch,
            lake=self._lake,
            table=self._tables[each.table].task,
            range=each,
            snapshot_id=leader.snapshot_id,
            identity=self._identity,
            address=sealed,
            time=int(leader.consistent_point) - 1,
        )
        failpoint("copy.range.before", str(each.table))
        [answer] = self._jobs.run(partial(copy_range, key), [pack(task)])
        failpoint("copy.range.after", str(each.table))
        return unpack(answer, RangeDone)

    def _take(self, name: TableName, future: Future[RangeDone], handoff: Handoff) -> None:
        try:
            done = future.result()
        except Definite as error:  # true of this table; the others go on
            if self._tables[name].left >= 0:
                self._tables[name].left = -1
                self.finished.put(Refused(name, error))
            return
        table, progress = self._tables[name], self.progress[name]
        table.done.append(done)
        table.left -= 1
        progress.rows_done += done.rows
        progress.bytes_done = min(progress.bytes_done + done.size, progress.bytes_known)
        if table.left == 0:
            progress.bytes_done = progress.bytes_known
            self.finished.put(_copied(name, table, handoff))


def _copied(name: TableName, table: _Table, handoff: Handoff) -> Copied:
    errors: bytes | None = None
    for done in table.done:
        errors = join_ipc(errors, done.errors)
    return Copied(
        name=name,
        files=tuple(file for done in table.done for file in done.files),
        rows=sum(done.rows for done in table.done),
        errors=errors,
        shadows=tuple(sorted({column for done in table.done for column in done.met})),
        handoff=handoff,
    )


# --- in a task --------------------------------------------------------------------------------


def copy_range(key: Key, item: bytes) -> bytes:
    """Copy one range of one table into new files."""
    task = unpack(item, RangeTask)
    writing = Writing(open_store(task.lake.url, dict(task.lake.options) or None), task.epoch)
    address = Address(task.address.open(key))
    table = task.table
    names = table.schema.names
    buffers = snapshot.copy(address, task.identity, task.snapshot_id, names, task.range)
    files: list[NewFile] = []
    rows = 0
    errors: bytes | None = None
    met: set[int] = set()
    for piece in _gathered(_decode(table, buffer, task.time) for buffer in buffers):
        whole = pa.concat_tables([part for part, _ in piece])
        files += write_sorted(writing, table, whole)
        rows += whole.num_rows
        for _, found in piece:
            errors = join_ipc(errors, found.errors)
            met.update(found.met)
    return pack(RangeDone(tuple(files), rows, task.range.bytes, errors, tuple(met)))


@dataclass(frozen=True, slots=True)
class Met:
    """Values without a lake form: in which columns, and their rows for `errors/`."""

    met: tuple[int, ...] = ()
    errors: bytes | None = None


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
    errors: bytes | None = None
    met = tuple(number for number, each in enumerate(decoded) if len(each.bad))
    for number in met:
        if table.strict or columns[number].name in table.schema.key:
            raise without_form(table, columns[number].name)
        bad = decoded[number].bad
        raws = raw(texts[number], bad)
        errors = join_ipc(errors, to_ipc(shadows.copied(table, rows.take(pa.array(bad)), number, raws, time)))
    return rows, Met(met, errors)
