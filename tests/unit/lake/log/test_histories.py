"""Histories: our columns told from the user's, and files told apart by what the log says of them."""

from datetime import UTC, datetime
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.core.history import history_schema, own_fields
from headrace.core.names import TableName
from headrace.core.schema import Column, TableSchema
from headrace.core.transaction_id import TransactionId
from headrace.lake.format import datafile, layout, schemas
from headrace.lake.format.plan import TableStep
from headrace.lake.log.histories import HistoryPart, first_later, parts, splits_at
from headrace.lake.log.marks import Mark
from headrace.lake.log.table import LakeTable, Stamp
from headrace.lake.store.contract import Store
from headrace.pipeline.maintain import expiry


@pytest.mark.parametrize("transaction", TransactionId)
def test_a_user_may_have_a_history_of_ours_as_a_table(transaction: TransactionId) -> None:
    theirs = [Column(field.name, field.type, "", "") for field in own_fields(transaction).values()]
    id_column = Column("id", pa.int64(), "", "")
    schema = history_schema(TableSchema((id_column, *theirs), (), full=True, transaction=transaction))
    part = HistoryPart(cast(LakeTable, None), schema, (), (None, 0))
    assert part.columns == ["id", *(field.name for field in own_fields(transaction).values())]
    assert part.own["_transaction"] == f"_{transaction.column}"


def test_a_file_without_rows_tells_of_no_time(any_store: Store) -> None:
    """An earlier release wrote such files: under columns of then, they would be in the way of every place."""
    name = TableName("public", "t")
    folder = layout.history_folder("main", name, 1)
    schema = history_schema(TableSchema((Column("id", pa.int64(), "", ""),), (), full=True))
    empty = datafile.write(any_store, folder, layout.file_name(1), schema.empty_table())
    table = LakeTable(any_store, folder)
    table.refresh()
    assert table.write(TableStep(folder, -1, (empty,), schema=schemas.encode(schema)), Stamp("a", 1, "p"))
    assert parts(any_store, "main", name, (None, 100)) == []


@pytest.mark.parametrize("older", [False, True])
def test_of_a_wide_table_the_times_of_its_files_are_known_too(
    any_store: Store, monkeypatch: pytest.MonkeyPatch, *, older: bool
) -> None:
    """An earlier release left it at Delta's 32 columns: there the files' own footers are asked."""
    if older:
        monkeypatch.setattr("headrace.lake.log.table._READ_ALL", {})
    name = TableName("public", "t")
    folder = layout.history_folder("main", name, 1)
    columns = tuple(Column(f"c{number}", pa.int64(), "", "") for number in range(40))
    schema = history_schema(TableSchema(columns, (), full=True))
    files = [
        datafile.write(any_store, folder, layout.file_name(time), _at(schema, [time, time + 1]), row_group=1)
        for time in (10, 20)
    ]
    table = LakeTable(any_store, folder)
    table.refresh()
    table.write(TableStep(folder, -1, tuple(files), schema=schemas.encode(schema)), Stamp("a", 1, "p"))
    assert ("min._time" in table.describe().column_names) is not older
    assert [part.paths for part in parts(any_store, "main", name, (11, 20))] == [(files[1].path,)]
    assert parts(any_store, "main", name, (11, 19)) == []
    assert [each.remove for each in expiry.spent_files(any_store, "main", 11)] == [(files[0].path,)]


def test_a_moment_is_looked_for_in_two_columns_of_history(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between marks that were thinned out lies a day of every table: its rows may be large."""
    name = TableName("public", "t")
    folder = layout.history_folder("main", name, 1)
    wide = Column("wide", pa.string(), "", "")
    schema = history_schema(TableSchema((wide,), (), full=True, transaction=TransactionId.GTID))
    file = datafile.write(local_store, folder, layout.file_name(10), _at(schema, [10, 18]))
    table = LakeTable(local_store, folder)
    table.refresh()
    table.write(TableStep(folder, -1, (file,), schema=schemas.encode(schema)), Stamp("a", 1, "p"))
    asked, read = list[list[str]](), datafile.read

    def counted(*place: Any, schema: pa.Schema) -> pa.Table:
        asked.append(schema.names)
        return read(*place, schema=schema)

    monkeypatch.setattr(datafile, "read", counted)
    mark = Mark(11, 1, "", 20, None, datetime.now(UTC), 1, 1, {str(name): 1})
    limit = datetime(1970, 1, 1, tzinfo=UTC)
    assert first_later(local_store, "main", limit, None, mark) == (10, False)
    assert splits_at(local_store, "main", lambda names: pc.equal(names, "1"), 18, None, mark)
    assert asked == [["_time", "_commit_ts"], ["_time", "_gtid"]]


def _at(schema: pa.Schema, times: list[int]) -> pa.Table:
    """Updates at these times, about which nothing is told that may be left out."""
    columns = {
        field.name: pa.nulls(len(times), field.type)
        if field.nullable
        else pa.array(times if field.name == "_time" else [1] * len(times), pa.int64()).cast(field.type)
        for field in schema
    }
    return pa.table(columns, schema=schema)
