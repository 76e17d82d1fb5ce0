"""`format("headrace")` reads a table of a lake at a mark: every type, any moment, one cut a plan."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from headrace.lake.store.open import open_store
from tests.lakes import Bucket
from tests.laws.lake.chronicle import AWKWARD, START, Chronicle, Row, Transaction, counted
from tests.readers.sample import NAMES, Sample, in_order

pytestmark = pytest.mark.spark
ORDERS, ITEMS = "public.orders", "public.items"


def row(number: int) -> Row:
    return (number, *[None] * (len(AWKWARD) - 1))


def read(spark: Any, lake: str, table: str, **options: Any) -> Any:
    return spark.read.format("headrace").options(lake=lake, table=table, **options).load()


@pytest.fixture
def chronicle(tmp_path: Path) -> Chronicle:
    """Two tables in two marks: the second has a row more of each, and is complete up to a moment."""
    made = Chronicle(str(tmp_path / "lake"))
    made.copy({ORDERS: [row(1)], ITEMS: [row(1)]}, 1000)
    made.publish(
        [Transaction(1010, 1, {ORDERS: [(row(2), 1)], ITEMS: [(row(2), 1)]})],
        until=START + timedelta(seconds=9),
    )
    return made


def collect(frames: list[Any]) -> list[tuple[Any, ...]]:
    """The rows of all frames by one job."""
    return sorted(map(tuple, reduce(lambda some, more: some.unionAll(more), frames).collect()))


def test_every_type_is_read_at_its_mark(tmp_path: Path, spark: Any) -> None:
    path = str(tmp_path / "a [lake], {é}*?")
    sample = Sample(open_store(path))
    for name, epoch in zip(NAMES, (3, 3, 2, 3, 3, 3), strict=True):
        expected = sample.expected[epoch, name]
        found = read(spark, path, name, epoch=epoch, metadata="true").toArrow()
        assert found.column_names == [*expected.column_names, "_epoch", "_position"]
        assert in_order(found.select(expected.column_names).cast(expected.schema)) == in_order(expected)
        assert set(found["_epoch"].to_pylist()) <= {epoch}
        assert set(found["_position"].to_pylist()) <= {f"0/{epoch}0"}
    chosen = read(spark, path, '"Sales Data"."Order"', columns='"a b,c", id')
    assert set(map(tuple, chosen.collect())) == {("x", 1), (None, 2)}
    assert read(spark, path, "errors").columns == ["table", "key", "column", "raw", "code", "time", "diff"]
    history = read(spark, path, 'history."Sales Data"."Order"', columns="id, _time").collect()
    assert [tuple(each) for each in history] == [(1, 5)]  # not the row of an epoch that has no mark


def test_each_way_to_name_a_moment_is_the_mark_there(chronicle: Chronicle, spark: Any) -> None:
    path, moment = chronicle.path, (START + timedelta(seconds=5)).isoformat()
    ways: list[dict[str, Any]] = [
        {"epoch": 3},
        {"position": "0/3F3"},
        {"timestamp": moment},
        {"source": "main"},
    ]
    frames = [read(spark, path, "orders", metadata=True, **way).select("id", "_epoch") for way in ways]
    assert collect(frames) == sorted([(1, 3), (2, 3)] * len(ways))
    assert read(spark, path, "main.public.orders", epoch=2).count() == 1


def test_a_plan_stays_at_its_mark_while_others_are_published(chronicle: Chronicle, spark: Any) -> None:
    orders, items = (read(spark, chronicle.path, name, metadata=True) for name in (ORDERS, ITEMS))
    both = (
        orders.withColumnRenamed("_epoch", "mark")
        .join(items, "id")
        .where("mark = _epoch")
        .select("id", "mark")
    )
    assert sorted(map(tuple, both.collect())) == [(1, 3), (2, 3)]
    chronicle.publish([Transaction(1020, 2, {ORDERS: [(row(1), -1), (row(3), 1)], ITEMS: [(row(3), 1)]})])
    assert sorted(map(tuple, both.collect())) == [(1, 3), (2, 3)]
    later = read(spark, chronicle.path, ORDERS, metadata=True)
    assert sorted(map(tuple, later.select("id", "_epoch").collect())) == [(2, 4), (3, 4)]
    mixed = orders.withColumnRenamed("_epoch", "mark").join(later, "id").select("id", "mark", "_epoch")
    assert [tuple(each) for each in mixed.collect()] == [(2, 3, 4)]


def test_filters_of_one_frame_are_not_mixed_where_spark_pushes_them_down(
    chronicle: Chronicle, spark: Any
) -> None:
    """Spark 4.3 keeps the partitions of one of them for all: so none is ever taken."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    whole = read(spark, chronicle.path, ORDERS, columns="id")
    assert collect([whole.where("id = 1"), whole.where("id = 2")]) == [(1,), (2,)]
    assert whole.count() == 2
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_the_error_that_spark_shows_has_the_code_and_what_to_type(chronicle: Chronicle, spark: Any) -> None:
    with pytest.raises(Exception, match=r"LAKE_TABLE_UNKNOWN(?s:.)*did you mean \"public\.orders\"\?"):
        read(spark, chronicle.path, "public.order")
    with pytest.raises(Exception, match="SPARK_OPTION_SECRET") as refused:
        read(spark, chronicle.path, "orders", AWS_SECRET_ACCESS_KEY="canary-4711")
    assert "canary-4711" not in str(refused.value)
    with pytest.raises(Exception, match="SPARK_SCHEMA_GIVEN"):
        spark.read.format("headrace").schema("id BIGINT").option("lake", chronicle.path).load().collect()
    frame = read(spark, chronicle.path, "orders")
    os.rename(chronicle.path, f"{chronicle.path}-elsewhere")  # as on an executor that does not share it
    with pytest.raises(Exception, match=r"SPARK_LAKE_NOT_SHARED"):
        frame.collect()


# Spark's workers have the environment that its JVM was started in, so a bucket's settings need a new one.
# Then, in the same process, a client of ours, which ends when it has closed.
_ON_CONNECT = """
import sys
from pyspark.sql import SparkSession
from headrace.spark.jobs import Runner
from headrace.spark.session import SparkConfig, open_session
spark = SparkSession.builder.remote("local[2]").getOrCreate()
frame = spark.read.format("headrace").option("lake", sys.argv[1]).option("table", "kinds").load()
print(sorted(each.id for each in frame.collect()))
spark.stop()
with open_session(SparkConfig(remote="local[1]")) as session:
    print(session.connect, session.is_owned, Runner(session).run(bytes, [b"a"]))
"""


def test_a_lake_in_a_bucket_is_read_over_connect_and_its_client_ends(any_bucket: Bucket) -> None:
    Sample(open_store(any_bucket.address))
    done = subprocess.run(
        [sys.executable, "-c", _ON_CONNECT, any_bucket.address],
        env={**os.environ, "SPARK_TESTING": "1", "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    said = [str([-(2**63), 0, 2**63 - 1]), "True True [b'a']"]
    assert (done.returncode, done.stdout.splitlines()[-2:]) == (0, said), done.stderr[-3000:]


def test_each_state_of_a_random_life_is_read(tmp_path: Path, spark: Any) -> None:
    chronicle = Chronicle(str(tmp_path / "lake"))
    chronicle.copy({ORDERS: [row(number) for number in range(9)]}, 1000)
    for step in range(3):
        lsn = 1010 + 10 * step
        chronicle.publish([Transaction(lsn, step, {ORDERS: [(row(step), -1), (row(100 + step), 1)]})])
    marks = chronicle.lake.marks()[1:]
    frames = [read(spark, chronicle.path, ORDERS, epoch=mark.epoch, metadata=True) for mark in marks]
    found = reduce(lambda some, more: some.unionAll(more), frames).toArrow()
    for mark in marks:
        rows = found.filter(pc.field("_epoch") == mark.epoch).select(AWKWARD.names)
        assert counted(rows.cast(AWKWARD)) == chronicle.state(mark.time)[ORDERS]
