"""Deletion vectors: what we write is read back by us and by delta-rs, and runs that others write are read."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.lake.format import delta_line
from headrace.lake.format.plan import DataFile
from headrace.lake.format.vector import _TO_Z85, Vector
from headrace.lake.store.local import LocalStore

STARTS = st.integers(0, 40) | st.integers(65_500, 65_600) | st.integers(130_000, 200_000)
RANGES = st.lists(
    st.tuples(STARTS, st.integers(1, 100) | st.integers(4_090, 4_100), st.integers(1, 3)), max_size=3
)
ROWS = 250_000


def _positions(ranges: list[tuple[int, int, int]]) -> list[int]:
    return sorted({at for start, count, step in ranges for at in range(start, start + count * step, step)})


@settings(max_examples=30)
@given(RANGES)
def test_what_is_written_is_read(ranges: list[tuple[int, int, int]]) -> None:
    rows = _positions(ranges)
    vector = Vector.of(np.array(rows[::-1] + rows[:2], np.int64))
    assert vector.positions("f").tolist() == rows
    assert vector.rows == len(rows)
    assert vector.union(np.array([7, 2**40]), "f").positions("f").tolist() == sorted({*rows, 7, 2**40})
    assert Vector.of(np.array(rows, np.int64)) == vector


def _of_runs(rows: list[int]) -> Vector:
    """The vector as a program writes it that makes runs; containers of 65,536 positions."""
    containers: dict[int, list[tuple[int, int]]] = {}
    for row in rows:
        runs = containers.setdefault(row >> 16, [])
        if runs and runs[-1][0] + runs[-1][1] + 1 == row & 0xFFFF:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((row & 0xFFFF, 0))
    head = struct.pack("<I", 12347 | (len(containers) - 1) << 16)
    head += bytes([0xFF] * ((len(containers) + 7) // 8))
    bodies = []
    for key, runs in containers.items():
        head += struct.pack("<HH", key, sum(more + 1 for _, more in runs) - 1)
        bodies.append(struct.pack("<H", len(runs)) + b"".join(struct.pack("<HH", *run) for run in runs))
    if len(containers) >= 4:
        ends = np.cumsum([len(head) + 4 * len(containers), *map(len, bodies)])[:-1]
        head += ends.astype("<u4").tobytes()
    data = struct.pack("<IqI", 1681511377, 1, 0) + head + b"".join(bodies)
    text = base64.b85encode(data + bytes(-len(data) % 4)).translate(_TO_Z85).decode()
    return Vector(text, len(data), len(rows))


@settings(max_examples=30)
@given(RANGES.filter(bool))
def test_runs_are_read(ranges: list[tuple[int, int, int]]) -> None:
    rows = _positions(ranges)
    assert _of_runs(rows).positions("f").tolist() == rows


def test_delta_rs_reads_both_alike(tmp_path: Path) -> None:
    """Lists and bit sets, and so many containers that a bitmap of runs tells where each begins."""
    rows = _positions([(3, 5_000, 1), (65_530, 10, 2), (140_000, 1, 1), (200_000, 4_100, 2), (249_000, 3, 1)])
    assert _deleted(tmp_path / "ours", Vector.of(np.array(rows))) == rows
    assert _deleted(tmp_path / "runs", _of_runs(rows)) == rows


def _deleted(folder: Path, vector: Vector) -> list[int]:
    stats = json.dumps({"numRecords": ROWS})
    columns = {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]}
    metadata = {"id": "x", "format": {"provider": "parquet", "options": {}}, "partitionColumns": []}
    line = delta_line.text(
        delta_line.protocol(["deletionVectors"], ["deletionVectors"]),
        {"metaData": metadata | {"schemaString": json.dumps(columns), "configuration": {}}},
        delta_line.add(DataFile("f.parquet", 1, ROWS, stats, vector), changes=True),
    )
    LocalStore(str(folder)).put(f"_delta_log/{0:020d}.json", line)
    [selected] = pa.table(DeltaTable(folder).deletion_vectors())["selection_vector"].to_pylist()
    return [at for at, stays in enumerate(selected) if not stays]
