"""Positions of the stream by their times, where only the stream knows them: one file beside each segment.

    000000000007.places     the newest position from before the segment, then those that were heard in it

A position is written before the records that reach it, so that every record of the index has its position
here. The receiver writes positions through `PlaceFiles`; an epoch may end only at such a place, which
`Places` finds.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from headrace.core.position import Position
from headrace.spool.layout import PLACE, damaged_error, disk_error, segment_path, segments

MOST_BYTES = 1024 * 1024  # of one file: they are looked through for each epoch


class PlaceFiles:
    """The writing end: the file of the segment that is being written."""

    def __init__(self, newest: Position | None, write: Callable[[int, bytes], None]) -> None:
        self.newest = newest
        self._write = write
        self._file = -1
        self._bytes = 0

    @property
    def full(self) -> bool:
        """Tell whether the next position belongs into another segment."""
        return self._bytes >= MOST_BYTES

    def begin(self, folder: Path, segment: int) -> None:
        """Go on in the file of this segment."""
        self.close()
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(segment_path(folder, segment, "places"), flags, 0o600)
        except OSError as error:
            raise disk_error(error) from error
        self._bytes = 0
        if self.newest is not None:
            self._write(self._file, _entry(self.newest))

    def say(self, position: Position) -> None:
        """Write a position down, before the records that reach it; none that lies before one known."""
        if self.newest is None or position > self.newest:
            entry = _entry(position)
            self._write(self._file, entry)
            self._bytes += len(entry)
            self.newest = position

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Places:
    """The reading end, of a spool's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def upto(self, time: int) -> Position | None:
        """The newest position at this time or before it; None where the stream has said none."""
        for segment in reversed(segments(self._folder)):
            if found := [place for place in self._of(segment) if place.time <= time]:
                return found[-1]
        return None

    def behind(self, time: int) -> Position | None:
        """The first position behind this time."""
        found = (place for segment in segments(self._folder) for place in self._of(segment))
        return next((place for place in found if place.time > time), None)

    def _of(self, segment: int) -> Iterator[Position]:
        try:
            data = segment_path(self._folder, segment, "places").read_bytes()
        except FileNotFoundError:
            return  # given up since it was listed: what it had is in the lake
        at = 0
        while at + PLACE.itemsize <= len(data):
            entry = np.frombuffer(data, PLACE, 1, at)[0]
            at += PLACE.itemsize
            text = data[at : at + int(entry["length"])]
            if len(text) < entry["length"]:
                return  # still being written, so nothing that is indexed needs it
            if zlib.crc32(text, int(entry["time"]) & 0xFFFFFFFF) != entry["crc"]:
                raise damaged_error("list of positions", segment)
            yield Position(int(entry["time"]), text.decode())
            at += len(text)


def _entry(position: Position) -> bytes:
    text = position.text.encode()
    check = zlib.crc32(text, position.time & 0xFFFFFFFF)
    return np.array([(position.time, len(text), check)], dtype=PLACE).tobytes() + text
