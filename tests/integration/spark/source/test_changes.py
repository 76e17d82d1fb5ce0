"""`readStream.format("headrace")`: every change once, over restarts and replays, and refusals with a code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto import server as moto_server
from pyspark.sql.datasource import DataSourceStreamReader

import headrace
from headrace.spark.source.change_rows import StreamPlan, read
from headrace.spark.source.changes import ChangeStream, plan_stream
from headrace.spark.source.offsets import Offset
from headrace.spark.source.options import StreamOptions
from headrace_testing.postgres import Database
from tests.laws.lake.chronicle import AWKWARD, Chronicle, Row, Transaction

NAME = "public.orders"


def row(number: int) -> Row:
    return (number, *[None] * (len(AWKWARD) - 1))


def made(path: str) -> Chronicle:
    """A row that was copied, and a mark with an insert, an update and a delete."""
    chronicle = Chronicle(path)
    chronicle.copy({NAME: [row(1), row(2)]}, 1000)
    chronicle.publish([Transaction(1010, 1, {NAME: [(row(3), 1), (row(1), -1), (row(11), 1), (row(2), -1)]})])
    return chronicle


@pytest.fixture
def chronicle(tmp_path: Path) -> Chronicle:
    return made(str(tmp_path / "lake"))


def batches(spark: Any, chronicle: Chronicle, checkpoint: Path, **options: Any) -> dict[int, list[Any]]:
    """Run a query until it has read all there is; the rows of each of its batches."""
    found: dict[int, list[Any]] = {}

    def keep(rows: Any, number: int) -> None:
        found[number] = rows.collect()

    frame = spark.readStream.format("headrace").options(lake=chronicle.path, table="orders", **options).load()
    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return found


def _held(rows: Iterator[Any]) -> Counter[int]:
    state: Counter[int] = Counter()
    for each in rows:
        state[each["id"]] += each["_diff"]
    return +state


@pytest.mark.spark
def test_each_change_comes_once_over_restarts_and_replays(
    chronicle: Chronicle, spark: Any, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    first = batches(spark, chronicle, checkpoint, **{"as": "changes", "max_marks": 1, "columns": "id"})
    assert [sorted((each["id"], each["_op"]) for each in rows) for rows in first.values()] == [
        [(3, "read"), (11, "read")]
    ]
    for step in range(3):
        chronicle.publish(
            [Transaction(1020 + 10 * step, 2, {NAME: [(row(11 + step), -1), (row(12 + step), 1)]})]
        )
    later = batches(spark, chronicle, checkpoint, **{"as": "changes", "max_marks": 1, "columns": "id"})
    limited = 3 if hasattr(DataSourceStreamReader, "getDefaultReadLimit") else 1  # from PySpark 4.2 on
    assert [{each["_op"] for each in rows} for rows in later.values()] == [{"update"}] * limited
    everything = [each for rows in {**first, **later}.values() for each in rows]
    assert _held(iter(everything)) == Counter([3, 14])
    # As after a kill between the sink's commit and Spark's own: the last batch is asked for again.
    last = max(later)
    for name in (str(last), f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    again = batches(spark, chronicle, checkpoint, **{"as": "changes", "max_marks": 1, "columns": "id"})
    assert again == {last: later[last]}
    assert batches(spark, chronicle, checkpoint, **{"as": "changes", "columns": "id"}) == {}


@pytest.mark.spark
def test_the_feed_has_the_columns_of_delta_and_errors_their_code(
    chronicle: Chronicle, spark: Any, tmp_path: Path
) -> None:
    feed = batches(spark, chronicle, tmp_path / "feed", **{"as": "feed", "after": 2})
    [rows] = feed.values()
    assert Counter((each["id"], each["_change_type"], each["_commit_version"]) for each in rows) == Counter(
        [(3, "insert", 3), (1, "update_preimage", 3), (11, "update_postimage", 3), (2, "delete", 3)]
    )
    assert len({each["_commit_timestamp"] for each in rows}) == 1
    other = made(str(tmp_path / "other"))
    with pytest.raises(Exception, match="STREAM_OTHER_LAKE"):
        batches(spark, other, tmp_path / "feed", **{"as": "feed", "after": 2})
    with pytest.raises(Exception, match="SPARK_OPTION_WAY"):
        batches(spark, chronicle, tmp_path / "none")
    with pytest.raises(Exception, match="SPARK_OPTION_WAY"):
        spark.read.format("headrace").options(
            lake=chronicle.path, table=NAME, **{"as": "feed"}
        ).load().collect()


@pytest.mark.spark
def test_a_mirror_of_a_server_is_streamed_by_its_own_keys(
    database: Database, spark: Any, tmp_path: Path
) -> None:
    """The run writes keys from its catalog, keys that change, and a TRUNCATE; the server is the oracle."""
    database.execute("CREATE TABLE orders (a int, b text, n int, PRIMARY KEY (b, a))")
    database.execute("INSERT INTO orders SELECT g, 'k' || g % 3, g FROM generate_series(1, 50) g")
    path = str(tmp_path / "lake")
    config = {"lake": {"path": path}, "source": {"main": {"url": database.url(), "tables": ["public.*"]}}}
    headrace.mirror(config, spark=spark, once=True)
    plan = plan_stream(StreamOptions(path, "orders", "upserts"))
    assert plan.key == ("b", "a")
    held = _applied({}, plan, plan.start)
    assert sorted(each[2] for each in held.values()) == list(range(1, 51))
    start = ChangeStream(plan).latest(plan.start)
    database.execute("UPDATE orders SET a = a + 100 WHERE a < 10")
    database.execute("DELETE FROM orders WHERE n % 7 = 0")
    database.execute("UPDATE orders SET n = -n WHERE a > 20")
    headrace.mirror(config, spark=spark, once=True)
    held = _applied(held, plan, start)
    assert sorted(held.values()) == sorted(database.execute("SELECT a, b, n FROM orders"))
    start = ChangeStream(plan).latest(start)
    database.execute("TRUNCATE orders")
    database.execute("INSERT INTO orders VALUES (1, 'new', 1)")
    headrace.mirror(config, spark=spark, once=True)
    assert list(_applied(held, plan, start).values()) == [(1, "new", 1)]


def _applied(held: dict[Any, Any], plan: StreamPlan, start: Offset) -> dict[Any, Any]:
    """The rows by their keys, once a batch of upserts up to the newest mark is applied."""
    stream, result = ChangeStream(plan), dict(held)
    for task in stream.tasks(start, stream.latest(start)):
        for each in (row for batch in read(plan, task) for row in batch.to_pylist()):
            key = each["a"], each["b"]
            result.pop(key, None)
            if each["_op"] == "upsert":
                result[key] = each["a"], each["b"], each["n"]
    return result


@pytest.mark.server
def test_a_look_at_a_quiet_lake_is_one_request(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made(bucket)
    stream = ChangeStream(plan_stream(StreamOptions(bucket, NAME, "changes", after="2")))
    end = stream.latest(stream.plan.start)
    assert stream.tasks(stream.plan.start, end)
    asked: list[str] = []
    application = vars(moto_server)["DomainDispatcherApplication"]
    serve = application.__call__

    def count(self: Any, environ: Any, start_response: Any) -> Any:
        asked.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        return serve(self, environ, start_response)

    monkeypatch.setattr(application, "__call__", count)
    assert stream.latest(end) == end
    assert len(asked) == 1, asked
