"""Two years of marks by a compressed clock: what maintenance keeps, reads and writes stays bounded.

marks      one a half hour, thinned out each day, as a run does that makes many more
tables     DDL once a week, which changes a table or has it copied anew; one is held now and then
sizes      of files and of what is looked into at once: small, so that years fill as many as they would
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.lake.format import datafile, layout
from headrace.lake.format.plan import DataFile
from headrace.lake.log.marks import Block, Mark, MarkFiles, MarkIndex, rows_of
from headrace.lake.retain import mark_files
from headrace.lake.retain.thinning import Keeping, Known
from headrace.lake.store.contract import Store
from headrace.lake.store.open import open_store

FOLDER = layout.marks_folder("main")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
YOUNG_DAYS = 9  # of which marks are kept by the hour


@dataclass
class Source:
    """Marks of so many tables, and what was done to them."""

    store: Store
    tables: int
    a_day: int  # marks
    altered: dict[str, list[int]] = field(default_factory=dict)  # by table, the epochs of its DDL
    epoch: int = 0
    _catalogs: dict[int, Known] = field(default_factory=dict)

    def marks(self) -> Iterator[Mark]:
        """The marks of four more days."""
        for _ in range(4 * self.a_day):
            self.epoch += 1
            week, behind = divmod(self.epoch, 7 * self.a_day)
            changed = f"public.t{week % self.tables}"
            if not behind:
                self.altered.setdefault(changed, []).append(self.epoch)
            absent = {"public.t0"} if self.epoch % 5 == 0 else set()  # somebody holds it
            if week % 2 and behind < 3:
                absent.add(changed)  # until it is copied anew
            published = BEGIN + self.epoch * DAY / self.a_day
            yield Mark(
                epoch=self.epoch,
                incarnation=1,
                frontier=f"0/{self.epoch * 10 + 1:X}",
                time=self.epoch * 10,
                upstream_commit_ts=published,
                published_at=published,
                transactions=1,
                changes=1,
                versions={
                    name: self.epoch
                    for number in range(self.tables)
                    if (name := f"public.t{number}") not in absent
                },
                complete_until=published,
            )

    def known(self, mark: Mark) -> Known:
        """The catalog of a mark: a copy begins another interval, and DDL another schema."""
        if mark.epoch not in self._catalogs:
            names = (f"public.t{number}" for number in range(self.tables))
            self._catalogs[mark.epoch] = {name: self._known(name, mark.epoch) for name in names}
        return self._catalogs[mark.epoch]

    def _known(self, name: str, epoch: int) -> tuple[int, int]:
        done = [each for each in self.altered.get(name, ()) if each <= epoch]
        copied = [each for each in done if each // (7 * self.a_day) % 2]
        return (max(copied, default=0) * 10 + 1, len(done))


@dataclass
class Tidier:
    """The files of marks, without the log that names them, and what the last tidying wrote."""

    source: Source
    files: dict[str, Block] = field(default_factory=dict)
    written: int = 0  # marks

    @property
    def kept(self) -> MarkIndex:
        blocks = sorted(self.files.values(), key=lambda block: block.first)
        return MarkIndex(MarkFiles(self.source.store, FOLDER), blocks)

    def days(self) -> None:
        """The marks of four days, some a file; then they are tidied."""
        marks = list(self.source.marks())
        for start in range(0, len(marks), 12):
            name = layout.file_name(marks[start].epoch)
            self._add(datafile.write(self.source.store, FOLDER, name, rows_of(marks[start : start + 12])))
        self.written, more = 0, True
        while more:
            more = self._tidy(marks[-1].published_at + timedelta(minutes=1))

    def _tidy(self, now: datetime) -> bool:
        keeping = Keeping(marks=timedelta(hours=1))
        found = mark_files.tidy_files(self.kept, now, keeping, None, self.source.known, 2)
        for path in found.remove:
            self.files.pop(path)
        for file in found.write(self.source.store, FOLDER):
            self._add(file)
        self.written += sum(file.rows.num_rows for file in found.add)
        return found.more

    def _add(self, file: DataFile) -> None:
        bounds = json.loads(file.stats)
        ends = (bounds["minValues"]["epoch"], bounds["maxValues"]["epoch"])
        self.files[file.path] = Block((file.path,), *ends, file.rows, None)


@pytest.mark.parametrize(
    ("tables", "a_day", "sizes"),
    [(5, 4, (20, 300)), pytest.param(500, 48, (1000, 500_000), marks=pytest.mark.full)],
    ids=["small", "whole"],
)
def test_years_of_marks_cost_no_more_than_weeks(
    tables: int, a_day: int, sizes: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mark_files, "MARKS_PER_FILE", sizes[0])
    monkeypatch.setattr(mark_files, "ENTRIES_AT_ONCE", sizes[1])
    tidier = Tidier(Source(open_store(tmp_path / "lake"), tables, a_day))
    looked, written = list[int](), list[int]()
    rows = MarkIndex.rows

    def counted(kept: MarkIndex, number: int) -> pa.Table:
        looked[-1] += 0 if kept.blocks[number].paths in kept.files.known else kept.blocks[number].count
        return rows(kept, number)

    monkeypatch.setattr(MarkIndex, "rows", counted)
    for day in range(4, 730, 4):
        looked.append(0)
        tidier.days()
        written.append(tidier.written)
        # One a day, those of the last days, and some around each DDL.
        assert len(tidier.kept) <= day + YOUNG_DAYS * min(a_day, 24) + 4 * a_day + day // 7 * 6 + 10, day
    assert len(tidier.files) <= 12 + 2 * len(tidier.kept) // min(sizes[0], 400)
    second, last = slice(10, 18), slice(-8, None)  # months
    assert max(written[last]) <= 1.5 * max(written[second]) + 2 * sizes[0], written[::15]
    assert max(looked[last]) <= 1.5 * max(looked[second]) + 2 * sizes[0], looked[::15]
