"""The files of transactions that the source streams while they still run.

    <folder>/000000000007-4711.raw    the changes of transaction 4711, begun while segment 7 was written
    <folder>/000000000007-4711.sums   one SUM per block, as for a segment; addresses count from 0
    <folder>/000000000007-4711.end    it has committed: where its record stands, and which of its
                                      parts were rolled back; int64 words and their CRC-32

A file grows while its transaction runs. It is deleted when the transaction is rolled back, or when the
connection is lost: the source streams it again, and perhaps with other bytes. Only a commit makes it part of
the spool: `.end` is written first, the record in the index after it. So `.end` alone proves no commit, and a
transaction without `.end` when a writer begins was never finished.

The receiver writes through `StreamedFiles`; the driver reads with `read`, also transactions that still run,
and frees those that it has with `Ends.discard`. No descriptor stays open: a server may have very many
transactions in flight.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headrace.spool.layout import SUM, Bytes, Ints, checksums, damaged_error, discarded_error, disk_error
from headrace.spool.segment import verify

_SUFFIXES = ("raw", "sums", "end")


@dataclass(frozen=True, slots=True, order=True)
class TransactionName:
    """The name of a transaction: the segment that was newest when it began, and its number in the stream."""

    segment: int
    number: int

    @property
    def stem(self) -> str:
        """The stem of its files' names."""
        return f"{self.segment:012d}-{self.number}"

    def path(self, folder: Path, suffix: str) -> Path:
        return folder / f"{self.stem}.{suffix}"

    @classmethod
    def parse(cls, stem: str) -> TransactionName:
        segment, _, number = stem.partition("-")
        return cls(int(segment), int(number))


def names(folder: Path) -> set[str]:
    """The transactions that have files, running or committed, as their files are named.

    There may be very many, and they are looked for again and again: nothing is done to each of them here.
    """
    return {name[:-4] for name in os.listdir(folder) if name.endswith(".raw") and "-" in name}


def known_transactions(folder: Path) -> list[TransactionName]:
    """The transactions that have files, running or committed."""
    return sorted(map(TransactionName.parse, names(folder)))


def length(folder: Path, which: TransactionName) -> int:
    """Count the bytes that have come of it; 0 if it is gone."""
    try:
        sums = np.fromfile(which.path(folder, "sums"), SUM)
    except FileNotFoundError:
        return 0
    return int(sums["address"][-1]) + int(sums["length"][-1]) if len(sums) else 0


def read(folder: Path, which: TransactionName, start: int, stop: int) -> Bytes:
    """Bytes of the transaction, verified."""
    raw, sums = which.path(folder, "raw"), which.path(folder, "sums")
    try:
        return verify(raw, sums, start, stop, 0, which.segment)
    except FileNotFoundError:
        raise discarded_error(f"streamed transaction {which.number} is gone") from None


def is_committed(folder: Path, which: TransactionName) -> bool:
    """Tell whether its end is written; a file that is empty still has just been made."""
    try:
        return which.path(folder, "end").stat().st_size > 0
    except FileNotFoundError:
        return False


def aborted_parts(folder: Path, which: TransactionName) -> Ints:
    """The numbers of its parts that were rolled back, in order."""
    return _end(folder, which)[1:]


class Ends:
    """The ends of transactions, and where their records stand: each is asked once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._address: dict[str, int] = {}

    def running(self) -> list[TransactionName]:
        """Find the transactions that have not ended."""
        return sorted(map(TransactionName.parse, self._look()))

    def discard(self, before: int) -> None:
        """Delete the committed ones whose record stands before this address."""
        self._look()
        for name in [name for name, address in self._address.items() if address < before]:
            remove(self._folder, TransactionName.parse(name))
            del self._address[name]

    def _look(self) -> set[str]:
        """Learn which have ended; those that have not."""
        there = names(self._folder)
        for name in self._address.keys() - there:
            del self._address[name]
        open_ones = there - self._address.keys()
        for name in tuple(open_ones):
            which = TransactionName.parse(name)
            if not is_committed(self._folder, which):
                continue
            open_ones.discard(name)
            if (words := _words(self._folder, which)) is not None:  # else the driver has just freed it
                self._address[name] = int(words[0])
        return open_ones


def remove(folder: Path, which: TransactionName) -> None:
    for suffix in _SUFFIXES:
        which.path(folder, suffix).unlink(missing_ok=True)


def _end(folder: Path, which: TransactionName) -> Ints:
    words = _words(folder, which)
    if words is None:
        raise discarded_error(f"streamed transaction {which.number} is gone")
    return words


def _words(folder: Path, which: TransactionName) -> Ints | None:
    """Read its end, verified; None if there is none."""
    try:
        words = np.fromfile(which.path(folder, "end"), "<i8")
    except FileNotFoundError:
        return None
    if len(words) < 2 or zlib.crc32(words[:-1].tobytes()) != words[-1]:
        raise damaged_error("record of a commit", which.segment)
    return words[:-1]


class StreamedFiles:
    """The writing side: the files of one writer's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes: dict[TransactionName, int] = {}
        for which in known_transactions(folder):
            if is_committed(folder, which):
                self._sizes[which] = length(folder, which)
            else:
                remove(folder, which)

    def append(self, which: TransactionName, data: Bytes) -> None:
        """Add to what has come of it."""
        view = np.ascontiguousarray(data).data
        at = self._sizes.get(which, 0)
        sums = checksums(view, at).tobytes()
        try:
            # Bytes before their sums: what the sums name is there.
            _append(which.path(self._folder, "raw"), view)
            _append(which.path(self._folder, "sums"), memoryview(sums))
        except OSError as error:
            raise disk_error(error) from error
        self._sizes[which] = at + len(view)

    def size(self, which: TransactionName) -> int:
        return self._sizes.get(which, 0)

    def end(self, which: TransactionName, address: int, rolled_back: Iterable[int]) -> None:
        """It has committed: its record will stand at `address`, without what was rolled back."""
        words = np.array([address, *sorted(rolled_back)], "<i8")
        checked = words.tobytes() + np.array([zlib.crc32(words.tobytes())], "<i8").tobytes()
        try:
            # In one write: a reader sees all of it or nothing.
            with which.path(self._folder, "end").open("xb", buffering=0) as file:
                file.write(checked)
        except OSError as error:
            raise disk_error(error) from error

    def drop(self, which: TransactionName) -> None:
        """It was rolled back, or is known already."""
        self._sizes.pop(which, None)
        remove(self._folder, which)

    def held_bytes(self) -> int:
        return sum(self._sizes.values())

    def freeable(self) -> bool:
        """Tell whether the driver has still to free a committed one; forgets those that it has freed."""
        there = names(self._folder)
        for which in [each for each in self._sizes if each.stem not in there]:
            del self._sizes[which]
        return any(is_committed(self._folder, which) for which in self._sizes)


def _append(path: Path, view: memoryview) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        while len(view):
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)
