"""What the two ways of copying (`snapshot`, `chunked`) share: where from and where to, and what comes out.

    Site ─► Copied         a table, whole
            ChunkCopied    a key range of one
            Refused        a table that can't be copied
            Postponed      a table that can't be copied just now: another copy tries it again
            Lost, Broken   the copy as a whole: the world, a bug

The events wait in `Site.finished` for the loop of `loop`, which commits what came; nothing here does.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headrace.core.chunks import Chunk
from headrace.core.errors import HeadraceError, Transient
from headrace.core.handoff import Handoff
from headrace.core.names import TableName
from headrace.pipeline.tasks.copy import Errand, RangeDone
from headrace.pipeline.tasks.table_task import Errors, LakeAddress, NewFile
from headrace.sources.contract.session import Waiting
from headrace.sources.postgres.catalog.locks import TableBusy
from headrace.sources.postgres.session.address import Address
from headrace.sources.postgres.session.identity import Identity
from headrace.spark.jobs import Jobs
from headrace.spark.secrets import Sealed

FREE_SECONDS = 0.2
SMALL_BYTES = 4 << 20  # of a range that shares its task with others
MOST_SHARED = 32


def shared(number: int, connections: int) -> int:
    """How many of so many small ranges make a task: few tasks, but one for each connection."""
    return max(1, min(MOST_SHARED, -(-number // connections)))


@dataclass(slots=True)
class Progress:
    """How far the copy of one table is."""

    rows_known: int
    bytes_known: int
    rows_done: int = 0
    bytes_done: int = 0

    def add(self, done: RangeDone) -> None:
        self.rows_done += done.rows
        self.bytes_done = min(self.bytes_done + done.size, self.bytes_known)


@dataclass(frozen=True, slots=True)
class Copied:
    """A table whose copy is complete: its files wait to be committed, in this folder."""

    name: TableName
    folder: str
    files: tuple[NewFile, ...]
    rows: int
    errors: Errors
    shadows: tuple[int, ...]
    handoff: Handoff


@dataclass(frozen=True, slots=True)
class ChunkCopied:
    """A chunk of a table, or several of one snapshot: their files wait to be committed, in this folder."""

    name: TableName
    folder: str
    chunks: tuple[Chunk, ...]
    done: RangeDone


@dataclass(frozen=True, slots=True)
class Refused:
    """A table that can't be copied, into this folder, for a reason of its own."""

    name: TableName
    folder: str
    error: HeadraceError


@dataclass(frozen=True, slots=True)
class Postponed:
    """A table that this copy gives up, for another one to try again: nothing more of it will come."""

    name: TableName
    error: TableBusy


@dataclass(frozen=True, slots=True)
class Lost:
    """The copy came to an end before it was done; tables that are not `Copied` need another one."""

    error: HeadraceError


@dataclass(frozen=True, slots=True)
class Broken:
    """A bug."""

    error: BaseException


Event = Copied | ChunkCopied | Refused | Postponed | Lost | Broken


class Room:
    """What all copies of a source share: its connections, and the account of how far each table is."""

    def __init__(self, connections: int) -> None:
        self.connections = connections
        self.free = threading.BoundedSemaphore(connections)
        self.progress: dict[TableName, Progress] = {}


@dataclass(slots=True)
class Site:
    """What every follower needs, and where its outcome goes."""

    address: Address
    identity: Identity
    lake: LakeAddress
    jobs: Jobs
    room: Room
    epoch: int
    base: int = 0  # what is added to the server's positions
    finished: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)
    stopping: threading.Event = field(default_factory=threading.Event)
    waits_for: Transient | None = None  # what keeps a snapshot from being taken

    @property
    def connections(self) -> int:
        """How many may copy at once."""
        return self.room.connections

    @property
    def progress(self) -> dict[TableName, Progress]:
        return self.room.progress

    @contextmanager
    def connected(self) -> Iterator[None]:
        """One of the source's connections, as soon as one is free."""
        while not self.room.free.acquire(timeout=FREE_SECONDS):
            self.check_stop()
        try:
            yield
        finally:
            self.room.free.release()

    def errand(self, sealed: Sealed) -> Errand:
        return Errand(self.epoch, self.lake, self.identity, sealed, self.base)

    @property
    def waiting(self) -> Waiting:
        """How a copy waits for other transactions: until it is stopped, and it says so."""
        return Waiting(self.check_stop, self._wait_for)

    def _wait_for(self, reason: Transient) -> None:
        self.waits_for = reason

    def check_stop(self) -> None:
        if self.stopping.is_set():
            raise Transient("COPY_STOPPED", "the copy was stopped", hint="run again to copy what is missing")
