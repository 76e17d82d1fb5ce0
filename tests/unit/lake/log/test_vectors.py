"""Files with deletion vectors: what a step writes of them, and what every later look at the log finds."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable

from headrace.core.errors import Definite
from headrace.core.names import TableName
from headrace.lake.format import datafile, formatfile, layout, schemas
from headrace.lake.format.plan import DataFile, Plan, TableStep
from headrace.lake.format.vector import Vector
from headrace.lake.log.table import LakeTable, Stamp, find_unneeded, line_key
from headrace.lake.store.contract import Store, locate

FOLDER = layout.table_folder("main", TableName("public", "orders"))
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("note", pa.string())])


def _stamp(epoch: int) -> Stamp:
    return Stamp("headrace/main", epoch, f"plan-{epoch}")


def _file(store: Store, ids: range, row_group: int = 1000) -> DataFile:
    formatfile.create_lake(store)
    rows = pa.table({"id": list(ids), "note": [f"n{i}" for i in ids]}, schema=SCHEMA)
    return datafile.write(store, FOLDER, layout.file_name(1), rows, row_group=row_group)


def _made(store: Store, *files: DataFile) -> LakeTable:
    table = LakeTable(store, FOLDER)
    table.refresh()
    assert table.write(TableStep(FOLDER, -1, files, schema=schemas.encode(SCHEMA)), _stamp(1))
    return table


def _vector(*positions: int) -> Vector:
    return Vector.of(np.array(positions))


def _delete(table: LakeTable, path: str, *positions: int) -> None:
    old = table.files()[path].vector
    new = _vector(*positions) if old is None else old.union(np.array(positions), path)
    step = TableStep(FOLDER, table.version, (table.with_vector(path, new),), (path,))
    assert table.write(step, _stamp(table.version + 2))


def _ids(table: LakeTable) -> list[int]:
    parts = [datafile.read(table.store, FOLDER, file, ["id"]) for file in table.files().values()]
    return sorted(pa.concat_tables(parts)["id"].to_pylist())


def _delta_ids(store: Store, version: int | None = None) -> list[int]:
    delta = DeltaTable(locate(store, FOLDER), version=version, storage_options=store.storage_options)
    rows: Any = pa.table(delta.scan())
    return sorted(rows["id"].to_pylist())


def _again(store: Store) -> LakeTable:
    table = LakeTable(store, FOLDER)
    table.refresh()
    return table


def test_a_vector_grows_and_each_version_stays_as_it_was(any_store: Store) -> None:
    """The writer's own handle, a new one and delta-rs read alike; statistics say that bounds are loose."""
    one, other = _file(any_store, range(100), row_group=10), _file(any_store, range(100, 130))
    table = _made(any_store, one, other)
    assert formatfile.open_lake(any_store).number == 1
    expected = [list(range(130))]
    for gone in [(3, 99), (50,), (0, 11, 12)]:
        _delete(table, one.path, *gone)
        expected.append([i for i in expected[-1] if i not in gone])
    assert table.write(TableStep(FOLDER, table.version, (), (other.path,)), _stamp(9))
    expected.append([i for i in expected[-1] if i < 100])
    for version, ids in enumerate(expected):
        assert _ids(table.at(version)) == _delta_ids(any_store, version) == ids
    fresh = _again(any_store)
    assert find_unneeded(fresh, 0, fresh.version) == ({other.path}, set())
    assert _ids(table) == _ids(fresh) == expected[-1]
    assert fresh.files() == table.files()
    assert fresh.files()[one.path].alive == 94
    assert fresh.describe()["num_records"].to_pylist() == [100]
    line = json.loads((any_store.get(line_key(FOLDER, 2)) or b"").splitlines()[2])
    assert json.loads(line["add"]["stats"])["tightBounds"] is False
    assert formatfile.open_lake(any_store).number == formatfile.VECTORS


def test_checkpoints_keep_vectors(local_store: Store) -> None:
    """Also where the lines that came before are gone."""
    file = _file(local_store, range(200))
    table = _made(local_store, file, _file(local_store, range(200, 210)))
    for position in range(60):  # past the checkpoints of ours
        _delete(table, file.path, position)
    for version in range(50):
        local_store.delete(line_key(FOLDER, version))
    assert _ids(_again(local_store)) == _delta_ids(local_store) == list(range(60, 210))
    assert _again(local_store).files() == table.files()


def test_a_restoration_brings_the_former_vectors_back(any_store: Store) -> None:
    """And takes what came later; with columns that changed in between, too."""
    file, other = _file(any_store, range(20)), _file(any_store, range(20, 30))
    table = _made(any_store, file, other)
    _delete(table, file.path, 1, 2)
    base, then = table.version, _ids(table)
    _delete(table, file.path, 3)
    _delete(table, other.path, 0)
    step = table.restoration(base)
    assert step is not None
    assert table.write(step, _stamp(20))
    assert _ids(table) == _ids(_again(any_store)) == _delta_ids(any_store) == then
    wider = pa.schema([*SCHEMA, pa.field("more", pa.int64())])
    assert table.write(TableStep(FOLDER, table.version, schema=schemas.encode(wider)), _stamp(21))
    _delete(table, file.path, 9)
    step = table.restoration(base)
    assert step is not None
    assert step.schema is not None
    assert table.write(step, _stamp(22))
    assert _ids(table) == _ids(_again(any_store)) == _delta_ids(any_store) == then
    assert table.schema().equals(SCHEMA)
    assert table.restoration(base) is None


def test_a_plan_keeps_a_vector_through_its_record() -> None:
    file = DataFile("f.parquet", 10, 3, "{}", _vector(1, 2**33))
    step = TableStep(FOLDER, 4, (file, DataFile("g.parquet", 10, 3, "{}")), ("f.parquet",))
    plan = Plan("main", 1, "id", "stream", 1, "0", 0, steps=(step,))
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.to_json().count('"vector"') == 1


@pytest.mark.parametrize("damage", ["", "short", "é" * 40, "0" * 41, None])
def test_a_damaged_vector_is_true_of_its_table(local_store: Store, damage: str | None) -> None:
    """Text that is no vector, and a vector that deletes rows which the file does not have."""
    file = _file(local_store, range(20))
    table = _made(local_store, file)
    good = _vector(1, 5)
    bad = _vector(1, 20) if damage is None else Vector(damage, good.size, good.rows)
    step = TableStep(FOLDER, 0, (table.with_vector(file.path, bad),), (file.path,))
    assert table.write(step, _stamp(2))
    with pytest.raises(Definite) as caught:
        _ids(_again(local_store))
    assert caught.value.code == "LAKE_VECTOR_DAMAGED"
    assert file.path in str(caught.value)


def test_a_vector_in_a_file_of_another_program_is_refused(local_store: Store) -> None:
    """No row is shown as if it were there; and a step can remove the file with it."""
    file = _file(local_store, range(20))
    table = _made(local_store, file)
    foreign = Vector("ab^-aqEH.-t@S}K{vb[*k^", 40, 6, "u", 4)
    step = TableStep(FOLDER, 0, (table.with_vector(file.path, foreign),), (file.path,))
    assert table.write(step, _stamp(2))
    with pytest.raises(Definite) as caught:
        _ids(_again(local_store))
    assert caught.value.code == "LAKE_VECTOR_FOREIGN"
    table = _again(local_store)
    assert table.write(TableStep(FOLDER, 1, (), (file.path,)), _stamp(3))
    assert _again(local_store).files() == {}
    assert _delta_ids(local_store) == []


def test_a_table_with_settings_of_others_gets_no_vector(local_store: Store) -> None:
    """One that has vectors already is not changed by us any more: nobody would write its lines right."""
    file = _file(local_store, range(20))
    table = _made(local_store, file)
    delta = DeltaTable(locate(local_store, FOLDER))
    delta.alter.set_table_properties(
        {"delta.appendOnly": "false"}, commit_properties=CommitProperties(max_commit_retries=0)
    )
    assert table.refresh() == 1
    assert not table.takes_vectors
    step = TableStep(FOLDER, 1, (table.with_vector(file.path, _vector(1)),), (file.path,))
    with pytest.raises(Definite) as caught:
        table.write(step, _stamp(2))
    assert caught.value.code == "LAKE_TABLE_SETTINGS"
    assert _ids(_again(local_store)) == list(range(20))
