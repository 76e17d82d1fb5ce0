"""Every engine reads the same from a published lake: pyarrow, Polars, delta-rs, DuckDB, Spark."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headrace.core.errors import HeadraceError
from headrace.lake.format import datafile
from headrace.lake.format.vector import FileRows, Vector
from headrace.lake.read import cut
from headrace.lake.read.frames import Frames
from headrace.lake.read.lake import Lake
from headrace.lake.store.contract import Store
from headrace.lake.store.local import LocalStore
from headrace.lake.store.open import open_store
from headrace.spark.session import SparkConfig, open_session
from tests.lakes import Bucket
from tests.readers.sample import NAMES, Sample, in_order

EPOCHS = (2, 3)
names = pytest.mark.parametrize("name", NAMES)
epochs = pytest.mark.parametrize("epoch", EPOCHS)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    # The lake's own path needs quoting too: no reader may be handed a percent-encoded address.
    return Sample(open_store(tmp_path_factory.mktemp("lakes") / "a [lake], {é}*?"))


@pytest.fixture(scope="module")
def lake(sample: Sample) -> Lake:
    return Lake(sample.store.url, sample.store.storage_options)


def _same(found: pa.Table, expected: pa.Table) -> None:
    assert found.column_names == expected.column_names
    assert found.schema.types == expected.schema.types
    assert in_order(found) == in_order(expected)


@names
@epochs
def test_arrow_reads_each_table_at_each_mark(lake: Lake, sample: Sample, name: str, epoch: int) -> None:
    _same(lake.at(epoch=epoch).arrow(name), sample.expected[epoch, name])


@names
@epochs
def test_polars_reads_each_table_at_each_mark(lake: Lake, sample: Sample, name: str, epoch: int) -> None:
    expected = sample.expected[epoch, name]
    found = lake.at(epoch=epoch).polars(name).collect()
    assert found.columns == expected.column_names
    _same(found.to_arrow().cast(expected.schema), expected)


@names
@epochs
def test_delta_rs_reads_the_pinned_version(lake: Lake, sample: Sample, name: str, epoch: int) -> None:
    cut = lake.at(epoch=epoch)
    table: Any = pa.table(DeltaTable(cut.url(name), version=cut.version(name)).scan())
    expected = sample.expected[epoch, name]
    _same(table.rename_columns(expected.column_names).cast(expected.schema), expected)


@names
@epochs
def test_duckdb_reads_the_pinned_version(lake: Lake, sample: Sample, name: str, epoch: int) -> None:
    cut, expected = lake.at(epoch=epoch), sample.expected[epoch, name]
    with duckdb.connect(config={"allow_unsigned_extensions": True}) as connection:
        connection.execute(f"LOAD '{duckdb_delta()}'")
        connection.execute("SET TimeZone = 'UTC'")
        query = "SELECT * FROM delta_scan(?, version = ?)"
        found = connection.execute(query, [cut.url(name), cut.version(name)]).to_arrow_table()
    _same(found.rename_columns(expected.column_names).cast(expected.schema), expected)


def duckdb_delta() -> Path:
    package = find_spec("duckdb_extension_delta")
    assert package is not None
    assert package.origin is not None
    return next(Path(package.origin).parent.rglob("delta.duckdb_extension"))


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    conf = {"spark.sql.session.timeZone": "UTC", "spark.ui.enabled": "false"}
    with open_session(SparkConfig(master="local[1]", conf=conf)) as session:
        yield session.spark


@pytest.mark.spark
@names
@epochs
def test_spark_reads_each_table_at_each_mark(
    lake: Lake, sample: Sample, spark: Any, name: str, epoch: int
) -> None:
    expected = sample.expected[epoch, name]
    frame = lake.at(epoch=epoch).table(spark, name)
    assert frame.columns == expected.column_names
    _same(frame.toArrow().cast(expected.schema), expected)


@pytest.mark.spark
def test_spark_leaves_out_deleted_rows_without_a_join(tmp_path: Path, spark: Any) -> None:
    store, schema = LocalStore(str(tmp_path)), pa.schema([("id", pa.int64())])
    deleted = {"a": [0], "b": [5, 63, 64, 199], "c": [127], "d": [], "e": [*range(200)]}
    (tmp_path / "t").mkdir()
    for start, name in enumerate(deleted):
        rows = pa.table([pa.array(range(200 * start, 200 * start + 200), pa.int64())], schema)
        datafile.write(store, "t", name, rows, row_group=50)
    vectors = {name: Vector.of(np.array(of)) if of else None for name, of in deleted.items()}
    files = [FileRows(f"t/{name}", vector) for name, vector in vectors.items()]
    frame = Frames(spark, store).parquet(files, schema).where("id >= 100")
    gone = {200 * start + at for start, of in enumerate(deleted.values()) for at in of}
    assert sorted(row.id for row in frame.collect()) == sorted({*range(100, 1000)} - gone)
    plan = frame._jdf.queryExecution().optimizedPlan().toString()
    assert "GreaterThanOrEqual(id,100)" in frame._jdf.queryExecution().simpleString()  # reaches the files
    assert "Join" not in plan


@pytest.mark.spark
def test_spark_without_a_file_system_for_buckets_reads_a_lake_in_one(
    any_bucket: Bucket, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Sample(open_store(any_bucket.address))
    # The tasks get what the lake was opened with, whatever their environment says.
    for option in any_bucket.options:
        monkeypatch.delenv(option)
    cut = Lake(any_bucket.address, any_bucket.options).at()
    for name in NAMES:
        expected = made.expected[cut.mark.epoch, name]
        frame = cut.table(spark, name)
        _same(frame.toArrow().cast(expected.schema), expected)
        assert any_bucket.secret not in frame._jdf.queryExecution().toString()


@pytest.mark.spark
def test_spark_has_every_table_of_a_cut_as_a_view(lake: Lake, sample: Sample, spark: Any) -> None:
    views = lake.at().register(spark)
    assert "grown" in views
    assert "public.grown" in views
    assert spark.sql("SELECT count(*) FROM `public.grown` g JOIN grown h USING (id)").first()[0] == 3
    assert spark.sql('SELECT max(`a b,c`) FROM `"Sales Data"."Order"`').first()[0] == "x"
    for view in views:
        spark.catalog.dropTempView(f"`{view}`")


def test_the_newest_cut_is_taken_without_arguments(lake: Lake, sample: Sample) -> None:
    assert lake.at().mark == sample.newest
    assert lake.at().epoch == sample.newest.epoch
    assert lake.sources() == ["main"]
    assert [mark.epoch for mark in lake.marks()] == [1, 2, 3]
    assert sorted(lake.at().tables()) == sorted(NAMES)


def test_a_cut_at_a_position_or_a_time_is_the_mark_there(lake: Lake, sample: Sample) -> None:
    assert lake.at(position="0/20").mark.epoch == 2
    assert sample.newest.complete_until is not None
    assert lake.at(timestamp=sample.newest.complete_until).mark.epoch == 3


def test_between_two_marks_no_version_is_named(lake: Lake) -> None:
    cut = lake.at(position="0/21")
    assert repr(cut) == "Cut(main@0/21)"
    for ask in (lambda: cut.mark, lambda: cut.version("stopped")):
        with pytest.raises(HeadraceError) as raised:
            ask()
        assert raised.value.code in ("LAKE_BETWEEN_MARKS", "LAKE_TABLE_NOT_EXACT")


def test_bare_names_are_enough_where_they_are_unambiguous(lake: Lake) -> None:
    cut = lake.at()
    assert cut.arrow("grown").num_rows == cut.arrow("main.public.grown").num_rows == 3


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"epoch": 9}, "LAKE_NO_MARK"),
        ({"position": "0/31"}, "LAKE_NOT_REACHED"),
        ({"epoch": 1, "position": "0/20"}, "LAKE_AT_AMBIGUOUS"),
        ({"timestamp": "2026-11-20"}, "TIMESTAMP_MALFORMED"),
        ({"source": "other"}, "LAKE_SOURCE_UNKNOWN"),
    ],
)
def test_a_mark_that_is_not_there_is_refused(lake: Lake, arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(HeadraceError) as raised:
        lake.at(**arguments)
    assert raised.value.code == code


def test_a_table_that_left_the_marks_names_the_last_one_that_has_it(lake: Lake, sample: Sample) -> None:
    with pytest.raises(HeadraceError) as raised:
        lake.at().arrow("stopped")
    assert raised.value.code == "LAKE_TABLE_NOT_EXACT"
    assert "epoch 2" in str(raised.value.detail)
    _same(lake.at(epoch=2).arrow("stopped"), sample.expected[2, "public.stopped"])


def test_a_table_that_never_was_in_a_mark_is_unknown(lake: Lake) -> None:
    with pytest.raises(HeadraceError) as raised:
        lake.at().files("nothing")
    assert raised.value.code == "LAKE_TABLE_UNKNOWN"


def test_history_ends_at_the_mark(lake: Lake) -> None:
    history = lake.history('"Sales Data"."Order"')
    assert history["_time"].to_pylist() == [5]
    assert history.column_names[:2] == ["id", "a b,c"]
    with pytest.raises(HeadraceError) as raised:
        lake.history("grown")
    assert raised.value.code == "LAKE_NO_HISTORY"


def test_a_lake_in_a_bucket_reads_like_one_in_a_directory(any_store: Store) -> None:
    made = Sample(any_store)
    lake = Lake(any_store.url, any_store.storage_options)
    for (epoch, name), expected in made.expected.items():
        cut = lake.at(epoch=epoch)
        _same(cut.arrow(name), expected)
        _same(cut.polars(name).collect().to_arrow().cast(expected.schema), expected)
    assert lake.history('"Sales Data"."Order"').num_rows == 1


def test_files_are_addresses_that_anybody_can_open(lake: Lake, sample: Sample) -> None:
    files = lake.at().files('"Sales Data"."Order"')
    assert pl.read_parquet(files, glob=False).height == 2
    assert all(Path(file).is_file() for file in files)
    assert "Cut(main@3)" in repr(lake.at())


def test_files_with_deleted_rows_are_given_to_those_who_leave_them_out(lake: Lake, sample: Sample) -> None:
    cut = lake.at()
    with pytest.raises(HeadraceError) as raised:
        cut.files("worn")
    assert raised.value.code == "LAKE_FILES_WITH_DELETED"
    deleted = cut.vectors("worn")
    parts = []
    for file in cut.files("worn", with_deleted=True):
        rows = pl.read_parquet(file, glob=False, row_index_name="at")
        parts.append(rows.filter(~pl.col("at").is_in(deleted.get(file, np.array([], np.int64)))).drop("at"))
    found = pl.concat(parts).to_arrow()
    _same(found.cast(sample.expected[3, "public.worn"].schema), sample.expected[3, "public.worn"])
    assert cut.vectors("grown") == {}
    assert cut.files("grown") == cut.files("grown", with_deleted=True)


@pytest.mark.parametrize("most", [1 << 27, 20, 1], ids=["one scan", "two", "one for each file"])
@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_polars_leaves_deleted_rows_out_of_a_query_that_reads_a_part(
    lake: Lake, sample: Sample, monkeypatch: pytest.MonkeyPatch, most: int, engine: Any
) -> None:
    """Files and columns that the query does not need are not read; the rows of others keep their numbers."""
    monkeypatch.setattr(cut, "_MOST_ROWS", most)
    rows = pl.from_arrow(sample.expected[3, "public.worn"])
    assert isinstance(rows, pl.DataFrame)
    key, note = rows.columns[:2]
    for wanted in (pl.col(key) > 20, pl.col(key).is_between(8, 11), pl.col(note) == "f29", pl.col(key) == 28):
        found = lake.at().polars("worn").filter(wanted).select(key).collect(engine=engine)
        assert sorted(found[key]) == sorted(rows.filter(wanted)[key])
    assert lake.at().polars("worn").select(pl.len()).collect(engine=engine).item() == rows.height
    assert lake.at().polars("worn").head(4).collect(engine=engine).height == 4
