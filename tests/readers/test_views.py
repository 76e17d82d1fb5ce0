"""Each statement that `headrace views` prints runs in its engine, and all tables are those of the mark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

from headrace.cli.main import main
from headrace.lake.format import formatfile
from headrace.lake.log.commit import open_log
from headrace.lake.read.lake import Lake
from headrace.lake.store.open import open_store
from tests.readers.sample import NAMES, Sample, in_order
from tests.readers.test_readers import duckdb_delta, spark

__all__ = ["spark"]
EPOCH = 2


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return Sample(open_store(tmp_path_factory.mktemp("lakes") / "lake"))


def printed(sample: Sample, capsys: pytest.CaptureFixture[str], engine: str) -> list[str]:
    assert main(["views", "--lake", sample.store.url, "--engine", engine, "--epoch", str(EPOCH)]) == 0
    return capsys.readouterr().out.splitlines()


def same(sample: Sample, name: str, found: pa.Table) -> None:
    expected = sample.expected[EPOCH, name]
    assert found.column_names == expected.column_names
    assert in_order(found.cast(expected.schema)) == in_order(expected)


def test_duckdb_runs_what_is_printed(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(sample, capsys, "duckdb")
    with duckdb.connect(config={"allow_unsigned_extensions": True}) as connection:
        connection.execute(f"LOAD '{duckdb_delta()}'")
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("\n".join(lines))
        for name in NAMES:
            same(sample, name, connection.execute(f"SELECT * FROM {name}").to_arrow_table())
        assert connection.execute('SELECT count(*) FROM "Order"').fetchall() == [(2,)]


def test_polars_runs_what_is_printed(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    made: dict[str, Any] = {}
    exec("\n".join(printed(sample, capsys, "polars")), made)  # noqa: S102
    tables: dict[str, pl.LazyFrame] = made["tables"]
    for name in NAMES:
        same(sample, name, tables[name.replace('"', "")].collect().to_arrow())
    assert tables["grown"].collect().height == 2


@pytest.mark.spark
def test_spark_runs_what_is_printed(sample: Sample, capsys: pytest.CaptureFixture[str], spark: Any) -> None:
    for line in printed(sample, capsys, "spark"):
        if not line.startswith("--"):
            spark.sql(line.rstrip(";"))
    for name in NAMES:
        view = name.replace('"', "")
        same(sample, name, spark.sql(f"SELECT * FROM `{view}`").toArrow())
        spark.catalog.dropTempView(f"`{view}`")
        spark.catalog.dropTempView(f"`{view.rpartition('.')[2]}`")


@pytest.mark.parametrize("engine", ["delta", "trino", "databricks"])
def test_what_is_printed_for_an_engine_that_is_not_here_is_of_its_grammar(
    sample: Sample, capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    """And pins each table to the version that the mark names."""
    lines = printed(sample, capsys, engine)
    assert ("not on Databricks" in lines[0]) == (engine == "databricks")
    statements = [line for line in lines if not line.startswith("--")]
    dialect = "databricks" if engine == "delta" else engine
    parsed = [sqlglot.parse_one(line.rstrip(";"), dialect=dialect) for line in statements]
    pinned = {}
    for view in (each for each in parsed if isinstance(each, exp.Create) and each.kind == "VIEW"):
        if at := view.find(exp.Version):  # else it is the bare name of such a view
            pinned[f"{view.this.db}.{view.this.name}".lstrip(".")] = int(at.expression.name)
    cut = Lake(sample.store.url).at(epoch=EPOCH)
    assert pinned == {str(name).replace('"', ""): cut.version(name) for name in cut.tables()}
    once = [line for line in lines if line.startswith("-- once: CALL delta.system.register_table(")]
    assert len(once) == (len(pinned) if engine == "trino" else 0)


def test_what_cannot_be_printed_is_refused(
    sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*words: str) -> str:
        assert main(["views", *words]) == 2
        return capsys.readouterr().err.split(":")[1].strip()

    here = ["--lake", sample.store.url]
    assert refused(*here, "--engine", "duckbd") == "VIEWS_ENGINE_UNKNOWN"
    assert refused(*here, "--engine", "snowflake") == "VIEWS_ENGINE_UNPINNED"
    assert refused(*here, "--engine", "duckdb", "--at", "0/21") == "LAKE_BETWEEN_MARKS"
    assert refused("--lake", str(tmp_path / "none"), "--engine", "duckdb") == "LAKE_ABSENT"
    other = Sample(open_store(tmp_path / "a lake"))
    assert refused("--lake", other.store.url, "--engine", "polars") == "VIEWS_PATH"
    assert main(["views", *here, "--engine", "duckdb", "--at", "3"]) == 0
    assert "version = 2" in capsys.readouterr().out


def test_the_tables_of_several_sources_are_called_by_their_source(tmp_path: Path, capsys: Any) -> None:
    store = Sample(open_store(tmp_path / "lake")).store
    open_log(store, "other").takeover()
    assert formatfile.open_lake(store)
    assert len(Lake(store.url).sources()) == 2
    assert main(["views", "--lake", store.url, "--engine", "duckdb"]) == 0
    assert 'VIEW "main.public"."grown"' in capsys.readouterr().out
