"""One segment of a spool, as it is read: its records, its bytes, its descriptions of tables, all verified.

A segment is known once its HEAD is: `open_segment` reads that. Everything else is read from the files each
time it is asked for, because the last segment grows and the others may be discarded.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from headrace.spool.layout import (
    LAYOUT,
    RECORD,
    SUM,
    Bytes,
    Kind,
    Records,
    checks,
    damaged_error,
    discarded_error,
    segment_path,
    segments,
)

_ENDED = (Kind.TRANSACTION, Kind.STREAMED)


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment that has a HEAD: where it begins, and what was true there."""

    folder: Path
    segment: int
    base: int  # the address of its first byte
    number: int  # of its first record
    session: int
    frontier: int

    def path(self, suffix: str) -> Path:
        return segment_path(self.folder, self.segment, suffix)

    def count(self) -> int:
        """Count its records by now; 0 if it has been discarded."""
        return count_records(self.folder, self.segment)

    def records(self, start: int, stop: int) -> Records:
        """Records by their position, verified."""
        records = _load(self.path("index"), start, stop)
        numbers = np.arange(self.number + start, self.number + stop, dtype=np.uint64)
        if (
            len(records) != stop - start
            or not np.array_equal(records["number"], numbers)
            or not np.array_equal(records["check"], checks(records))
        ):
            raise damaged_error("index", self.segment)
        return records

    def transactions(self, after: int, limit: int) -> Records:
        """Its transactions that start at `after` or behind it."""
        count = self.count()
        if count == 0:
            raise discarded_error(f"segment {self.segment} is gone")
        stops = np.memmap(self.path("index"), RECORD, mode="r", shape=(count,))["stop"]
        begin = int(np.searchsorted(stops, after, side="right"))
        del stops
        found = [np.empty(0, dtype=RECORD)]
        while begin < count and limit > 0:
            end = min(count, begin + limit)
            records = self.records(begin, end)
            found.append(records[np.isin(records["kind"], _ENDED) & (records["start"] >= after)])
            limit -= len(found[-1])
            begin = end
        return np.concatenate(found)

    def stretch(self, start: int, stop: int) -> Bytes:
        """Its bytes from one address to another, verified."""
        if not self.path("raw").exists():
            raise discarded_error(f"segment {self.segment} is gone")
        return verify(self.path("raw"), self.path("sums"), start, stop, self.base, self.segment)

    def layouts(self, upto: int) -> list[bytes]:
        """The newest description of each table that had come up to this address, as it came."""
        return list(
            {table: body for address, table, body in self._descriptions() if address <= upto}.values()
        )

    def description_addresses(self) -> Iterator[int]:
        """The addresses at which a description of a table came to hold."""
        return (address for address, _, _ in self._descriptions())

    def _descriptions(self) -> Iterator[tuple[int, int, bytes]]:
        data = self.path("layouts").read_bytes()
        at = 0
        while at + LAYOUT.itemsize <= len(data):
            entry = np.frombuffer(data, LAYOUT, 1, at)[0]
            body = data[at + LAYOUT.itemsize :][: int(entry["length"])]
            if len(body) < entry["length"]:
                break  # still being written, so nothing that is indexed needs it
            if zlib.crc32(body) != entry["crc"]:
                raise damaged_error("list of layouts", self.segment)
            yield int(entry["address"]), int(entry["id"]), body
            at += LAYOUT.itemsize + len(body)


def complete_from(folder: Path) -> int:
    """The frontier from which on the spool has the stream without a gap, up to its own frontier.

    A session may begin behind what the one before had, where another machine went on meanwhile.
    """
    known = [each for number in segments(folder) if (each := open_segment(folder, number)) is not None]
    since = known[0].frontier if known else 0
    for before, segment in pairwise(known):
        count = before.count()
        if count == 0:
            raise discarded_error(f"segment {before.segment} is gone")
        if int(before.records(count - 1, count)["end"][0]) < segment.frontier:
            since = segment.frontier
    return since


def open_segment(folder: Path, segment: int) -> Segment | None:
    """The segment of this number, or None if it has no HEAD: not yet, or not any more."""
    try:
        records = _load(segment_path(folder, segment, "index"), 0, 1)
    except FileNotFoundError:
        return None
    if len(records) == 0:
        return None
    if records["kind"][0] != Kind.HEAD or not np.array_equal(records["check"], checks(records)):
        raise damaged_error("index", segment)
    head = records[0]
    return Segment(
        folder, segment, int(head["start"]), int(head["number"]), int(head["session"]), int(head["end"])
    )


def count_records(folder: Path, segment: int) -> int:
    """Count the whole records in the index of a segment; 0 if there is none."""
    try:
        return os.stat(segment_path(folder, segment, "index")).st_size // RECORD.itemsize
    except FileNotFoundError:
        return 0


def verify(raw: Path, sums: Path, start: int, stop: int, base: int, segment: int) -> Bytes:
    """The bytes between two addresses of a file that begins at `base`, held against their checksums."""
    known = np.fromfile(sums, SUM)
    first = int(np.searchsorted(known["address"], start, side="right")) - 1
    last = int(np.searchsorted(known["address"], stop, side="left"))
    blocks = known[max(first, 0) : last]
    if not len(blocks) or int(blocks["address"][-1]) + int(blocks["length"][-1]) < stop:
        raise damaged_error("list of checksums", segment)
    origin = int(blocks["address"][0])
    length = int(blocks["length"].sum(dtype=np.int64))
    data = np.fromfile(raw, np.uint8, length, offset=origin - base)
    if len(data) != length or not _intact(data, blocks):
        raise damaged_error("contents", segment)
    return data[start - origin : stop - origin]


def _load(path: Path, start: int, stop: int) -> Records:
    return np.fromfile(path, RECORD, stop - start, offset=start * RECORD.itemsize)


def _intact(data: Bytes, blocks: Records) -> bool:
    view = data.data
    at = 0
    for length, crc in zip(blocks["length"].tolist(), blocks["crc"].tolist(), strict=True):
        if zlib.crc32(view[at : at + length]) != crc:
            return False
        at += length
    return True
