"""The writing end of a spool: one process appends bytes and records.

A writer never touches a file that another writer began: it opens a new segment behind the newest one and a
new session. So no record names the half-written bytes of a killed writer.

Transactions that are streamed while they run go to files of their own, through `running_files`. A record
names them once they have committed; the next writer deletes those that were open when a writer ended.

The spool has a limit. At it `full` is true and the receiver stops reading; the driver frees room with
`SpoolReader.discard`. A transaction that is larger than the limit passes through all the same: `full` is
true only while there is something that the driver can free.
"""

from __future__ import annotations

import fcntl
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from headrace.core.errors import Transient
from headrace.spool.layout import (
    INDEX_RECORDS,
    LAYOUT,
    RECORD,
    SEGMENT,
    Bytes,
    Kind,
    Records,
    checks,
    checksums,
    discard_orphans,
    disk_error,
    segment_path,
)
from headrace.spool.places import PlaceFiles, Places
from headrace.spool.reader import SpoolReader
from headrace.spool.running_files import StreamedFiles
from headrace.spool.segment import open_segment


@dataclass(slots=True)
class _Files:
    """The open files of the segment that is being written."""

    raw: int
    sums: int
    layouts: int
    index: int

    @classmethod
    def create(cls, folder: Path, segment: int) -> _Files:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        # The index comes last: a segment exists once it has one.
        names = ("raw", "sums", "layouts", "index")
        return cls(*(os.open(segment_path(folder, segment, name), flags, 0o600) for name in names))

    def close(self) -> None:
        for descriptor in (self.raw, self.sums, self.layouts, self.index):
            os.close(descriptor)


class SpoolWriter:
    """Appends to the spool in `folder`, which `reader.prepare` made. Use it as a context manager."""

    def __init__(
        self,
        folder: Path,
        limit_bytes: int,
        frontier: int = 0,
        *,
        segment_bytes: int = SEGMENT,
        index_records: int = INDEX_RECORDS,
    ) -> None:
        self._folder = folder
        self._limit = limit_bytes
        self._segment_bytes = segment_bytes
        self._index_records = index_records
        self._lock = _lock(folder)
        self._sizes = discard_orphans(folder)  # of each segment that the driver may still hold
        self.streamed = StreamedFiles(folder)
        self._starts: dict[int, int] = {}  # where each segment of ours begins
        self._segment = max(self._sizes, default=-1)
        self._layouts: dict[int, tuple[int, bytes]] = {}
        self.source = (0, 0)  # see `note_source_end`
        self._files: _Files | None = None
        newest = SpoolReader(folder).newest()
        self._number, self.session, self.frontier = 0, 1, frontier
        self.address = 0
        if newest is not None:
            self._number = int(newest["number"]) + 1
            self.session = int(newest["session"]) + 1
            self.frontier = max(frontier, int(newest["end"]))
            self.address = _behind(folder, self._segment, newest)
        self.places = PlaceFiles(Places(folder).upto(self.frontier), self._write)
        self._begin_segment()

    def __enter__(self) -> SpoolWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files. Nothing is lost without it."""
        if self._files is not None:
            self._files.close()
            self._files = None
        self.places.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def segment(self) -> int:
        """The number of the segment that is being written."""
        return self._segment

    def append(self, data: Bytes) -> int:
        """Append bytes; the address of the first one. They mean nothing until a record names them."""
        if self.address - self._starts[self._segment] >= self._segment_bytes:
            self._begin_segment()
        self._bound_index()
        start = self.address
        view = np.ascontiguousarray(data).data
        files = self._open()
        self._write(files.raw, view)
        self._write(files.sums, checksums(view, start).tobytes())
        self.address = start + len(view)
        return start

    def layout(self, table: int, address: int, body: bytes) -> None:
        """Remember the description of a table that came at this address of this session."""
        known = self._layouts.get(table)
        if known is not None and known[1] == body:
            return
        self._layouts[table] = (address, body)
        self._write(self._open().layouts, _layout_entry(table, address, body))

    def commit(self, transactions: Records) -> None:
        """Record transactions whose bytes are stored, in commit order.

        The caller fills kind, time, end, commit_ts, transaction, start, stop and changes, and of a streamed
        one own and length; the rest is done here.
        """
        if len(transactions):
            self.frontier = int(transactions["end"][-1])
            self._put(transactions.copy())

    def progress(self, frontier: int) -> None:
        """Record that the stream is complete up to `frontier` though no transaction ended."""
        self._bound_index()
        self.frontier = max(self.frontier, frontier)
        self._put(self._here(Kind.PROGRESS))

    def note_source_end(self, source_end: int, source_ts: int) -> None:
        """Note how far the source itself has got, and its clock: goes into the records that follow."""
        self.source = (source_end, source_ts)

    def full(self, needed_from: int | None = None) -> bool:
        """True while the limit is reached and the driver can free something before `needed_from`.

        `needed_from` is the address where the open transaction starts, or None if there is none.
        """
        if self._bytes_held() < self._limit:
            return False
        for segment in sorted(self._sizes):
            if segment == self._segment or segment_path(self._folder, segment, "index").exists():
                break
            del self._sizes[segment]
        edge = self.address if needed_from is None else needed_from
        oldest = min(self._sizes)
        freeable = oldest < self._segment and self._starts.get(oldest + 1, 0) <= edge
        # Asking about the streamed ones also forgets those that were freed.
        return (self.streamed.freeable() or freeable) and self._bytes_held() >= self._limit

    def _bytes_held(self) -> int:
        return sum(self._sizes.values()) + self.streamed.held_bytes()

    def _begin_segment(self) -> None:
        if self._files is not None:
            self._files.close()
            self._files = None
        self._segment += 1
        self._starts[self._segment] = self.address
        self._sizes[self._segment] = 0
        self._records = 0
        self.places.begin(self._folder, self._segment)
        try:
            self._files = _Files.create(self._folder, self._segment)
        except OSError as error:
            raise disk_error(error) from error
        for table, (address, body) in self._layouts.items():
            self._write(self._files.layouts, _layout_entry(table, address, body))
        self._put(self._here(Kind.HEAD))

    def _here(self, kind: Kind) -> Records:
        """One record that names no bytes, at the newest address and frontier."""
        record = np.zeros(1, dtype=RECORD)
        record["kind"] = kind
        record["end"] = self.frontier
        record["start"] = record["stop"] = self.address
        return record

    def _bound_index(self) -> None:
        # Never between an append and its commit: a new HEAD's `stop` would be past theirs.
        if self._records >= self._index_records or self.places.full:
            self._begin_segment()

    def _put(self, records: Records) -> None:
        records["number"] = np.arange(self._number, self._number + len(records), dtype=np.uint64)
        records["session"] = self.session
        records["source_end"], records["source_ts"] = self.source
        records["check"] = checks(records)
        self._write(self._open().index, records.tobytes())
        self._number += len(records)
        self._records += len(records)

    def _open(self) -> _Files:
        if self._files is None:
            raise ValueError("the spool's writer is closed")
        return self._files

    def _write(self, descriptor: int, data: bytes | memoryview) -> None:
        view = memoryview(data)
        try:
            while len(view):
                view = view[os.write(descriptor, view) :]
        except OSError as error:
            raise disk_error(error) from error
        self._sizes[self._segment] += len(memoryview(data))


def _layout_entry(table: int, address: int, body: bytes) -> bytes:
    entry = np.array([(address, table, len(body), zlib.crc32(body))], dtype=LAYOUT)
    return entry.tobytes() + body


def _behind(folder: Path, segment: int, newest: np.void) -> int:
    """The first address that no byte of an earlier writer can have."""
    last = open_segment(folder, segment)
    assert last is not None  # it has been read just now, and only we may add another
    raw = last.path("raw")
    return max(last.base + (raw.stat().st_size if raw.exists() else 0), int(newest["stop"]))


def _lock(folder: Path) -> int:
    try:
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise disk_error(error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise Transient(
            "SPOOL_BUSY",
            "another process writes to this spool",
            detail=f'it holds "{folder}"',
            hint="stop the other headrace that runs this source on this machine; if that one is frozen, its "
            "receiver goes by itself within about a minute",
        ) from error
    return descriptor
