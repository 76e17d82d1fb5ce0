"""Laws of the balance: it finds what differs, whatever files the rows lie in, and reads no file twice."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core import difference
from headrace.core.difference import DifferenceMoment
from headrace.core.names import TableName
from headrace.core.schema import Column, TableSchema
from headrace.lake.store.open import open_store
from headrace.pipeline.resync.comparison import KnownChecksums
from headrace.pipeline.tasks.compare import differences
from headrace.pipeline.tasks.compare.differences import ComparisonTerms, LotResult, SideFile
from headrace.pipeline.tasks.files import Writing, write_sorted
from headrace.pipeline.tasks.routing import FileRange, Routes
from headrace.pipeline.tasks.table_task import LakeAddress, TableTask, from_ipc, pack, unpack
from headrace.spark.jobs import DriverRunner

COLUMNS = (
    Column("id", pa.int64(), "int", "bigint", nullable=False),
    Column("s", pa.string(), "text", "text"),
)
SCHEMA = TableSchema(COLUMNS, ("id",), full=False)
AT = DifferenceMoment(time=41, commit_ts=7)

Contents = dict[int, str]
contents = st.dictionaries(st.integers(0, 60), st.sampled_from(["a", "b", "c"]), max_size=60)


@dataclass
class Counting(DriverRunner):
    """Counts the files that are summed."""

    summed: list[str] = field(default_factory=list)

    def run(self, task: Any, items: Sequence[bytes]) -> list[bytes]:
        if task is differences.sum_up:
            self.summed += [unpack(item, SideFile).file.path for item in items]
        return super().run(task, items)


@dataclass
class Side:
    """One of the two contents, in files."""

    given: ComparisonTerms
    folder: str
    new: bool
    files: dict[str, tuple[FileRange, Contents]] = field(default_factory=dict)

    def write(self, rows: Contents, parts: int) -> None:
        """The rows, dealt out to so many files."""
        task = replace(self.given.table, folder=self.folder)
        for part in range(parts):
            mine = {key: text for key, text in rows.items() if key % parts == part}
            for new in write_sorted(Writing(self.given.store, 1), task, table(mine)):
                ranged = FileRange(new.file.path, new.file.size, new.file.rows, new.low, new.high)
                self.files[new.file.path] = (ranged, mine)

    @property
    def rows(self) -> Contents:
        return {key: text for _, rows in self.files.values() for key, text in rows.items()}

    @property
    def side_files(self) -> list[SideFile]:
        routes = Routes.over([ranged for ranged, _ in self.files.values()])
        task = replace(self.given.table, folder=self.folder, routes=routes)
        return differences.side_files(self.given, task, new=self.new)


def table(rows: Contents) -> pa.Table:
    return pa.table({"id": list(rows), "s": list(rows.values())}, schema=SCHEMA.arrow())


@contextmanager
def scene() -> Iterator[tuple[Side, Side, KnownChecksums, Counting]]:
    """Ranges and lots so small that there are many."""
    with tempfile.TemporaryDirectory() as lake, pytest.MonkeyPatch.context() as patch:
        patch.setattr(differences, "ROWS_PER_RANGE", 4)
        patch.setattr(differences, "ROWS_PER_LOT", 9)
        task = TableTask(TableName("public", "t"), SCHEMA, "old", "h", "e", Routes.over(()), 0)
        given = ComparisonTerms(1, LakeAddress(lake), task, AT, "difference")
        yield Side(given, "old", new=False), Side(given, "new", new=True), KnownChecksums(), Counting()


def different(
    checksums: KnownChecksums, side_files: list[SideFile], jobs: DriverRunner
) -> set[tuple[int, int]]:
    """Compare, and return each key that differs and what happens to it."""
    checksums.complete(side_files, jobs)
    items = [pack(side_file) for side_file in checksums.different(side_files)]
    answers = jobs.run_grouped(differences.apart, differences.compare, items)
    found = [unpack(answer, LotResult) for answer in answers]
    store = open_store(side_files[0].terms.lake.url) if side_files else None
    events = [store.get(each.events) for each in found if store is not None and each.events]
    rows = [row for data in events if data is not None for row in from_ipc(data).to_pylist()]
    assert sum(each.changes for each in found) == len(rows)
    return {(row["c0"], row["_event"]) for row in rows}


def wanted(old: Contents, new: Contents) -> set[tuple[int, int]]:
    found = difference.events(SCHEMA, table(old), table(new), AT).to_pylist()
    return {(row["c0"], row["_event"]) for row in found}


@settings(max_examples=25)
@given(contents, contents, st.integers(1, 4), st.integers(1, 4), st.data())
def test_it_finds_what_differs_now_and_after_files_were_exchanged(
    old: Contents, new: Contents, old_parts: int, new_parts: int, data: st.DataObject
) -> None:
    with scene() as (left, right, checksums, jobs):
        left.write(old, old_parts)
        right.write(new, new_parts)
        assert different(checksums, left.side_files + right.side_files, jobs) == wanted(old, new)
        first = set(jobs.summed)
        for side in (left, right):
            # Files are named at random: they are chosen by their number.
            paths = list(side.files)
            for number in sorted(data.draw(st.sets(st.integers(0, 3)))):
                if number < len(paths):
                    _, rows = side.files.pop(paths[number])
                    kept = sorted(data.draw(st.sets(st.sampled_from(sorted(rows)))))
                    side.write({key: rows[key] + "!" for key in kept}, 1)
        assert different(checksums, left.side_files + right.side_files, jobs) == wanted(left.rows, right.rows)
        assert len(jobs.summed) == len(set(jobs.summed))
        assert first.isdisjoint(jobs.summed[len(first) :])


def test_a_lot_is_bounded_by_bytes_where_rows_are_large() -> None:
    """Far fewer rows than a lot may have, in files of which each is small."""
    rows = {key: f"{key}" * 40_000 for key in range(100, 160)}  # 120 kB each, in memory
    with scene() as (left, right, checksums, jobs), pytest.MonkeyPatch.context() as patch:
        patch.setattr(differences, "ROWS_PER_RANGE", 2_500)
        patch.setattr(differences, "ROWS_PER_LOT", 250_000)
        patch.setattr(differences, "BYTES_PER_RANGE", 200_000, raising=False)
        patch.setattr(differences, "BYTES_PER_LOT", 1_000_000, raising=False)
        left.write(rows, 3)
        right.write({key: text + "!" for key, text in rows.items()}, 2)
        side_files = left.side_files + right.side_files
        checksums.complete(side_files, jobs)
        received: dict[str, int] = {}
        for side_file in checksums.different(side_files):
            for lot, _, blob in differences.apart(pack(side_file)):
                received[lot] = received.get(lot, 0) + len(blob)
        assert sum(received.values()) > 14_000_000
        assert max(received.values()) < 2_000_000
        found = different(checksums, side_files, jobs)
        assert {key for key, _ in found} == set(rows)


def test_what_is_equal_is_not_read_again() -> None:
    rows = dict.fromkeys(range(60), "a")
    with scene() as (left, right, checksums, jobs):
        left.write(rows, 1)
        right.write(rows | {30: "b"}, 3)
        checksums.complete(left.side_files + right.side_files, jobs)
        different = checksums.different(left.side_files + right.side_files)
        # Of the new side the file alone in which the row lies: a third of the keys of one range or two.
        assert {side_file.file.path for side_file in different if not side_file.new} == set(left.files)
        assert all(len(side_file.lots) <= 2 for side_file in different)
        assert checksums.bounds is not None
        assert len(checksums.bounds) > 8
        assert (
            len({lot for side_file in checksums.everything(left.side_files) for _, lot in side_file.lots}) > 4
        )
