"""The marks table: appended one by one, read back whole, whoever compacts it meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headrace.lake.format import datafile, delta_line, layout
from headrace.lake.format.plan import Plan, TableStep
from headrace.lake.format.vector import FileRows
from headrace.lake.log import log_lines
from headrace.lake.log.marks import Mark, Marks, mark_of, rows_of
from headrace.lake.log.table import LakeTable, Stamp, line_key
from headrace.lake.store.contract import Store, locate
from headrace.lake.store.open import open_store

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def _mark(epoch: int) -> Mark:
    plan = Plan(
        source="main",
        epoch=epoch,
        plan_id=f"plan-{epoch}",
        kind="stream",
        incarnation=1,
        frontier=f"0/{epoch:X}",
        time=epoch - 1,
        upstream_commit_ts="2026-11-20T13:00:00.000001+02:00" if epoch % 2 else None,
        transactions=3,
        changes=4,
        versions={'public."Ord ers"': epoch, "public.lines": 7},
    )
    return mark_of(plan, NOW)


def _published(store: Store, count: int) -> Marks:
    marks = Marks(store, "main")
    for epoch in range(1, count + 1):
        marks.newest()
        assert marks.append(_mark(epoch))
    return marks


def test_marks_are_read_back_as_they_were_published(any_store: Store) -> None:
    marks = _published(any_store, 3)
    assert marks.all() == [_mark(epoch) for epoch in (1, 2, 3)]
    assert marks.newest() == _mark(3)
    assert Marks(any_store, "main").newest() == _mark(3)
    assert Marks(any_store, "other").newest() is None
    assert _mark(1).upstream_commit_ts == datetime(2026, 11, 20, 11, 0, 0, 1, tzinfo=UTC)


def test_a_first_look_asks_the_store_for_nothing_twice(
    any_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    _published(any_store, 2)
    asked: list[str] = []
    refresh, described = LakeTable.refresh, LakeTable.describe

    def refreshed(table: LakeTable) -> int:
        asked.append("refresh")
        return refresh(table)

    def told(table: LakeTable) -> pa.Table:
        asked.append("described")
        return described(table)

    monkeypatch.setattr(LakeTable, "refresh", refreshed)
    monkeypatch.setattr(LakeTable, "describe", told)
    assert Marks(any_store, "main").newest() == _mark(2)
    assert asked == ["refresh", "described"]


def test_a_mark_is_refused_where_another_came_since_the_last_look(any_store: Store) -> None:
    one, two = _published(any_store, 1), Marks(any_store, "main")
    two.newest()
    assert one.append(_mark(2))
    assert not two.append(_mark(2))
    assert not two.append(_mark(2)), "a refusal is no look"
    assert two.newest() == _mark(2)
    assert len(two.all()) == 2


def test_a_compaction_of_the_marks_hides_none(any_store: Store) -> None:
    marks = _published(any_store, 3)
    url = locate(any_store, marks.table.folder)
    DeltaTable(url, storage_options=any_store.storage_options).optimize.compact()
    assert Marks(any_store, "main").newest() == _mark(3)
    assert not marks.append(_mark(4)), "the compaction came since the last look"
    assert marks.newest() == _mark(3)
    assert marks.append(_mark(4))
    assert [mark.epoch for mark in Marks(any_store, "main").all()] == [1, 2, 3, 4]
    assert Marks(any_store, "main").newest() == _mark(4)


def test_a_mark_is_found_by_its_number_and_no_other_is_read(local_store: Store) -> None:
    marks = _published(local_store, 5)
    kept = marks.index()
    assert kept.find(4) == _mark(4)
    assert len(kept.files.known) == 1
    assert [kept.find(epoch) for epoch in range(7)] == [None, *map(_mark, range(1, 6)), None]
    DeltaTable(locate(local_store, marks.table.folder)).optimize.compact()
    marks.newest()
    assert marks.append(_mark(8))
    kept = Marks(local_store, "main").index()
    assert [kept.find(epoch) for epoch in (2, 5, 6, 8, 9)] == [_mark(2), _mark(5), None, _mark(8), None]


def test_a_kept_index_has_the_mark_of_another_writer_at_once_and_reads_no_other_again(
    any_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Marks(any_store, "main")
    assert not kept.index()
    marks = _published(any_store, 3)
    assert list(kept.index()) == [*map(_mark, (1, 2, 3))]
    read, looked = list[str](), list[int]()
    datafile_read, described = datafile.read, LakeTable.describe

    def noted(store: Store, folder: str, file: FileRows, **rest: Any) -> pa.Table:
        read.append(file.path)
        return datafile_read(store, folder, file, **rest)

    def counted(table: LakeTable) -> pa.Table:
        looked.append(table.version)
        return described(table)

    monkeypatch.setattr(datafile, "read", noted)
    monkeypatch.setattr(LakeTable, "describe", counted)
    handle = kept.table
    assert list(kept.index()) == [*map(_mark, (1, 2, 3))]
    assert (read, looked) == ([], [])
    marks.newest()
    looked.clear()
    assert marks.append(_mark(4))
    assert kept.index()[-1] == _mark(4)
    assert list(kept.index()) == [*map(_mark, (1, 2, 3, 4))]
    assert (len(read), looked) == (1, [3])
    assert kept.table is handle, "the log was read on, not anew"


def test_a_kept_index_is_never_behind_a_writer_that_goes_on_meanwhile(local_store: Store) -> None:
    kept, marks = Marks(local_store, "main"), _published(local_store, 1)
    published = [1]

    def go_on() -> None:
        for epoch in range(2, 60):
            marks.newest()
            assert marks.append(_mark(epoch))
            published[0] = epoch

    with ThreadPoolExecutor(3) as pool:
        writer = pool.submit(go_on)

        def look() -> None:
            last = False
            while not last:
                last = writer.done()
                least = published[0]
                index = kept.index()
                assert index[-1].epoch >= least
                assert [mark.epoch for mark in index] == [*range(1, len(index) + 1)]

        for reader in [pool.submit(look), pool.submit(look)]:
            reader.result()
        writer.result()
    assert len(kept.index()) == 59


def test_a_kept_index_lets_go_of_marks_that_are_thinned_out(any_store: Store) -> None:
    kept, marks = Marks(any_store, "main"), _published(any_store, 4)
    before = kept.index()
    first, second, third, _ = (path for block in before.blocks for path in block.paths)
    file = datafile.write(any_store, marks.table.folder, layout.file_name(2), rows_of([_mark(2)]))
    thinned = TableStep(marks.table.folder, 3, (file,), (first, second, third))
    assert marks.table.write(thinned, Stamp("headrace/main", 5, "plan-5"))
    assert [mark.epoch for mark in kept.index()] == [2, 4]
    assert [kept.index().find(epoch) for epoch in (1, 2, 3)] == [None, _mark(2), None]
    assert [mark.epoch for mark in before] == [1, 2, 3, 4], "an index is as of its look"


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
def test_a_kept_index_is_that_of_the_lake_which_is_there_now(local_store: Store, count: int) -> None:
    kept, marks = Marks(local_store, "main"), _published(local_store, 2)
    assert list(kept.index()) == [_mark(1), _mark(2)]
    for key in local_store.list(marks.table.folder):
        local_store.delete(key)
    marks = Marks(local_store, "main")
    other = [replace(_mark(epoch), plan_id="restored") for epoch in range(1, count + 1)]
    for mark in other:
        marks.newest()
        assert marks.append(mark)
    assert list(kept.index()) == other


def test_a_kept_index_has_no_mark_that_was_withdrawn(local_store: Store) -> None:
    """A power cut tore the line of mark 3 and spared that of mark 4; `log.recovery` mends it like this."""
    kept, marks = Marks(local_store, "main"), _published(local_store, 4)
    assert kept.index()[-1] == _mark(4)
    folder = marks.table.folder
    local_store.put(line_key(folder, 2), b"{")
    log_lines.fill(local_store, folder, range(2, 4), delta_line.text())
    table = LakeTable(local_store, folder)
    table.refresh()
    step = table.restoration(1)
    assert step is not None
    assert table.write(step, Stamp("headrace/main", 5, "withdraw"))
    assert list(kept.index()) == [_mark(1), _mark(2)]


def test_a_kept_index_goes_on_where_its_part_of_the_log_was_cleaned_up(local_store: Store) -> None:
    kept, marks = Marks(local_store, "main"), _published(local_store, 2)
    assert len(kept.index()) == 2
    for epoch in (3, 4, 5):
        marks.newest()
        assert marks.append(_mark(epoch))
    marks.newest()
    marks.table.checkpoint()
    for version in range(4):
        local_store.delete(line_key(marks.table.folder, version))
    assert [mark.epoch for mark in kept.index()] == [1, 2, 3, 4, 5]


def test_the_marks_in_memory_are_limited(local_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.lake.log.marks._MOST", 300)  # about two of these
    kept = _published(local_store, 9).index()
    assert [mark.epoch for mark in kept] == [*range(1, 10)]
    assert 0 < len(kept.files.known) < 5
    assert kept.find(1) == _mark(1)


def test_what_was_published_is_named_once_for_the_disk(local_store: Store) -> None:
    marks = _published(local_store, 2)
    keys = marks.new_keys()
    assert [key.rsplit("/", 1)[1][:20] for key in keys if "_delta_log" in key] == [
        f"{v:020d}" for v in (0, 1)
    ]
    assert len([key for key in keys if key.endswith(".parquet")]) == 2
    assert marks.new_keys() == []
    other = Marks(local_store, "main")
    other.newest()
    assert f"{marks.table.folder}/_delta_log/{1:020d}.json" in other.new_keys()


def test_a_mark_that_another_writer_published_is_named_too(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    marks, other = _published(store, 1), Marks(store, "main")
    marks.new_keys()
    other.newest()
    assert other.append(_mark(2))
    assert marks.newest() == _mark(2)
    assert {key.rsplit("/", 1)[1][:13] for key in marks.new_keys() if key.endswith(".parquet")} == {
        "e000000000002"
    }


@pytest.mark.parametrize("zone", ["+00:00", "-11:30"])
def test_a_plans_commit_timestamp_becomes_the_same_instant(zone: str) -> None:
    plan = Plan("main", 1, "p", "stream", 0, "0/1", 0, upstream_commit_ts=f"2026-11-20T12:00:00{zone}")
    assert mark_of(plan, NOW).upstream_commit_ts == datetime.fromisoformat(f"2026-11-20T12:00:00{zone}")
