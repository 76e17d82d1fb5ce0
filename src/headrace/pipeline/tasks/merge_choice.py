"""The choice, file by file, between a deletion vector and a rewrite, for an epoch that changes a table.

A rewrite costs the size of the file, once. A vector costs little now, but every later epoch that deletes from
the file writes all of it again, into the plan and into the log, and its rows stay in the file. So a file gets
vectors until they have cost as much as a rewrite does, and is then written anew:

    EMPTY     no row of it stays: the file goes
    ABSORB    small: its rows move into the epoch's new file, so that small files stay few
    REWRITE   most of it changes, or its vector is worn: it is written anew, under its own range of keys
    VECTOR    its rows that go are marked
    LEAVE     no row of it goes, and it is not small enough to be absorbed

Small files fall into tiers, as in a log-structured merge tree: new rows absorb a file that is no larger than
all that they absorbed before. So each row is written once a tier, and there are few small files. A table that
is small as a whole is one file without a vector: every reader knows it, and it is cheap to write. Pure; a law
holds the bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt

from headrace.pipeline.tasks.files import SMALL_FILE

MOST_POSITIONS = 20_000  # in a vector, which stands in a line of the log
MOST_ABSORBED_ROWS = 1 << 20
_POSITION_BYTES = 2.5  # in the text of a vector
_COPIES = 4  # the old vector and the new one, each in the plan and in the log
_LEAST_POSITIONS = 64


class FileWay(StrEnum):
    """The part that a file has in an epoch."""

    EMPTY = "empty"
    ABSORB = "absorb"
    REWRITE = "rewrite"
    VECTOR = "vector"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class FileLoad:
    """A file, and what an epoch does to it."""

    size: int
    rows: int  # that stand in it
    dead: int  # of those, by its vector so far
    hits: int  # rows of it that go in this epoch

    @property
    def losses(self) -> int:
        return self.dead + self.hits


@dataclass(frozen=True, slots=True)
class Rules:
    """The bounds of a way to merge (`merge` in the configuration)."""

    floor: int  # bytes: a table that is no larger is written as a whole
    share: float  # of the rows that are left: where so many change, a rewrite is cheaper
    dead: float  # the share of a file's rows that may be dead
    small_files: int  # so many small files may there be

    def limit(self, file: FileLoad) -> int:
        """The positions from which on a vector is worn: by then it has cost as much as a rewrite."""
        worth = sqrt(2 * file.size * max(file.hits, 1) / (_POSITION_BYTES * _COPIES))
        return int(min(MOST_POSITIONS, file.rows * self.dead, max(worth, _LEAST_POSITIONS)))


RULES = {
    "auto": Rules(floor=64 << 10, share=0.1, dead=0.2, small_files=12),
    "vectors": Rules(floor=0, share=1.0, dead=0.9, small_files=8),
}


def choose(files: Sequence[FileLoad], new_bytes: int, rules: Rules) -> list[FileWay]:
    """Choose the way of each file of a table, where an epoch brings new rows of about so many bytes."""
    ways = [_alone(file, rules) for file in files]
    for number in _find_absorbable(files, ways, new_bytes, rules):
        ways[number] = FileWay.ABSORB
    # One worn file an epoch, so that a mark does not wait for all of them; and each that is worn through.
    worn = [n for n, way in enumerate(ways) if way is FileWay.VECTOR and _wear(files[n], rules) >= 1]
    worst = max(worn, key=lambda number: _wear(files[number], rules), default=None)
    for number in worn:
        if number == worst or _wear(files[number], rules) >= 2:
            ways[number] = FileWay.REWRITE
    return ways


def _alone(file: FileLoad, rules: Rules) -> FileWay:
    if file.losses >= file.rows:
        return FileWay.EMPTY
    if not file.hits:
        return FileWay.LEAVE
    if file.hits > (file.rows - file.dead) * rules.share:
        return FileWay.ABSORB if file.size < SMALL_FILE else FileWay.REWRITE
    return FileWay.VECTOR


def _wear(file: FileLoad, rules: Rules) -> float:
    return file.losses / max(rules.limit(file), 1)


def _find_absorbable(
    files: Sequence[FileLoad], ways: Sequence[FileWay], new_bytes: int, rules: Rules
) -> list[int]:
    """The small files that the new rows take in, tier by tier; more where there would be too many."""
    small = [
        n
        for n, file in enumerate(files)
        if file.size < SMALL_FILE and ways[n] in (FileWay.LEAVE, FileWay.VECTOR)
    ]
    small.sort(key=lambda number: files[number].size)
    taken = [n for n, way in enumerate(ways) if way is FileWay.ABSORB]
    size = new_bytes + sum(files[n].size for n in taken)
    rows = sum(files[n].rows for n in taken)
    found: list[int] = []
    too_many = len(small) + 1 > rules.small_files
    is_small_table = sum(file.size for file in files) <= rules.floor
    for place, number in enumerate(small):
        file = files[number]
        is_next = is_small_table or file.size <= size
        crowded = too_many and len(small) - place > rules.small_files // 2
        rows += file.rows
        if not (is_next or crowded) or rows > MOST_ABSORBED_ROWS:
            break
        if not (size or is_small_table):
            break  # nothing changes in the table but rows that go
        size += file.size
        found.append(number)
    return found


def is_worn(file: FileLoad, rules: Rules) -> bool:
    """Tell whether spare time is well spent on a rewrite of the file, before an epoch has to do it."""
    return 2 * file.losses >= rules.limit(file)
