"""Delta tables through delta-rs: one commit at one version, and what the log says afterwards."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headrace.core.errors import Definite, Transient
from headrace.core.names import TableName
from headrace.lake.format import datafile, layout, schemas
from headrace.lake.format.plan import DataFile, TableStep
from headrace.lake.log import table as table_module
from headrace.lake.log.commit import plan_base
from headrace.lake.log.table import Entry, LakeTable, Stamp
from headrace.lake.store.contract import Store, locate

FOLDER = layout.table_folder("main", TableName("Sales Data", 'odd"né%me'))
TIMES = pa.timestamp("us")
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("a b", pa.string())])


def _file(store: Store, ids: list[int], schema: pa.Schema = SCHEMA) -> DataFile:
    columns = {field.name: ids if field.name == "id" else [None] * len(ids) for field in schema}
    return datafile.write(store, FOLDER, layout.file_name(1), pa.table(columns, schema=schema))


def _stamp(epoch: int) -> Stamp:
    return Stamp("headrace/main", epoch, f"plan-{epoch}")


def _made(store: Store, *ids: list[int]) -> tuple[LakeTable, tuple[DataFile, ...]]:
    table = LakeTable(store, FOLDER)
    assert table.refresh() == -1
    files = tuple(_file(store, some) for some in ids)
    assert table.write(TableStep(FOLDER, -1, files, schema=schemas.encode(SCHEMA)), _stamp(1))
    return table, files


def _delta(store: Store) -> DeltaTable:
    return DeltaTable(locate(store, FOLDER), storage_options=store.storage_options)


def _ids(store: Store) -> list[int]:
    found: Any = pa.table(_delta(store).scan())
    return sorted(found["id"].to_pylist())


def test_a_table_is_made_with_its_first_files_in_one_commit(any_store: Store) -> None:
    table, files = _made(any_store, [1, 2], [3])
    assert table.version == 0
    assert table.live() == {file.path for file in files}
    assert table.schema().equals(SCHEMA)
    assert _delta(any_store).transaction_version("headrace/main") == 1
    assert _ids(any_store) == [1, 2, 3]


def test_files_are_added_and_removed_in_one_commit(any_store: Store) -> None:
    table, files = _made(any_store, [1], [2])
    new = _file(any_store, [7])
    assert table.write(TableStep(FOLDER, 0, (new,), (files[0].path,)), _stamp(2))
    assert table.version == 1
    assert {path: file.rows for path, file in table.files().items()} == {files[1].path: 1, new.path: 1}
    assert table.entry(1) == Entry("plan-2", rewrite=False, epoch=2)
    assert LakeTable(any_store, FOLDER).entry(1) == Entry("plan-2", rewrite=False, epoch=2)
    assert table.at(0).live() == {file.path for file in files}
    assert _ids(any_store) == [2, 7]


def test_commits_of_ours_and_of_others_take_turns(any_store: Store) -> None:
    table, files = _made(any_store, [1], [2])
    assert len(table.live()) == 2  # read, and from here on followed
    for version in range(55):  # past a checkpoint
        new, gone = _file(any_store, [10 + version]), (files[0].path,) if version == 3 else ()
        assert table.write(TableStep(FOLDER, version, (new,), gone), _stamp(version + 2))
    assert (table.version, len(table.files())) == (55, 56)
    _delta(any_store).delete("id = 2")
    assert not table.write(TableStep(FOLDER, 55, (_file(any_store, [99]),)), _stamp(90))
    assert (table.version, table.entry(56)) == (56, Entry(None, rewrite=False))
    assert table.write(TableStep(FOLDER, 56, (_file(any_store, [77]),)), _stamp(91))
    assert table.live() == LakeTable(any_store, FOLDER).at(57).live()
    assert table.describe().num_rows == len(table.live()) == 56
    assert _ids(any_store) == [*range(10, 65), 77]
    assert _delta(any_store).transaction_version("headrace/main") == 91


def test_what_another_program_asks_of_each_commit_is_kept(local_store: Store) -> None:
    table, files = _made(local_store, [1], [2])
    _delta(local_store).alter.set_table_properties({"delta.appendOnly": "true"})
    table.refresh()
    with pytest.raises((DeltaError, Transient)):
        table.write(TableStep(FOLDER, 1, (), (files[0].path,)), _stamp(2))
    assert _ids(local_store) == [1, 2]


def test_a_version_that_is_taken_is_refused(any_store: Store) -> None:
    first, _ = _made(any_store, [1])
    second = LakeTable(any_store, FOLDER)
    second.refresh()
    assert first.write(TableStep(FOLDER, 0, (_file(any_store, [2]),)), _stamp(2))
    assert not second.write(TableStep(FOLDER, 0, (_file(any_store, [3]),)), _stamp(3))
    assert _ids(any_store) == [1, 2]


def test_of_two_that_make_the_same_table_one_is_refused(any_store: Store) -> None:
    one, two = LakeTable(any_store, FOLDER), LakeTable(any_store, FOLDER)
    step = TableStep(FOLDER, -1, (_file(any_store, [1]),), schema=schemas.encode(SCHEMA))
    assert one.write(step, _stamp(1))
    assert not two.write(step, _stamp(2))
    assert _ids(any_store) == [1]


def test_a_nullable_column_is_added_in_a_commit_of_its_own(any_store: Store) -> None:
    table, _ = _made(any_store, [1])
    wider = SCHEMA.append(pa.field("at", pa.timestamp("us")))
    assert table.write(TableStep(FOLDER, 0, schema=schemas.encode(wider)), _stamp(2))
    assert table.write(TableStep(FOLDER, 1, (_file(any_store, [2], wider),)), _stamp(2))
    assert table.schema().equals(wider)
    assert _delta(any_store).protocol().reader_features == ["timestampNtz"]
    assert _ids(any_store) == [1, 2]
    assert table.entry(1) == Entry("plan-2", rewrite=False, epoch=2)


def test_a_protocol_names_the_feature_of_columns_that_may_not_be_null(local_store: Store) -> None:
    """Delta's connector for Spark refuses a table without it. Earlier releases left it out."""
    wider, key = SCHEMA.append(pa.field("at", TIMES)), table_module.line_key(FOLDER, 0)
    table, first = LakeTable(local_store, FOLDER), _file(local_store, [1], wider)
    assert table.write(TableStep(FOLDER, -1, (first,), schema=schemas.encode(wider)), _stamp(1))
    assert set(_delta(local_store).protocol().writer_features or ()) == {"invariants", "timestampNtz"}
    local_store.put(key, (local_store.get(key) or b"").replace(b'"invariants", ', b""))
    assert _delta(local_store).protocol().writer_features == ["timestampNtz"]
    table = LakeTable(local_store, FOLDER)
    table.refresh()
    for version in range(2):
        assert table.write(TableStep(FOLDER, version, (_file(local_store, [2], wider),)), _stamp(2))
        assert set(_delta(local_store).protocol().writer_features or ()) == {"invariants", "timestampNtz"}
        assert (
            b'"protocol"' in (local_store.get(table_module.line_key(FOLDER, version + 1)) or b"")
        ) != version
    assert _ids(local_store) == [1, 2, 2]


def test_a_schema_is_replaced_with_all_files(any_store: Store) -> None:
    table, files = _made(any_store, [1])
    other = pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.decimal128(20, 0))])
    step = TableStep(FOLDER, 0, (_file(any_store, [5], other),), (files[0].path,), schemas.encode(other))
    assert table.write(step, _stamp(2))
    assert table.schema().equals(other)
    assert _ids(any_store) == [5]
    assert table.at(0).schema().equals(SCHEMA)


@pytest.mark.parametrize("where", ["", "log"])
def test_columns_get_the_order_that_the_step_says(any_store: Store, where: str) -> None:
    """The old ones by a replacement, and together with new ones, where no file is written."""
    table, files = _made(any_store, [1])
    if where == "log":
        table.checkpoint()
    a_b, number = SCHEMA.field("a b"), SCHEMA.field("id")
    turned = pa.schema([a_b, number])
    step = TableStep(FOLDER, 0, (_file(any_store, [5], turned),), (files[0].path,), schemas.encode(turned))
    assert table.write(step, _stamp(2))
    assert table.schema().equals(turned)
    amid = pa.schema([number, pa.field("at", TIMES), a_b])
    assert table.write(TableStep(FOLDER, 1, schema=schemas.encode(amid)), _stamp(3))
    assert table.schema().equals(amid)
    assert _delta(any_store).protocol().reader_features == ["timestampNtz"]
    assert table.entry(2) == Entry("plan-3", rewrite=False, epoch=3)
    assert _ids(any_store) == [5]
    restored = table.restoration(1)
    assert restored is not None
    assert table.write(restored, _stamp(3))
    assert (table.schema(), _ids(any_store)) == (turned, [5])


@pytest.mark.parametrize("kind", [TIMES, pa.list_(TIMES), pa.map_(pa.string(), TIMES)], ids=str)
def test_a_replacement_raises_the_protocol_in_its_own_commit(any_store: Store, kind: pa.DataType) -> None:
    table, files = _made(any_store, [1])
    table.checkpoint()
    other = pa.schema([pa.field("id", pa.int64()), pa.field("at", kind)])
    step = TableStep(FOLDER, 0, (_file(any_store, [5], other),), (files[0].path,), schemas.encode(other))
    assert table.write(step, _stamp(2))
    assert table.entry(1) == LakeTable(any_store, FOLDER).entry(1) == Entry("plan-2", rewrite=False, epoch=2)
    assert _delta(any_store).protocol().reader_features == ["timestampNtz"]
    assert _delta(any_store).transaction_version("headrace/main") == 2
    assert table.schema().names == ["id", "at"]
    assert _ids(any_store) == [5]
    restored = table.restoration(0)
    assert restored is not None
    assert table.write(restored, _stamp(2))
    assert (table.schema(), _ids(any_store)) == (SCHEMA, [1])


def test_a_replacement_that_raises_the_protocol_comes_first_or_not_at_all(any_store: Store) -> None:
    first, files = _made(any_store, [1])
    second = LakeTable(any_store, FOLDER)
    second.refresh()
    assert first.write(TableStep(FOLDER, 0, (_file(any_store, [2]),)), _stamp(2))
    other = schemas.encode(pa.schema([pa.field("at", TIMES)]))
    assert not second.write(TableStep(FOLDER, 0, (), (files[0].path,), other), _stamp(3))
    assert second.version == 1
    assert _ids(any_store) == [1, 2]


def test_a_replacement_that_would_forget_files_is_a_bug(local_store: Store) -> None:
    table, _ = _made(local_store, [1])
    other = schemas.encode(pa.schema([pa.field("x", pa.string())]))
    with pytest.raises(AssertionError):
        table.write(TableStep(FOLDER, 0, schema=other), _stamp(2))


def test_another_programs_compaction_is_told_from_its_changes(any_store: Store) -> None:
    table, _ = _made(any_store, [1], [2])
    delta = _delta(any_store)
    delta.optimize.compact()
    table.refresh()
    assert table.entry(1) == Entry(None, rewrite=True)
    assert plan_base(table) == 1
    _delta(any_store).delete("id = 1")
    table.refresh()
    assert table.entry(2) == Entry(None, rewrite=False)
    with pytest.raises(Definite) as raised:
        plan_base(table)
    assert raised.value.code == "LAKE_FOREIGN_COMMIT"


def test_a_restoration_brings_back_what_a_version_held(any_store: Store) -> None:
    table, files = _made(any_store, [1, 2], [3])
    table.write(TableStep(FOLDER, 0, (_file(any_store, [9]),), (files[0].path,)), _stamp(2))
    step = table.restoration(0)
    assert step is not None
    assert step.add == (files[0],)
    assert table.write(step, _stamp(2))
    assert _ids(any_store) == [1, 2, 3]
    assert table.restoration(0) is None


def test_a_restoration_brings_back_the_schema(any_store: Store) -> None:
    table, files = _made(any_store, [1])
    other = schemas.encode(pa.schema([pa.field("id", pa.int64())]))
    table.write(TableStep(FOLDER, 0, (), (files[0].path,), other), _stamp(2))
    step = table.restoration(0)
    assert step is not None
    assert table.write(step, _stamp(2))
    assert table.schema().equals(SCHEMA)
    assert _ids(any_store) == [1]


def test_a_table_that_did_not_exist_is_restored_to_emptiness(any_store: Store) -> None:
    table, _ = _made(any_store, [1])
    step = table.restoration(-1)
    assert step is not None
    assert table.write(step, _stamp(1))
    assert table.live() == frozenset()


@pytest.mark.parametrize("half", [b"", b'{"commitInfo":{"timest'])
def test_half_a_commit_is_a_definite_error(local_store: Store, half: bytes) -> None:
    table, _ = _made(local_store, [1])
    local_store.put(f"{FOLDER}/_delta_log/{1:020d}.json", half)
    with pytest.raises(Definite) as raised:
        plan_base(table)
    assert raised.value.code == "LAKE_LOG_DAMAGED"


def test_an_absent_table_has_no_schema_and_no_files(any_store: Store) -> None:
    table = LakeTable(any_store, FOLDER)
    assert table.refresh() == -1
    assert table.files() == {}
    with pytest.raises(Definite) as raised:
        table.schema()
    assert raised.value.code == "LAKE_TABLE_ABSENT"


def test_a_version_that_is_not_there_is_a_definite_error(local_store: Store) -> None:
    table, _ = _made(local_store, [1])
    with pytest.raises(Definite) as raised:
        table.at(7)
    assert raised.value.code == "LAKE_VERSION_GONE"


@pytest.mark.parametrize("error", [OSError("connection reset"), DeltaError("object store: no answer")])
def test_a_version_that_the_store_does_not_hand_out_is_asked_for_again(
    any_store: Store, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A restoration asks for one: it is the store that is unwell, not the lake."""
    table, _ = _made(any_store, [1])

    def refuse(store: Store, folder: str, version: int | None) -> None:
        raise error

    with monkeypatch.context() as unwell:
        unwell.setattr(table_module, "_open", refuse)
        with pytest.raises(Transient, match="LAKE_STORE"):
            table.at(0)
    assert table.at(0).version == 0


def test_a_checkpoint_is_among_the_files_to_make_durable(local_store: Store) -> None:
    table, _ = _made(local_store, [1])
    for version in range(49):
        assert table.write(TableStep(FOLDER, version), _stamp(version))
    assert [key.rsplit("/", 1)[1] for key in table.log_keys(49)] == [
        f"{49:020d}.json",
        f"{49:020d}.checkpoint.parquet",
        "_last_checkpoint",
    ]
    assert len(table.log_keys(23)) == 1
