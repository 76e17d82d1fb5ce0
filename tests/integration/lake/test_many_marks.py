"""A lake of months of marks, compacted as maintenance leaves them, opens and is asked in a moment."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.lake.format import datafile, formatfile, layout, schemas
from headrace.lake.format.plan import DataFile, TableStep
from headrace.lake.log import catalog
from headrace.lake.log.marks import MARKS, Marks
from headrace.lake.log.table import LakeTable, Stamp
from headrace.lake.read.lake import Lake
from headrace.lake.store.open import open_store
from headrace_testing.stopwatch import cpu_seconds

START = datetime(2026, 11, 20, tzinfo=UTC)
EACH = 1000  # marks in a compacted file
STEP = 16  # bytes of log between two marks


def _row(epoch: int) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "incarnation": 1,
        "frontier": f"{epoch * STEP >> 32:X}/{epoch * STEP & 0xFFFFFFFF:X}",
        "time": epoch * STEP - 1,
        "upstream_commit_ts": START + timedelta(seconds=epoch) if epoch % 10 else None,
        "published_at": START + timedelta(seconds=epoch + 1),
        "transactions": 1,
        "changes": 1,
        "versions": [(f"public.t{number}", epoch) for number in range(10)],
        "kind": "stream",
        "plan_id": f"p{epoch}",
        "complete_until": START + timedelta(seconds=epoch + 1),
    }


def _lake(path: Path, count: int) -> Lake:
    """Files of a thousand marks, and the last five hundred as they were published, one by one."""
    store = open_store(path)
    formatfile.create_lake(store)
    table = LakeTable(store, layout.marks_folder("main"))
    table.refresh()
    single = count - 500
    spans = [(start, min(start + EACH, single + 1)) for start in range(1, single + 1, EACH)]
    spans += [(epoch, epoch + 1) for epoch in range(single + 1, count + 1)]
    files: list[DataFile] = []
    for start, stop in spans:
        name = layout.file_name(start) if stop == start + 1 else f"compacted-{start}.parquet"
        rows = pa.Table.from_pylist([_row(epoch) for epoch in range(start, stop)], schema=MARKS)
        files.append(datafile.write(store, table.folder, name, rows))
        if len(files) == 50 or stop == count + 1:
            schema = schemas.encode(MARKS) if table.version < 0 else None
            step = TableStep(table.folder, table.version, tuple(files), schema=schema)
            assert table.write(step, Stamp("headrace/main", start, f"p{start}"))
            files = []
    catalog.write(store, catalog.Catalog("main", count, {"source": {"kind": "postgres"}}))
    return Lake(path)


@pytest.mark.parametrize("count", [5_000, pytest.param(250_000, marks=pytest.mark.full)])
def test_each_way_of_asking_takes_less_than_a_second(tmp_path: Path, count: int) -> None:
    lake = _lake(tmp_path / "lake", count)
    middle = count // 2 + 1
    ways: dict[str, Callable[[], int]] = {
        "opening": lambda: Lake(tmp_path / "lake").at().mark.epoch - count,
        "epoch": lambda: lake.at(epoch=middle).mark.epoch - middle,
        "position": lambda: lake.at(position=f"0/{middle * STEP:X}").mark.epoch - middle,
        "between": lambda: lake.at(position=f"0/{middle * STEP + 1:X}").places["main"].time - middle * STEP,
        "timestamp": lambda: lake.at(timestamp=START + timedelta(seconds=count + 1)).mark.epoch - count,
    }
    taken = {name: round(cpu_seconds(partial(_holds, ask)), 2) for name, ask in ways.items()}
    assert max(taken.values()) < 1.0, taken


def _holds(ask: Callable[[], int]) -> None:
    assert ask() == 0


def test_what_a_compaction_left_without_order_is_read_in_order(tmp_path: Path) -> None:
    """Another program may put any marks together, and may leave out statistics."""
    lake = _lake(tmp_path / "lake", 1_600)
    marks = Marks(lake.store, "main")
    marks.newest()
    table = LakeTable(lake.store, marks.table.folder)
    table.refresh()
    mixed = pa.Table.from_pylist([_row(1_700), _row(1_601)], schema=MARKS)
    file = datafile.write(lake.store, table.folder, "mixed.parquet", mixed)
    plain = DataFile(file.path, file.size, file.rows, '{"numRecords":2}')
    assert table.write(TableStep(table.folder, table.version, (plain,)), Stamp("other", 1, "x"))
    assert [mark.epoch for mark in lake.marks()] == [*range(1, 1_602), 1_700]
    assert lake.at().mark.epoch == 1_700
    assert lake.at(epoch=1_601).mark.epoch == 1_601
