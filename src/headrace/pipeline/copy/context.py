"""The context of a copy of any kind: its source, its lake, its thread, and the events that it brings.

         ─► Copied         a table, whole
            ChunkCopied    a key range of one
            Rewritten      a portion of the rows of one, from the lake
            Refused        a table that can't be copied
            Postponed      a table that can't be copied just now: another copy tries it again
            Lost, Broken   the copy as a whole failed: by a transient error, by a bug

The events wait in `CopyContext.events` for the `loop`, which commits the parts; nothing here commits.

A copy runs in a thread of the driver (`CopyThread`): `snapshot` copies tables of the source, `from_lake`
rewrites rows of the lake.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from headrace.core.chunks import Chunk
from headrace.core.errors import HeadraceError, Transient
from headrace.core.handoff import Handoff
from headrace.core.hashing import HashKey
from headrace.core.names import TableName
from headrace.pipeline.tasks.copy import Answer, PiecesTask, RangeDone, answers, copy_pieces
from headrace.pipeline.tasks.source_access import SourceAccess, SourceDoor
from headrace.pipeline.tasks.table_task import Errors, LakeAddress, NewFile, TableTask, pack
from headrace.sources.contract.copying import Piece
from headrace.sources.contract.errors import TableBusy
from headrace.sources.contract.mirror import Address
from headrace.sources.contract.values import Json, Waiting
from headrace.spark.jobs import Background, Jobs
from headrace.spark.lazy import LazyJobs
from headrace.spark.secrets import Key

FREE_SECONDS = 0.2


@dataclass(slots=True)
class CopyProgress:
    """The progress of one table's copy."""

    rows_known: int
    bytes_known: int
    rows_done: int = 0
    bytes_done: int = 0

    def add(self, range_done: RangeDone) -> None:
        self.rows_done += range_done.rows
        self.bytes_done = min(self.bytes_done + range_done.size, self.bytes_known)


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A table whose copy is complete: its files wait to be committed, in this folder."""

    name: TableName
    folder: str
    files: tuple[NewFile, ...]
    rows: int
    errors: Errors
    raw_columns: tuple[int, ...]
    handoff: Handoff


@dataclass(frozen=True, slots=True)
class ChunkCopied:
    """A chunk of a table, or several of one snapshot: their files wait to be committed, in this folder."""

    name: TableName
    folder: str
    chunks: tuple[Chunk, ...]
    range_done: RangeDone


@dataclass(frozen=True, slots=True)
class RewriteDone:
    """Rewritten rows of a table's old files, by name up to `range_done`: they wait to be committed here."""

    name: TableName
    folder: str
    files: tuple[NewFile, ...]
    rows: int
    last_file: str


@dataclass(frozen=True, slots=True)
class CopyRefused:
    """A table that can't be copied, into this folder, for a reason of its own."""

    name: TableName
    folder: str
    error: HeadraceError


@dataclass(frozen=True, slots=True)
class CopyPostponed:
    """A table that this copy leaves for another copy to try: no more parts of it will come."""

    name: TableName
    error: TableBusy


@dataclass(frozen=True, slots=True)
class CopyLost:
    """The copy came to an end before it was done; tables that are not `CopiedTable` need another one."""

    error: HeadraceError


@dataclass(frozen=True, slots=True)
class CopyBroken:
    """A bug."""

    error: BaseException


Portion = ChunkCopied | RewriteDone  # more of the table comes
Event = CopiedTable | Portion | CopyRefused | CopyPostponed | CopyLost | CopyBroken


class Room:
    """The resources of all copies of a source: its connections, and the progress of each table."""

    def __init__(self, connections: int) -> None:
        self.connections = connections
        self.free = threading.BoundedSemaphore(connections)
        self.progress: dict[TableName, CopyProgress] = {}
        self.beside_marks = False  # tables have marks that a copy must not keep waiting


@dataclass(slots=True)
class CopyContext:
    """The inputs of every copy, and the queue for its events."""

    lake: LakeAddress
    spark: Jobs
    room: Room
    epoch: int
    events: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)
    stopping: threading.Event = field(default_factory=threading.Event)
    has_ended: threading.Event = field(
        default_factory=threading.Event
    )  # it holds no snapshot of the source any more
    waits_for: Transient | None = None  # what keeps a snapshot from being taken

    @property
    def progress(self) -> dict[TableName, CopyProgress]:
        return self.room.progress

    @property
    def jobs(self) -> Jobs:
        return self.beside(self.spark)

    def beside(self, jobs: Jobs, *, spare: bool = False) -> Jobs:
        """Return the jobs as a copy may use them now: marks go first. `spare`: the source does not wait."""
        return Background(jobs, spare) if self.room.beside_marks else jobs

    def await_started(self, jobs: Jobs) -> None:
        """Wait for a Spark that is still starting, until the copy is stopped."""
        if isinstance(jobs, LazyJobs):
            jobs.await_started(self.check_stop)

    def check_stop(self) -> None:
        if self.stopping.is_set():
            raise Transient("COPY_STOPPED", "the copy was stopped", hint="run again to copy what is missing")


@dataclass(slots=True, kw_only=True)
class SourceCopyContext(CopyContext):
    """The inputs of a copy that reads its source."""

    kind: str  # of the source
    address: Address
    identity: Json
    hash_key: HashKey | None = None  # if a rule of columns hashes values

    @property
    def connections(self) -> int:
        """The number of copies that may read at once."""
        return self.room.connections

    @contextmanager
    def connect(self) -> Iterator[None]:
        """Lend one of the source's connections, as soon as one is free."""
        while not self.room.free.acquire(timeout=FREE_SECONDS):
            self.check_stop()
        try:
            yield
        finally:
            self.room.free.release()

    def readers(self, ticket: Json, role: str) -> Readers:
        """The readers that use this ticket."""
        door = SourceDoor(self.kind, self.identity, self.address, ticket, role, self.hash_key)
        return Readers(self, door)

    @property
    def waiting(self) -> Waiting:
        """Wait for other transactions until the copy is stopped, and show that in the status."""
        return Waiting(self.check_stop, self._wait_for)

    def _wait_for(self, reason: Transient) -> None:
        self.waits_for = reason


@dataclass(frozen=True, slots=True)
class Readers:
    """Tasks that read pieces of tables by one ticket."""

    site: SourceCopyContext
    door: SourceDoor

    def copy(self, pieces: Iterable[tuple[TableTask, Piece]]) -> tuple[Answer, ...]:
        """Copy pieces, one after another over one connection."""
        wanted = tuple(pieces)

        def job(access: SourceAccess, key: Key) -> tuple[Answer, ...]:
            task = PiecesTask(access, self.site.epoch, self.site.lake, wanted)
            [answer] = self.site.jobs.run(partial(copy_pieces, key), [pack(task)])
            return answers(answer)

        return self.door.run(job)


# --- a copy as a thread ---------------------------------------------------------------------------


class CopyThread(ABC):
    """One attempt to copy some tables; a caller starts it once."""

    reads_source = True

    def __init__(self, site: CopyContext, names: frozenset[TableName]) -> None:
        self.site = site
        self.names = names
        self._thread = threading.Thread(target=self._work, name="headrace-copying", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def over(self) -> bool:
        """Tell whether no more events will come: checks the end before the queue, so as to miss none."""
        return self.site.has_ended.is_set() and self.site.events.empty()

    def forget(self, names: Collection[TableName]) -> None:
        """Give up these tables: no more of their parts come; the other tables are copied to their end."""
        self.names -= frozenset(names)
        if not self.names:
            self.site.stopping.set()

    def stop(self) -> None:
        """Give up what is under way; files of unfinished tables are orphans."""
        self.site.stopping.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            self._attempt()
        except HeadraceError as error:
            self.site.events.put(CopyLost(error))
        except BaseException as error:
            # A bug must not leave the run waiting for ever: it is for the main thread.
            self.site.events.put(CopyBroken(error))
            raise
        finally:
            self.site.has_ended.set()

    @abstractmethod
    def _attempt(self) -> None:
        """Copy the tables; an error ends the attempt."""
