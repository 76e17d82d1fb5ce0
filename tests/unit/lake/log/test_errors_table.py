"""Errors in a real Delta table: what reading a few of them costs, and what becomes of them in the end."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.names import TableName
from headrace.lake.format import layout, schemas
from headrace.lake.format.plan import TableStep
from headrace.lake.log import errors_table, horizon
from headrace.lake.log.errors_table import ERRORS
from headrace.lake.log.horizon import Reach
from headrace.lake.log.table import LakeTable, Stamp
from headrace.lake.store.local import LocalStore
from headrace.pipeline.tasks.compact import BundleResult, Survey, write_bundle
from headrace.pipeline.tasks.table_task import LakeAddress, pack, unpack

TABLE, OTHER = TableName("public", "t"), TableName("public", "u")
FOLDER = layout.errors_folder("main")

Said = tuple[int, str, int, int]  # id, raw text, time, diff


class Counting(LocalStore):
    """A store that counts the bytes that are read through it."""

    read = 0

    def open_input(self, key: str) -> Any:
        return Counted((Path(self.path) / key).open("rb", buffering=0))


class Counted(io.RawIOBase):
    """An input that tells `Counting` what is read of it."""

    def __init__(self, file: io.FileIO) -> None:
        self._input = file

    def read(self, size: int = -1) -> bytes:
        data = self._input.read(size) or b""
        Counting.read += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._input.seek(offset, whence)

    def tell(self) -> int:
        return self._input.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._input.close()
        super().close()


def _rows(said: list[Said], table: TableName = TABLE) -> pa.Table:
    keys = pa.array([json.dumps({"id": number}, separators=(",", ":")) for number, *_ in said])
    return errors_table.batch(
        table,
        keys=keys,
        column="v",
        code="VALUE_WITHOUT_LAKE_FORM",
        raw=pa.array([raw for _, raw, *_ in said], pa.string()),
        time=pa.array([time for *_, time, _ in said], pa.int64()),
        diff=pa.array([diff for *_, diff in said], pa.int64()),
    )


def _commit(store: LocalStore, epoch: int, *parts: pa.Table) -> None:
    table = LakeTable(store, FOLDER)
    files = [errors_table.write(store, FOLDER, layout.file_name(epoch), errors_table.net(p)) for p in parts]
    base = table.refresh()
    schema = schemas.encode(ERRORS) if base < 0 else None
    assert table.write(TableStep(FOLDER, base, tuple(files), (), schema), Stamp("headrace/main", epoch, "p"))


def _standing(store: LocalStore, *ids: int, time: int | None = None) -> list[tuple[int, str, int]]:
    keys = pl.Series([f'{{"id":{number}}}' for number in ids], dtype=pl.String) if ids else None
    found = errors_table.standing(store, FOLDER, TABLE, time, keys)
    rows = found.select("key", "raw", "diff").rows()
    return sorted((json.loads(key)["id"], raw, diff) for key, raw, diff in rows)


def test_what_stands_for_a_key_costs_the_same_however_much_was_said(tmp_path: Path) -> None:
    store = Counting(str(tmp_path))
    costs = []
    for epoch, rows in enumerate((20_000, 60_000, 60_000), 1):
        low = epoch * 1_000_000
        said = [(low + number, "infinity", epoch, 1) for number in range(rows)]
        _commit(store, epoch, _rows(said), _rows([(low, "infinity", epoch, 1)], OTHER))
        Counting.read = 0
        assert _standing(store, 1_000_007) == [(1_000_007, "infinity", 1)]
        costs.append(Counting.read)
    assert 0 < costs[0] == costs[1] == costs[2], "files of other keys are not even opened"
    Counting.read = 0
    assert _standing(store, 3_059_999) == [(3_059_999, "infinity", 1)]
    assert Counting.read < 3 * costs[0], "of a large file only the rows around the key are read"


def test_all_of_a_tables_errors_are_read_in_parts(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    errors_table.PART_ROWS, kept = 1000, errors_table.PART_ROWS
    try:
        _commit(store, 1, _rows([(number, "infinity", 1, 1) for number in range(30_000)]))
        _commit(store, 2, _rows([(number, "infinity", 2, -1) for number in range(0, 30_000, 2)]))
        _commit(store, 3, _rows([(5, "infinity", 3, 1)], OTHER))
        parts = list(errors_table.standing_in_parts(store, FOLDER, TABLE))
    finally:
        errors_table.PART_ROWS = kept
    assert len(parts) > 1
    assert max(part.height for part in parts) <= 2 * errors_table.ROWS_PER_GROUP
    assert sorted(pl.concat(parts)["key"]) == sorted(f'{{"id":{number}}}' for number in range(1, 30_000, 2))


SAID = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from("ab"), st.integers(1, 6), st.sampled_from([1, -1])),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(SAID, st.none() | st.integers(1, 6))
def test_netting_changes_no_sum_that_anybody_reads(said: list[Said], until: int | None) -> None:
    rows = _rows(said)
    netted = errors_table.net(rows, until)
    for time in range(until or 0, 8):
        sums = [
            sorted(_summed(each).rows())
            for each in (rows.filter(pa.compute.less_equal(rows["time"], time)), _upto(netted, time))
        ]
        assert sums[0] == sums[1]
    if until is not None:
        early = pl.from_arrow(_upto(netted, until))
        assert isinstance(early, pl.DataFrame)
        assert early.select("key", "raw").is_duplicated().sum() == 0


def _upto(rows: pa.Table, time: int) -> pa.Table:
    return rows.filter(pa.compute.less_equal(rows["time"], time))


def _summed(rows: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame.group_by("key", "raw").agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)


def test_what_was_taken_back_goes_with_the_history_that_tells_of_it(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    _commit(store, 1, _rows([(number, "infinity", 10, 1) for number in range(100)]))
    _commit(store, 2, _rows([(number, "infinity", 20, -1) for number in range(90)]))
    _commit(store, 3, _rows([(95, "infinity", 40, -1), (95, "-infinity", 40, 1)]))
    survey = Survey("main", 4, LakeAddress(str(tmp_path)), (), least=2)
    assert survey.bundles() == [], "history is whole: all that was said can still be read"
    horizon.write(store, "main", Reach(30, datetime.now(UTC), gone_before=30))
    [bundle] = survey.bundles()
    done = unpack(write_bundle(pack(bundle)), BundleResult)
    table = LakeTable(store, FOLDER)
    base = table.refresh()
    step = TableStep(FOLDER, base, done.files, bundle.paths)
    assert table.write(step, Stamp("headrace/main", 4, "p"))
    assert sum(file.rows for file in done.files) == 12, "ten from before, and what was said since"
    expected = [(number, "infinity", 1) for number in range(90, 100) if number != 95]
    assert _standing(store) == sorted([*expected, (95, "-infinity", 1)])
    assert _standing(store, time=30) == [(number, "infinity", 1) for number in range(90, 100)]
    assert survey.bundles() == [], "and nothing is left to do"
