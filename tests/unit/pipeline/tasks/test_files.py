"""Files in the order of their keys, whatever order their rows come in."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.core.columns import row_bytes
from headrace.core.history import history_schema
from headrace.core.names import TableName
from headrace.core.schema import Column, TableSchema
from headrace.lake.store.open import open_store
from headrace.pipeline.tasks import files
from headrace.pipeline.tasks.files import Writing, write_history, write_sorted
from headrace.pipeline.tasks.routing import Routes
from headrace.pipeline.tasks.table_task import NewFile, TableTask

SCHEMA = TableSchema(
    (
        Column("id", pa.int64(), "bigint", "int"),
        Column("s", pa.string(), "text", "text"),
        Column("v", pa.list_(pa.float32()), "vector(2)", "vector"),
    ),
    ("id",),
    full=True,
)
IDS = [-3, -1, 0, 2, 5, 8, 13]
TASK = TableTask(TableName("public", "t"), SCHEMA, "t", "h", "e", Routes.over(()), 0)


def _table(ids: list[int], *chunks: int) -> pa.Table:
    """Rows with these keys, in chunks of so many rows."""
    columns = {
        "id": ids,
        "s": [None if number == 2 else "x" * (number + 3) for number in ids],
        "v": [None if number == 5 else [1.0] * (number % 3) for number in ids],
    }
    whole = pa.table(columns, SCHEMA.arrow())
    return pa.concat_tables(
        whole.slice(sum(chunks[:at]), size) for at, size in enumerate(chunks or (len(ids),))
    )


@pytest.mark.parametrize("most", [1 << 20, 3])
def test_rows_come_into_the_order_of_their_keys_and_stay_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(files, "ROWS_PER_FILE", most)
    store, task = open_store(tmp_path), TASK

    def written(rows: pa.Table) -> tuple[NewFile, ...]:
        return write_sorted(Writing(store, 1), task, rows)

    def contents(new: NewFile) -> pa.Table:
        return pq.read_table(tmp_path / "t" / new.file.path)

    ordered, others = written(_table(IDS, 2, 4, 1)), written(_table([*IDS[3:], *IDS[:3]], 5, 2))
    assert [(new.low, new.high, new.file.rows, new.file.stats) for new in ordered] == [
        (new.low, new.high, new.file.rows, new.file.stats) for new in others
    ]
    assert [contents(new).equals(contents(old)) for new, old in zip(ordered, others, strict=True)] == [
        True
    ] * (3 if most == 3 else 1)
    assert [row for new in ordered for row in contents(new).to_pylist()] == _table(IDS).to_pylist()


@pytest.mark.parametrize("most", [1, 40, 100, 150, 200, 300, 400, 10_000])
def test_files_are_of_the_same_size_however_their_rows_are_measured(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    rows = _table(IDS, 3, 4).drop_columns(["v"]).append_column("f", pa.array([True] * len(IDS)))
    monkeypatch.setattr(files, "BYTES_PER_FILE", most)
    monkeypatch.setattr(files, "ROWS_PER_FILE", 3)
    found = files._cuts(rows)
    assert files._at_most(rows) >= row_bytes(rows).sum()
    monkeypatch.setattr(files, "_at_most", lambda _: most + 1)
    assert found == files._cuts(rows)


def test_rows_in_chunks_are_as_large_as_together() -> None:
    assert row_bytes(_table(IDS, 1, 3, 3)).tolist() == row_bytes(_table(IDS)).tolist()


def test_no_file_is_written_where_there_is_no_row(tmp_path: Path) -> None:
    """The log would say nothing of its times, and readers would look into it for each."""
    writing = Writing(open_store(tmp_path), 1)
    assert write_sorted(writing, TASK, _table([])) == ()
    assert write_history(writing, TASK, history_schema(SCHEMA).empty_table()) == ()
