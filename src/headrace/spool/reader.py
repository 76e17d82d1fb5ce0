"""The reading end of a spool: lists transactions after an address, reads bytes, and deletes segments.

A reader remembers only where the segments begin and where streamed transactions ended; each call reads the
files again. So memory does not grow with the backlog, and a look for news costs a few system calls:

    reader = SpoolReader(folder)
    frontier = reader.frontier()               before the next line: then nothing below it is missed
    found = reader.transactions(after)         one structured array, in commit order
    data = reader.read(found["start"][0], found["stop"][-1])
    reader.discard(found["stop"][-1])          once it is in the lake

Between neighbouring transactions of one session lie only messages that belong to no transaction, so
bytes may be read and decoded across them in one piece; never across two sessions.

`prepare` decides whether an old spool goes on, before a writer and a reader open it. It does only if it is

    a spool of the same stream     the origin that is written beside it is the same, word for word
    without a gap                  its oldest segment begins at or before the lake's frontier

and is erased otherwise, which costs nothing but the time of streaming again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headrace.spool import running_files
from headrace.spool.layout import (
    FORMAT,
    ORIGIN,
    RECORD,
    Bytes,
    Ints,
    Records,
    damaged_error,
    discarded_error,
    disk_error,
    erase,
    remove_segment,
    segments,
)
from headrace.spool.running_files import TransactionName
from headrace.spool.segment import Segment, open_segment


def prepare(folder: Path, origin: Mapping[str, Any], frontier: int) -> bool:
    """Make the folder a spool of this origin that holds everything from `frontier` on; True if it was kept.

    Only while neither a writer nor a reader uses the folder.
    """
    text = json.dumps({"format": FORMAT, **origin}, sort_keys=True)
    path = folder / ORIGIN
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.read_text() == text and _begins_before(folder, frontier):
            return True
        erase(folder)
        path.write_text(text)
    except OSError as error:
        raise disk_error(error) from error
    return False


def _begins_before(folder: Path, frontier: int) -> bool:
    oldest = SpoolReader(folder).oldest()
    return oldest is None or oldest.frontier <= frontier


class SpoolReader:
    """Reads the spool in `folder`. Not to be shared between threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._segments: list[Segment] = []
        self._listed = False
        self._ends = running_files.Ends(folder)

    def newest(self) -> np.void | None:
        """The newest record, or None while there is none."""
        known = self._refresh()
        if not known:
            return None
        count = known[-1].count()
        if count == 0:
            raise discarded_error("its newest segment is gone")
        record: np.void = known[-1].records(count - 1, count)[0]
        return record

    def frontier(self) -> int | None:
        """Up to where the stream is complete in the spool, exclusively."""
        newest = self.newest()
        return None if newest is None else int(newest["end"])

    def oldest(self) -> Segment | None:
        """The oldest segment, or None while there is none."""
        known = self._refresh()
        return known[0] if known else None

    def transactions(self, after: int, limit: int = 100_000) -> Records:
        """Up to `limit` records of the transactions that start at address `after` or behind it."""
        known = self._refresh()
        found: list[Records] = [np.empty(0, dtype=RECORD)]
        for segment in known[_first_with(known, after) :]:
            if limit <= 0:
                break
            found.append(segment.transactions(after, limit))
            limit -= len(found[-1])
        return np.concatenate(found)

    def read(self, start: int, stop: int) -> Bytes:
        """The bytes from one address to another, verified."""
        known = self._refresh()
        result = np.empty(stop - start, dtype=np.uint8)
        at = start
        while at < stop:
            position = _holding(known, at)
            last = position + 1 == len(known)
            edge = stop if last else min(stop, known[position + 1].base)
            result[at - start : edge - start] = known[position].stretch(at, edge)
            at = edge
        return result

    def read_streamed(self, which: TransactionName, start: int, stop: int) -> Bytes:
        """Bytes of a transaction that is or was streamed while it ran, verified."""
        return running_files.read(self._folder, which, start, stop)

    def aborted_parts(self, which: TransactionName) -> Ints:
        """The parts of a committed one that were rolled back."""
        return running_files.aborted_parts(self._folder, which)

    def has_streamed(self, which: TransactionName) -> bool:
        """Tell whether its files are there: it runs, or it has committed and was not discarded."""
        return which.path(self._folder, "raw").exists()

    def running(self) -> dict[TransactionName, int]:
        """The transactions that are being streamed and have not ended, and how much has come of each."""
        return {which: running_files.length(self._folder, which) for which in self._ends.running()}

    def layouts_before(self, address: int) -> list[bytes]:
        """The newest description of each table that its session had received up to `address`."""
        known = self._refresh()
        return known[_holding(known, address)].layouts(address)

    def description_addresses(self, start: int, stop: int) -> Ints:
        """The addresses within these at which a description of a table came to hold."""
        known = self._refresh()
        held = known[_holding(known, start) : _holding(known, stop) + 1]
        found = {address for segment in held for address in segment.description_addresses()}
        return np.array(sorted(address for address in found if start <= address <= stop), np.int64)

    def discard(self, before: int) -> int:
        """Delete the segments that lie wholly before this address, and streamed transactions that
        ended before it; return the number of segments."""
        known = self._refresh()
        freed = 0
        while len(known) > 1 and known[1].base <= before:
            remove_segment(self._folder, known.pop(0).segment)
            freed += 1
        self._ends.discard(before)
        return freed

    def held_bytes(self) -> int:
        """The size of everything in the spool's folder."""
        return sum(_size(entry) for entry in os.scandir(self._folder))

    def _refresh(self) -> list[Segment]:
        """Learn of new segments; every one but the last is finished from here on."""
        if not self._segments:
            for segment in segments(self._folder):
                self._learn(segment)
            self._listed = bool(self._segments)
        while self._segments and self._learn(self._segments[-1].segment + 1):
            pass
        return self._segments

    def _learn(self, number: int) -> bool:
        found = open_segment(self._folder, number)
        if found is None:
            return False
        if self._segments:
            before = self._segments[-1]
            count = before.count()
            if count == 0 and not self._listed:
                self._segments.clear()  # given up by the driver while this reader began
            elif found.number != before.number + count:
                raise damaged_error("index", before.segment)
        self._segments.append(found)
        return True


def _size(entry: os.DirEntry[str]) -> int:
    """A file's size; 0 if the receiver has deleted it meanwhile: it was rolled back."""
    try:
        return entry.stat().st_size if entry.is_file() else 0
    except FileNotFoundError:
        return 0


def _first_with(known: list[Segment], after: int) -> int:
    """The first segment that may hold a transaction that starts at `after` or behind it."""
    for position in range(len(known) - 1, -1, -1):
        if known[position].base <= after and (position == 0 or known[position - 1].base < after):
            return position
    return 0


def _holding(known: list[Segment], address: int) -> int:
    """The segment in which the byte at `address` lies: of several with one base, the last."""
    for position in range(len(known) - 1, -1, -1):
        if known[position].base <= address:
            return position
    raise discarded_error(f"address {address}")
