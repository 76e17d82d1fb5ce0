"""In which files of a table a key can lie, and which file an unknown key belongs to.

Every data file of a table carries the smallest and largest key code of its rows (`core.keycode`). The
files of a table are sorted into *runs* whose members do not overlap, so that one binary search per run
finds each key's candidates:

    run 0   [a───c] [d────g]      [m───────t]
    run 1          [e──────k]  [l───────r]          a key between e and g has two candidates

The *home* of a key is the last file that begins at or before it; or, in an epoch that brings very many
rows, one of several *births*, ranges of new keys that get files of their own. It is a pure function of
the key, so every task sends a key's events to the same places without knowing what other tasks saw. The
home is always among the places, candidate or not: it takes the key if nobody holds it, and it is the
one that vouches for it (see `merge_keyed`).

Key codes are compared by their first 32 bytes, padded: monotone, so a candidate is never missed; two
keys that agree so far only cost a look into one file more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.lake.format.vector import Vector

WIDTH = 32
_AT_ONCE = 1 << 14
Prefixes = np.ndarray[Any, np.dtype[np.bytes_]]
Rows = np.ndarray[Any, np.dtype[np.int64]]


def prefixes(keys: pa.Array, width: int = WIDTH, skip: int = 0) -> Prefixes:
    """The first 32 bytes of each key code, as a numpy array that sorts as the codes do.

    With `skip`, all codes begin with the same bytes, and the prefix begins behind so many of them.
    """
    count = len(keys)
    if count == 0:
        return np.empty(0, dtype=f"S{width}")
    keys = keys.cast(pa.large_binary())
    found = np.empty(count, dtype=f"S{width}")
    for start in range(0, count, _AT_ONCE):  # what it takes in between is eight times as large
        found[start : start + _AT_ONCE] = _pad(keys.slice(start, _AT_ONCE), width, skip)
    return found


def _pad(keys: pa.LargeBinaryArray, width: int, skip: int) -> Prefixes:
    offsets = np.frombuffer(keys.buffers()[1], dtype=np.int64)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(keys.buffers()[2] or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    lengths = np.diff(offsets)
    if lengths[0] >= skip + width and (lengths == lengths[0]).all():
        matrix = data.reshape(len(keys), lengths[0])[:, skip : skip + width]
        return np.ascontiguousarray(matrix).view(f"S{width}").reshape(len(keys))
    padded = np.concatenate([data, np.zeros(skip + width, dtype=np.uint8)])
    matrix = padded[(offsets[:-1, None] - offsets[0] + skip) + np.arange(width)]
    matrix[np.arange(skip, skip + width) >= lengths[:, None]] = 0
    return np.ascontiguousarray(matrix).view(f"S{width}").reshape(len(keys))


@dataclass(frozen=True, slots=True)
class FileRange:
    """A data file and the key codes between which its rows lie, cut to `WIDTH`."""

    path: str
    size: int
    rows: int
    low: bytes
    high: bytes
    vector: Vector | None = None

    @property
    def alive(self) -> int:
        """The number of its rows that are not deleted."""
        return self.rows - (self.vector.rows if self.vector else 0)


@dataclass(frozen=True, slots=True)
class RowRoutes:
    """The ways of rows: row `rows[i]` to file `files[i]`; `home[i]` where that file is the key's home.

    Births are numbered behind the files.
    """

    rows: Rows
    files: Rows
    home: np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Routes:
    """The files of one table in the order of their lowest keys, and the runs they fall into."""

    files: tuple[FileRange, ...]
    runs: tuple[tuple[int, ...], ...]
    births: tuple[bytes, ...] = ()  # where each birth but the first begins; none: homes are files

    @classmethod
    def over(cls, files: Sequence[FileRange]) -> Routes:
        ordered = tuple(sorted(files, key=lambda file: (file.low, file.high, file.path)))
        runs: list[list[int]] = []
        for number, file in enumerate(ordered):
            for run in runs:
                if ordered[run[-1]].high < file.low:
                    run.append(number)
                    break
            else:
                runs.append([number])
        return cls(ordered, tuple(tuple(run) for run in runs))

    def _bounds(self, numbers: tuple[int, ...] | range, side: str) -> Prefixes:
        return np.array([getattr(self.files[n], side) for n in numbers], dtype=f"S{WIDTH}")

    def homes(self, keys: Prefixes) -> Rows:
        """Each key's home; 0 where the table has no file yet."""
        if self.births:
            bounds = np.array(self.births, dtype=f"S{WIDTH}")
            return len(self.files) + np.searchsorted(bounds, keys, side="right").astype(np.int64)
        lows = self._bounds(range(len(self.files)), "low")
        return np.maximum(np.searchsorted(lows, keys, side="right") - 1, 0).astype(np.int64)

    def places(self, keys: Prefixes) -> RowRoutes:
        """Every file that may hold each key, its home among them exactly once."""
        home = self.homes(keys)
        everyone = np.arange(len(keys), dtype=np.int64)
        rows, files = [everyone], [home]
        for run in self.runs:
            found = np.searchsorted(self._bounds(run, "low"), keys, side="right") - 1
            inside = found >= 0
            inside[inside] &= keys[inside] <= self._bounds(run, "high")[found[inside]]
            number = np.array(run, dtype=np.int64)[np.maximum(found, 0)]
            inside &= number != home
            rows.append(everyone[inside])
            files.append(number[inside])
        flags = np.zeros(sum(map(len, rows)), dtype=np.bool_)
        flags[: len(keys)] = True
        return RowRoutes(np.concatenate(rows), np.concatenate(files), flags)

    def touching(self, keys: Prefixes) -> list[int]:
        """The files in whose range at least one of the keys lies."""
        return sorted({int(n) for n in np.unique(self._candidates(keys))})

    def _candidates(self, keys: Prefixes) -> Rows:
        ordered = np.sort(keys)
        everyone = range(len(self.files))
        first = np.searchsorted(ordered, self._bounds(everyone, "low"), side="left")
        last = np.searchsorted(ordered, self._bounds(everyone, "high"), side="right")
        return np.flatnonzero(last > first).astype(np.int64)
