"""The size of a lake in a status: counted now and then, and followed from mark to mark."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from headrace.lake.format.plan import DataFile, Plan, TableStep
from headrace.lake.format.vector import Vector
from headrace.lake.store.local import LocalStore
from headrace.pipeline.lake_size import Forecast, LakeSize, forecast
from headrace.pipeline.stream.cadence import FILES_PER_SECOND
from headrace.sources.contract.values import TableSize
from headrace_testing.postmaster import wait_for

PLAN = Plan(
    "main", 7, "id", "stream", 1, "0/7", 7,
    steps=(
        TableStep("tables/main/a/b", 1, (DataFile("x", 1000, 3, "{}"),), ("y",)),
        TableStep("history/main/a/b/1", 1, (DataFile("x", 500, 3, "{}"),)),
    ),
)  # fmt: skip


def _until_counted(size: LakeSize, before: str | None = None) -> None:
    def counted() -> bool:
        size.turn(0.0)
        return size.status.counted_at != before

    if size.status.counted_at == before:
        wait_for(counted, "the count")


@pytest.fixture
def store(tmp_path: object) -> LocalStore:
    store = LocalStore(str(tmp_path))
    for key, length in (
        ("tables/main/a/b/1", 10),
        ("tables/other/a/b/1", 99),
        ("_headrace/epochs/main/2", 5),
    ):
        store.put(key, b"x" * length)
    return store


def test_a_plan_tells_how_many_files_its_epoch_writes() -> None:
    # The plan, the mark and its line; of each step a file and a line.
    assert PLAN.file_count == 3 + 4
    assert 1500 < PLAN.size_bytes < 20_000


def test_a_file_that_gets_a_vector_is_not_written_again() -> None:
    worn = DataFile("w", 50_000_000, 3, "{}", Vector("0" * 4000, 3200, 2))
    plan = replace(PLAN, steps=(*PLAN.steps, TableStep("tables/main/a/c", 1, (worn,), ("w",))))
    assert plan.file_count == PLAN.file_count + 1
    assert 2 * 4000 < plan.size_bytes - PLAN.size_bytes < 20_000


def test_the_files_of_a_source_are_counted_once_and_marks_are_added(store: LocalStore) -> None:
    size = LakeSize(store, "main")
    size.on_published(PLAN)  # it may be in the count already
    _until_counted(size)
    assert (size.status.files, size.status.size_bytes) == (2, 15)
    size.on_published(PLAN)
    size.turn(0.0)
    assert (size.status.files, size.status.size_bytes) == (2 + 7, 15 + PLAN.size_bytes)
    assert (size.status.hour_files, size.status.hour_bytes) == (14, 2 * PLAN.size_bytes)


def test_a_maintenance_has_them_counted_again(store: LocalStore) -> None:
    size = LakeSize(store, "main")
    _until_counted(size)
    store.delete("tables/main/a/b/1")
    size.turn(0.0)
    assert size.status.files == 2

    def counted_again() -> bool:
        size.turn(5.0)
        return size.status.files == 1

    wait_for(counted_again, "the next count")


def test_an_hour_later_nothing_of_it_is_of_the_last_hour(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    size = LakeSize(store, "main")
    size.on_published(PLAN)
    clock[0] += 1800
    size.on_published(PLAN)
    size.turn(0.0)
    assert size.status.hour_files == 14
    clock[0] += 1860
    size.turn(0.0)
    assert size.status.hour_files == 7
    clock[0] += 1800
    size.turn(0.0)
    assert size.status.hour_files == 0


def test_a_forecast_knows_how_rare_marks_become() -> None:
    assert forecast([TableSize(1_000, 10)]) is None, "the server counts nothing"
    quiet = forecast([TableSize(1_000, 10, 0.0)])
    assert quiet == Forecast(0.0, 0, 0)
    rare = forecast([TableSize(1_000, 10, 60.0)])
    assert rare is not None
    assert 60 * 6 <= rare.files <= 60 * 8, "each change has a mark of its own"
    busy = forecast([TableSize(100_000_000, 1_000_000, 18_000.0)] * 7)
    assert busy is not None
    assert busy.changes == pytest.approx(7 * 18_000)
    assert busy.files == pytest.approx(3600 * FILES_PER_SECOND, rel=0.05), "19 s apart, seven tables in each"
    assert busy.bytes > busy.changes * 100, "its rows alone"
