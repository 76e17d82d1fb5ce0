"""The choice of files to put together: neighbours that are small, up to a size that is good to read.

    in order    ▪ ▪ █ ▪ ▪ ▪ ▪ █        ▪ smaller than SMALL
                └─┘   └─────┘          neighbours alone, so that files keep covering ranges of their own

Files of a table are in the order of their keys, those of history and of errors in the order of time: what
stands together afterwards stood together before, and bounds stay as narrow as they were. A large file is left
alone, and is a border: nothing is put together across it.

Pure: called by the pipeline with what Delta's log says of the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.lake.format.vector import Vector

SMALL = 4 << 20
TARGET = 16 << 20
MOST_ROWS = 1 << 20
MOST_BYTES = 128 << 20  # in memory: what is repetitive enough may be as large there and small on the disk


@dataclass(frozen=True, slots=True)
class SmallFile:
    """A file, as far as that decides."""

    path: str
    size: int
    rows: int
    bytes: int = 0  # in memory
    vector: Vector | None = None

    @property
    def large(self) -> bool:
        return self.size >= SMALL or self.bytes >= MOST_BYTES // 2


def groups(files: Iterable[SmallFile], least: int = 2) -> list[tuple[SmallFile, ...]]:
    """The files that become one, group by group; `least` is how many there must be to make it worth it."""
    found: list[list[SmallFile]] = [[]]
    for file in files:
        if file.large:
            found.append([])
        elif _full([*found[-1], file]):
            found.append([file])
        else:
            found[-1].append(file)
    return [tuple(group) for group in found if len(group) >= max(2, least)]


def _full(group: Sequence[SmallFile]) -> bool:
    return (
        sum(file.size for file in group) > TARGET
        or sum(file.rows for file in group) > MOST_ROWS
        or sum(file.bytes for file in group) > MOST_BYTES
    )
