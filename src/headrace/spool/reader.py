"""The reading end of a spool: transactions after an address, the bytes between two, and giving them up.

Called by the epoch planner in the driver's process, while the receiver appends from another one. A
reader keeps nothing but the heads of the segments; each call reads the files again, so that memory does
not grow with the backlog, and looking for news costs a few system calls:

    reader = SpoolReader(folder)
    frontier = reader.frontier()               before the next line: then nothing below it is missed
    found = reader.transactions(after)         one structured array, in commit order
    data = reader.read(found["start"][0], found["stop"][-1])
    reader.discard(found["stop"][-1])          once it is in the lake

Between neighbouring transactions of one session lie only messages that belong to no transaction, so
bytes may be read and decoded across them in one piece; never across two sessions.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headrace.spool.layout import (
    RECORD,
    RELATION,
    SUM,
    Bytes,
    Kind,
    Records,
    checks,
    damaged,
    discarded,
    remove_segment,
    segment_path,
    segments,
)


@dataclass(frozen=True, slots=True)
class Head:
    """Where a segment begins."""

    segment: int
    base: int
    number: int
    session: int
    frontier: int


class SpoolReader:
    """Reads the spool in `folder`. Not to be shared between threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._heads: list[Head] = []
        self._listed = False

    def newest(self) -> np.void | None:
        """The newest record, or None while there is none."""
        heads = self._refresh()
        if not heads:
            return None
        last = heads[-1]
        count = self._count(last.segment)
        if count == 0:
            raise discarded("its newest segment is gone")
        record: np.void = self._records(last, count - 1, count)[0]
        return record

    def frontier(self) -> int | None:
        """Up to where the stream is complete in the spool, exclusively."""
        newest = self.newest()
        return None if newest is None else int(newest["end"])

    def oldest(self) -> Head | None:
        """The head of the oldest segment, or None while there is none."""
        heads = self._refresh()
        return heads[0] if heads else None

    def head(self, segment: int) -> Head:
        """The head of one segment."""
        return next(head for head in self._refresh() if head.segment == segment)

    def transactions(self, after: int, limit: int = 100_000) -> Records:
        """Up to `limit` records of the transactions that start at address `after` or behind it."""
        heads = self._refresh()
        found: list[Records] = []
        room = limit
        for head in heads[_first_with(heads, after) :]:
            if room <= 0:
                break
            records = self._transactions_of(head, after, room)
            found.append(records)
            room -= len(records)
        return np.concatenate(found) if found else np.empty(0, dtype=RECORD)

    def read(self, start: int, stop: int) -> Bytes:
        """The bytes from one address to another, verified."""
        heads = self._refresh()
        result = np.empty(stop - start, dtype=np.uint8)
        at = start
        while at < stop:
            position = _holding(heads, at)
            head = heads[position]
            last = position + 1 == len(heads)
            edge = stop if last else min(stop, heads[position + 1].base)
            result[at - start : edge - start] = self._bytes_of(head, at, edge)
            at = edge
        return result

    def relations_before(self, address: int) -> list[bytes]:
        """The newest description of each table that its session had received up to `address`."""
        heads = self._refresh()
        head = heads[_holding(heads, address)]
        data = segment_path(self._folder, head.segment, "relations").read_bytes()
        latest: dict[int, bytes] = {}
        at = 0
        while at + RELATION.itemsize <= len(data):
            entry = np.frombuffer(data, RELATION, 1, at)[0]
            body = data[at + RELATION.itemsize :][: int(entry["length"])]
            if len(body) < entry["length"]:
                break  # still being written, so nothing that is indexed needs it
            if zlib.crc32(body) != entry["crc"]:
                raise damaged("list of relations", head.segment)
            if entry["address"] <= address:
                latest[int(entry["id"])] = body
            at += RELATION.itemsize + len(body)
        return list(latest.values())

    def discard(self, before: int) -> int:
        """Delete the segments that lie wholly before this address; how many there were."""
        heads = self._refresh()
        freed = 0
        while len(heads) > 1 and heads[1].base <= before:
            remove_segment(self._folder, heads.pop(0).segment)
            freed += 1
        return freed

    def held_bytes(self) -> int:
        """The size of everything in the spool's folder."""
        return sum(entry.stat().st_size for entry in os.scandir(self._folder) if entry.is_file())

    def _refresh(self) -> list[Head]:
        """Learn of new segments; every one but the last is finished from here on."""
        if not self._heads:
            for segment in segments(self._folder):
                self._learn(segment)
            self._listed = bool(self._heads)
        while self._heads and self._learn(self._heads[-1].segment + 1):
            pass
        return self._heads

    def _learn(self, segment: int) -> bool:
        if self._count(segment) == 0:
            return False
        try:
            record = self._load(segment, 0, 1)[0]
        except FileNotFoundError:  # given up by the driver this moment
            return False
        head = Head(
            segment, int(record["start"]), int(record["number"]), int(record["session"]), int(record["end"])
        )
        if record["kind"] != Kind.HEAD or int(record["check"]) != int(checks(record.reshape(1))[0]):
            raise damaged("index", segment)
        if self._heads:
            before = self._heads[-1]
            count = self._count(before.segment)
            if count == 0 and not self._listed:
                self._heads.clear()  # given up by the driver while this reader began
            elif head.number != before.number + count:
                raise damaged("index", before.segment)
        self._heads.append(head)
        return True

    def _count(self, segment: int) -> int:
        try:
            size = os.stat(segment_path(self._folder, segment, "index")).st_size
        except FileNotFoundError:
            return 0
        return size // RECORD.itemsize

    def _load(self, segment: int, start: int, stop: int) -> Records:
        path = segment_path(self._folder, segment, "index")
        size = RECORD.itemsize
        return np.fromfile(path, RECORD, stop - start, offset=start * size)

    def _records(self, head: Head, start: int, stop: int) -> Records:
        """Records of one segment by position, verified."""
        records = self._load(head.segment, start, stop)
        numbers = np.arange(head.number + start, head.number + stop, dtype=np.uint64)
        if (
            len(records) != stop - start
            or not np.array_equal(records["number"], numbers)
            or not np.array_equal(records["check"], checks(records))
        ):
            raise damaged("index", head.segment)
        return records

    def _transactions_of(self, head: Head, after: int, limit: int) -> Records:
        count = self._count(head.segment)
        if count == 0:
            raise discarded(f"segment {head.segment} is gone")
        path = segment_path(self._folder, head.segment, "index")
        stops = np.memmap(path, RECORD, mode="r", shape=(count,))["stop"]
        begin = int(np.searchsorted(stops, after, side="right"))
        del stops
        found = []
        while begin < count and limit > 0:
            end = min(count, begin + limit)
            records = self._records(head, begin, end)
            taken = records[(records["kind"] == Kind.TRANSACTION) & (records["start"] >= after)]
            found.append(taken)
            limit -= len(taken)
            begin = end
        return np.concatenate(found) if found else np.empty(0, dtype=RECORD)

    def _bytes_of(self, head: Head, start: int, stop: int) -> Bytes:
        path = segment_path(self._folder, head.segment, "raw")
        if not path.exists():
            raise discarded(f"segment {head.segment} is gone")
        sums = np.fromfile(path.with_suffix(".sums"), SUM)
        first = int(np.searchsorted(sums["address"], start, side="right")) - 1
        last = int(np.searchsorted(sums["address"], stop, side="left"))
        blocks = sums[max(first, 0) : last]
        if not len(blocks) or int(blocks["address"][-1]) + int(blocks["length"][-1]) < stop:
            raise damaged("list of checksums", head.segment)
        origin = int(blocks["address"][0])
        length = int(blocks["length"].sum(dtype=np.int64))
        data = np.fromfile(path, np.uint8, length, offset=origin - head.base)
        if len(data) != length or not _intact(data, blocks):
            raise damaged("contents", head.segment)
        return data[start - origin : stop - origin]


def _first_with(heads: list[Head], after: int) -> int:
    """The first segment that may hold a transaction that starts at `after` or behind it."""
    for position in range(len(heads) - 1, -1, -1):
        if heads[position].base <= after and (position == 0 or heads[position - 1].base < after):
            return position
    return 0


def _holding(heads: list[Head], address: int) -> int:
    """The segment in which the byte at `address` lies: of several with one base, the last."""
    for position in range(len(heads) - 1, -1, -1):
        if heads[position].base <= address:
            return position
    raise discarded(f"address {address}")


def _intact(data: Bytes, blocks: Records) -> bool:
    view = data.data
    at = 0
    for length, crc in zip(blocks["length"].tolist(), blocks["crc"].tolist(), strict=True):
        if zlib.crc32(view[at : at + length]) != crc:
            return False
        at += length
    return True
