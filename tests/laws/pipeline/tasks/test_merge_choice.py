"""Whatever epochs come, files with vectors stay few and mostly alive, and a change costs about the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.tasks.files import SMALL_FILE
from headrace.pipeline.tasks.merge_choice import (
    MOST_POSITIONS,
    RULES,
    FileLoad,
    FileWay,
    Rules,
    choose,
)
from tests.effort import examples

LAWS = examples(60)
ROW, AROUND = 40, 1500  # bytes
LOADS = st.builds(
    lambda size, rows, dead, hits: FileLoad(size, rows, int(dead * rows), int(hits * (1 - dead) * rows)),
    st.integers(AROUND, 32 << 20),
    st.integers(1, 1 << 20),
    st.floats(0, 0.3),
    st.floats(0, 1),
)


@dataclass
class _Table:
    """A table as the rules see it, in which keys are changed at random.

    A file covers a share of all keys. One that is written anew takes back its share of the new rows, and of
    what files of less than half its size hold, as `merge_vectors` does it.
    """

    files: list[FileLoad]
    rules: Rules
    written: int = 0
    rewrites: int = 0

    def __post_init__(self) -> None:
        self.shares = [1 / len(self.files)] * len(self.files)

    def epoch(self, random: Random, changes: int) -> list[FileWay]:
        alive = [file.rows - file.dead for file in self.files]
        hit = Counter(random.choices(range(len(alive)), alive, k=changes))
        loads = [replace(f, hits=min(hit[n], alive[n])) for n, f in enumerate(self.files)]
        ways = choose(loads, changes * ROW, self.rules)
        stay = {n: loads[n] for n, way in enumerate(ways) if way in (FileWay.VECTOR, FileWay.LEAVE)}
        new, after = changes, []
        for number, way in enumerate(ways):
            if way is FileWay.REWRITE:
                rows, new = self._gather(loads[number], self.shares[number], stay, new)
                self.rewrites += 1
                after.append((self._written(rows), self.shares[number]))
        new += sum(
            file.rows - file.losses for file, way in zip(loads, ways, strict=True) if way is FileWay.ABSORB
        )
        for number, file in stay.items():
            self.written += 10 * file.losses if file.hits else 0
            if file.losses < file.rows:
                after.append((replace(file, dead=file.losses, hits=0), self.shares[number]))
        if new:
            after.append((self._written(new), 1.0))
        self.files, self.shares = [file for file, _ in after], [share for _, share in after]
        return ways

    def _gather(self, file: FileLoad, share: float, stay: dict[int, FileLoad], new: int) -> tuple[int, int]:
        """The rows of a file that is written anew, and the new rows that are left."""
        moved = int(new * share)
        rows = file.rows - file.losses + moved
        for number, other in stay.items():
            if other.size < file.size // 2 and self.shares[number] == 1.0:
                taken = round((other.rows - other.losses) * share)
                stay[number] = replace(other, hits=other.hits + taken)
                rows += taken
        return rows, new - moved

    def _written(self, rows: int) -> FileLoad:
        size = AROUND + rows * ROW
        self.written += size
        return FileLoad(size, rows, 0, 0)


@LAWS
@given(st.lists(LOADS, max_size=20), st.integers(0, 1 << 20), st.sampled_from(sorted(RULES)))
def test_each_way_fits_its_file(files: list[FileLoad], new_bytes: int, name: str) -> None:
    rules = RULES[name]
    ways = choose(files, new_bytes, rules)
    assert len(ways) == len(files)
    unforced = 0
    for file, way in zip(files, ways, strict=True):
        assert (way is FileWay.EMPTY) == (file.losses >= file.rows)
        if way is FileWay.ABSORB:
            assert file.size < SMALL_FILE
        elif way is FileWay.VECTOR:
            assert file.hits
        elif way is FileWay.LEAVE:
            assert not file.hits
        elif way is FileWay.REWRITE:
            assert file.hits
            many = file.hits > (file.rows - file.dead) * rules.share
            unforced += not many and file.losses < 2 * rules.limit(file)
    assert unforced <= 1, "a mark does not wait for the rewrite of all worn files"


@LAWS
@given(st.integers(0, 1 << 30), st.integers(1, 400), st.sampled_from(sorted(RULES)), st.integers(1, 6))
def test_files_stay_few_and_alive_for_ever(seed: int, changes: int, name: str, large: int) -> None:
    rules = RULES[name]
    begun = [FileLoad(1_000_000 * ROW // 4, 250_000, 0, 0) for _ in range(large)]
    table, random = _Table(begun, rules), Random(seed)
    for _ in range(60):
        table.epoch(random, changes * random.randint(1, 3))
        assert sum(file.size < SMALL_FILE for file in table.files) <= rules.small_files + 1
        for file, share in zip(table.files, table.shares, strict=True):
            assert file.dead < file.rows
            if share < 1:  # else a larger file may have taken its rows back
                assert file.dead <= 2 * MOST_POSITIONS
                assert file.dead <= max(rules.dead * file.rows * 2, rules.share * file.rows)
    assert sum(f.dead for f in table.files) <= 0.2 * sum(f.rows for f in table.files)


@pytest.mark.full
@pytest.mark.parametrize("large", [1, 20])
@pytest.mark.parametrize("changes", [50, 500])
def test_after_two_hours_files_are_as_few_and_as_alive_as_after_one(large: int, changes: int) -> None:
    """A mark a second, without any maintenance."""
    rules = RULES["auto"]
    table, random = _Table([FileLoad(20 << 20, 1_000_000, 0, 0) for _ in range(large)], rules), Random(36)
    most, dead = [0, 0], [0.0, 0.0]
    for number in range(7200):
        table.epoch(random, changes)
        hour = number // 3600
        most[hour] = max(most[hour], len(table.files))
        share = sum(f.dead for f in table.files) / sum(f.rows for f in table.files)
        dead[hour] = max(dead[hour], share)
    assert max(most) <= large + rules.small_files + 1
    assert dead[1] <= max(1.2 * dead[0], 0.02)
    assert max(dead) <= 0.2


@pytest.mark.parametrize("files", [1, 20])
def test_a_change_to_twenty_million_rows_writes_little(files: int) -> None:
    """500 changes an epoch, for 300 epochs: few bytes, and never a rewrite of all files at once."""
    table = _Table([FileLoad(20 << 20, 1_000_000, 0, 0) for _ in range(files)], RULES["auto"])
    random = Random(36)
    most = 0
    for _ in range(300):
        before = table.rewrites
        table.epoch(random, 500)
        most = max(most, table.rewrites - before)
    assert table.written / (300 * 500) < 3000
    assert most <= 2


@LAWS
@given(
    st.lists(st.tuples(st.integers(1, 9000), st.integers(1, 200), st.integers(0, 200)), max_size=7),
    st.integers(0, 200),
)
def test_a_small_table_is_one_file_without_a_vector(
    files: list[tuple[int, int, int]], new_bytes: int
) -> None:
    """A vector and one more file would cost more than the table does, and some readers know no vectors."""
    loads = [FileLoad(size, rows, 0, min(hits, rows)) for size, rows, hits in files]
    ways = choose(loads, new_bytes, RULES["auto"])
    assert set(ways) <= {FileWay.ABSORB, FileWay.EMPTY}


def test_a_small_file_of_a_large_table_is_not_written_in_every_epoch() -> None:
    loads = [FileLoad(8 << 20, 400_000, 0, 0), FileLoad(40_000, 1000, 0, 0), FileLoad(4000, 50, 0, 0)]
    ways = choose(loads, 4000, RULES["auto"])
    assert ways == [FileWay.LEAVE, FileWay.LEAVE, FileWay.ABSORB]
    assert choose([FileLoad(40_000, 1000, 0, 1)], 200, RULES["vectors"]) == [FileWay.VECTOR]
