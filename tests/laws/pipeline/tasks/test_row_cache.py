"""The row cache finds exactly the rows of a file that have some key; damaged, it is no cache."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.columns import wide
from headrace.core.keycode import keycode
from headrace.pipeline.tasks import row_cache
from headrace.pipeline.tasks.routing import WIDTH, prefixes
from headrace.pipeline.tasks.row_cache import DataFileName, KeyedRows, RowCache
from tests.effort import examples

LAWS = examples(60)
SHARED = "https://www.example.com/a/path/that/all/keys/have/before/they/differ/"
TEXTS = st.text("ab\0é", max_size=5)
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bigint": (pa.int64(), st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1)),
    "smallint": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "text": (pa.string(), TEXTS),
    "long text": (pa.string(), TEXTS.map(SHARED.__add__) | TEXTS),
    "longer text": (pa.string(), st.tuples(TEXTS, TEXTS).map(lambda both: both[0] + SHARED + both[1])),
    "bytes": (pa.binary(), st.binary(max_size=4)),
    "date": (pa.date32(), st.dates(date(1960, 1, 1), date(2040, 1, 1))),
    "time": (
        pa.timestamp("us", "UTC"),
        st.datetimes(datetime(1960, 1, 1), datetime(2040, 1, 1)).map(lambda at: at.replace(tzinfo=UTC)),
    ),
    "numeric": (pa.decimal128(12, 3), st.decimals(-1000, 1000, places=3).map(lambda n: n + Decimal(0))),
    "bool": (pa.bool_(), st.booleans()),
}


@st.composite
def _keyed(draw: st.DrawFn) -> tuple[pa.Table, pa.Table]:
    """Rows of a file, and keys that are asked for: some of theirs, and others."""
    kinds = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3))
    keys = st.tuples(*(COLUMNS[kind][1] for kind in kinds))
    rows = draw(st.lists(keys, max_size=40, unique=draw(st.booleans())))
    asked = draw(st.lists(st.sampled_from(rows) | keys if rows else keys, max_size=20))
    return _table(kinds, rows), _table(kinds, asked).drop_columns(["value"])


def _table(kinds: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = {
        f"k{number}": pa.array([row[number] for row in rows], COLUMNS[kind][0])
        for number, kind in enumerate(kinds)
    }
    return wide(pa.table(columns | {"value": pa.array([f"row {n}" for n in range(len(rows))], pa.string())}))


def _codes(table: pa.Table) -> pa.Array:
    return keycode([table[name] for name in table.column_names if name != "value"])


def _name(rows: pa.Table, path: str = "p") -> DataFileName:
    return DataFileName("lake", "folder", path, rows.schema, tuple(rows.column_names[:-1]))


def _agree(found: KeyedRows, rows: pa.Table, asked: pa.Array) -> None:
    matches = found.find(asked)
    of_rows, of_asked = _codes(rows).to_pylist(), asked.to_pylist()
    expected = sorted(
        (n, at) for n, key in enumerate(of_asked) for at, own in enumerate(of_rows) if own == key
    )
    assert sorted(zip(matches.keys.tolist(), matches.positions.tolist(), strict=True)) == expected
    assert found.take(matches.numbers).to_pylist() == [
        rows.slice(at, 1).to_pylist()[0] for at in matches.positions
    ]
    assert found.numbers(matches.positions).tolist() == matches.numbers.tolist()


@LAWS
@given(_keyed(), st.booleans())
def test_a_key_finds_its_rows_in_memory_and_from_the_disk(
    given_: tuple[pa.Table, pa.Table], in_order: bool
) -> None:
    rows, asked = given_
    if in_order:
        rows = rows.take(
            pa.array(np.argsort(np.array([*_codes(rows).to_pylist(), None], object)[:-1], kind="stable"))
        )
    codes = _codes(asked)
    made = KeyedRows.of(rows, _name(rows).key)
    _agree(made, rows, codes)
    with TemporaryDirectory() as folder, patch.object(row_cache, "_SMALL", 0):
        RowCache(Path(folder), 1 << 30).put(_name(rows), made)
        again = RowCache(Path(folder), 1 << 30).get(_name(rows))
        assert again is not None
        _agree(again, rows, codes)


@LAWS
@given(_keyed())
def test_a_range_of_keys_is_the_rows_that_routing_sends_there(given_: tuple[pa.Table, pa.Table]) -> None:
    rows, asked = given_
    cut = [code[:WIDTH] for code in _codes(asked).to_pylist()]
    if len(cut) < 2:
        return
    first, last = sorted(cut[:2])
    made = KeyedRows.of(rows, _name(rows).key)
    own = prefixes(_codes(made.rows))
    bounds = np.array([first, last], f"S{WIDTH}")
    expected = np.flatnonzero((own >= bounds[0]) & (own <= bounds[1])).tolist()
    assert list(made.between(first, last)) == expected


def _some() -> pa.Table:
    return _table(["bigint", "text"], [(number, "t" * (number % 7)) for number in range(5000)])


@pytest.fixture(autouse=True)
def _on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_cache, "_SMALL", 0)


def test_a_damaged_or_stale_entry_is_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_cache, "_AT_ONCE", 1 << 16)  # the checksum takes several steps
    rows, name = _some(), _name(_some())
    RowCache(tmp_path, 1 << 30).put(name, KeyedRows.of(rows, name.key))
    [path] = tmp_path.iterdir()
    whole = path.read_bytes()
    damages = [b"", whole[:10], whole[:-1], whole + b"\0", b"HRROWS00" + whole[8:], whole[:4096]]
    for at in (20, 5000, len(whole) // 2, len(whole) - 1):
        damages.append(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    for damaged in damages:
        path.write_bytes(damaged)
        assert RowCache(tmp_path, 1 << 30).get(name) is None
    path.write_bytes(whole)
    again = RowCache(tmp_path, 1 << 30).get(name)
    assert again is not None
    assert again.rows.equals(rows)
    other = rows.append_column("more", pa.array([None] * rows.num_rows, pa.int32()))
    stale = DataFileName(name.lake, name.folder, name.path, other.schema, name.key)
    assert RowCache(tmp_path, 1 << 30).get(stale) is None
    remade = RowCache(tmp_path, 1 << 30).put(stale, KeyedRows.of(other, name.key))
    assert remade.rows.column_names == other.column_names
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_entries_keep_to_the_bound_and_only_idle_ones_make_room(tmp_path: Path) -> None:
    rows = _some()
    probe = RowCache(tmp_path, 1 << 30)
    probe.put(_name(rows), KeyedRows.of(rows, _name(rows).key))
    size = sum(each.stat().st_size for each in tmp_path.iterdir())
    probe.forget(_name(rows).entry)
    assert not list(tmp_path.iterdir())
    cache = RowCache(tmp_path, 2 * size + size // 2)
    for number in range(4):
        kept = cache.put(_name(rows, f"{number}"), KeyedRows.of(rows, _name(rows).key))
        assert kept.rows.num_rows == rows.num_rows
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= cache.most
    assert [cache.get(_name(rows, f"{n}")) is not None for n in range(4)] == [True, True, False, False]
    for each in tmp_path.iterdir():
        os.utime(each, (time.time() - 3600,) * 2)
    RowCache(tmp_path, cache.most).put(_name(rows, "3"), KeyedRows.of(rows, _name(rows).key))
    there = RowCache(tmp_path, cache.most)
    assert there.get(_name(rows, "3")) is not None
    assert sum(there.get(_name(rows, f"{n}")) is not None for n in range(3)) == 1
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= cache.most


def test_rows_whose_new_entry_is_gone_at_once_are_used_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, name = _some(), _name(_some())
    write = row_cache.write_entry
    for left in (0, 5000):

        def write_and_lose(path: Path, name: DataFileName, rows: KeyedRows, left: int = left) -> None:
            write(path, name, rows)
            path.write_bytes(path.read_bytes()[:left])

        monkeypatch.setattr(row_cache, "write_entry", write_and_lose)
        found = RowCache(tmp_path, 1 << 30).put(name, KeyedRows.of(rows, name.key))
        _agree(found, rows, _codes(rows.slice(4000, 3)))
        assert RowCache(tmp_path, 1 << 30).get(name) is None


@pytest.mark.parametrize("most", [0, 10])
def test_without_room_the_rows_are_used_from_memory(tmp_path: Path, most: int) -> None:
    rows = _some()
    found = RowCache(tmp_path, most).put(_name(rows), KeyedRows.of(rows, _name(rows).key))
    _agree(found, rows, _codes(rows.slice(4000, 3)))
    assert not list(tmp_path.iterdir())


def test_small_files_are_held_in_memory_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = _some()
    made = KeyedRows.of(rows, _name(rows).key)
    monkeypatch.setattr(row_cache, "_SMALL", 2 * made.size)
    monkeypatch.setattr(row_cache, "_SMALL_AT_ONCE", 3 * made.size)
    cache = RowCache(tmp_path, 1 << 30)
    for number in range(5):
        cache.put(_name(rows, f"{number}"), made)
        assert cache.get(_name(rows, "0")) is not None
    assert not list(tmp_path.iterdir())
    assert [cache.get(_name(rows, f"{n}")) is not None for n in range(5)] == [True, False, False, True, True]
