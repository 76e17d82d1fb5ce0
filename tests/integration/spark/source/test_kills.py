"""A killed query goes on with every change exactly once; history that ran out under one is an error."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

import headrace
from bench.data_source import TABLE, BenchLake
from tests.integration.lake.household import Household
from tests.laws.lake.chronicle import AWKWARD, Chronicle, Row, Transaction

pytestmark = pytest.mark.spark

_NAME = "public.orders"
_MARKS = 5
_DEADLINE = 300.0


def row(number: int) -> Row:
    return (number, *[None] * (len(AWKWARD) - 1))


@pytest.fixture
def chronicle(tmp_path: Path) -> Chronicle:
    """A copied row, and marks of three changes each."""
    made = Chronicle(str(tmp_path / "lake"))
    made.copy({_NAME: [row(0)]}, 1000)
    for step in range(_MARKS):
        changes = [(row(step), -1), (row(step + 1), 1), (row(100 + step), 1)]
        made.publish([Transaction(1010 + 10 * step, step, {_NAME: changes})])
    return made


def query(spark: Any, lake: str, table: str, checkpoint: Path, write: Any) -> Any:
    """A query of the changes since the copy, a mark in each batch."""
    options = {"lake": lake, "table": table, "as": "changes", "after": 2, "max_marks": 1}
    frame = spark.readStream.format("headrace").options(**options).load()
    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def expected(lake: str) -> Counter[tuple[Any, ...]]:
    rows = headrace.Lake(lake).changes_arrow(_NAME, after=2)
    time, diff = rows.column_names[-2:]
    return Counter(zip(*(rows[name].to_pylist() for name in ("id", time, diff)), strict=True))


def test_a_reader_that_is_killed_is_started_again_by_the_next_query(
    chronicle: Chronicle, spark: Any, tmp_path: Path
) -> None:
    """Spark's process for a query's reader, on the driver, with what it has opened and looked up."""
    found: dict[int, list[Any]] = {}
    killed: list[int] = []

    def write(rows: Any, number: int) -> None:
        found[number] = rows.collect()
        if not killed:
            readers = [each for each in psutil.Process().children(recursive=True) if _reads(each)]
            killed.extend(each.pid for each in readers)
            for each in readers:
                each.kill()

    with suppress(StreamingQueryException):  # PySpark 4.0 and 4.1 had but one batch, which is whole
        query(spark, chronicle.path, _NAME, tmp_path / "checkpoint", write).awaitTermination()
    assert len(killed) == 1
    assert len(found) == 1
    query(spark, chronicle.path, _NAME, tmp_path / "checkpoint", write).awaitTermination()
    rows = [each for batch in found.values() for each in batch]
    assert Counter((each["id"], each["_time"], each["__diff"]) for each in rows) == expected(chronicle.path)


def _reads(process: psutil.Process) -> bool:
    try:
        return any("python_streaming_source_runner" in word for word in process.cmdline())
    except psutil.Error:
        return False


def test_history_that_runs_out_under_a_query_is_an_error_and_no_gap(
    spark: Any, tmp_path: Path, seed: int
) -> None:
    household = Household(tmp_path / "lake", seed)
    household.live(6, ago=timedelta(days=9), every=timedelta(days=1))
    household.live(2)
    found: list[int] = []

    def write(rows: Any, number: int) -> None:
        found.append(rows.count())
        for _ in range(2):  # announces that history goes, and deletes it a grace time later
            household.maintained(retention="2d", marks="1d", grace="0s")

    with pytest.raises(Exception, match=r"LAKE_HISTORY_BROKEN(?s:.)*begin there: after="):
        query(spark, str(household.path), "public.a", tmp_path / "checkpoint", write).awaitTermination()
    assert len(found) == 1


# A process of its own, since it is killed: after so many batches, at a point between Spark's two logs.
_DRIVER = """
import os, signal, sys, threading, time
from pathlib import Path
from headrace.spark.session import SparkConfig, open_session
from tests.integration.spark.source.test_kills import query

lake, folder, point = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
first = not (folder / "killed").exists()

def kill():
    (folder / "killed").touch()
    os.kill(os.getpid(), signal.SIGKILL)

def wait():
    while not (folder / "checkpoint" / "commits" / "1").exists():
        time.sleep(0.001)
    kill()

def write(rows, number):
    if point == "planned" and number == 1 and first:
        kill()
    rows.write.mode("overwrite").parquet(str(folder / "out" / str(number)))
    if point == "read" and number == 1 and first:
        kill()

if point == "committed" and first:
    threading.Thread(target=wait, daemon=True).start()
with open_session(SparkConfig(master="local[2]", conf={"spark.ui.enabled": "false"})) as session:
    query(session.spark, lake, "public.orders", folder / "checkpoint", write).awaitTermination()
"""


def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *words],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=_DEADLINE,
    )


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", ["planned", "read", "committed"])
def test_a_driver_that_is_killed_goes_on_with_each_change_once(
    chronicle: Chronicle, tmp_path: Path, point: str
) -> None:
    words = chronicle.path, str(tmp_path), point
    assert run(_DRIVER, *words).returncode == -9
    again = run(_DRIVER, *words)
    assert again.returncode == 0, again.stderr[-3000:]
    assert written(tmp_path / "out", "id", "_time", "__diff") == expected(chronicle.path)
    assert len(list((tmp_path / "out").iterdir())) == _MARKS


def written(folder: Path, *names: str) -> Counter[tuple[Any, ...]]:
    """The rows of all batches that the driver wrote."""
    rows = pa.concat_tables([pq.read_table(each, columns=list(names)) for each in sorted(folder.iterdir())])
    return Counter(zip(*(rows[name].to_pylist() for name in names), strict=True))


# On its first rows a worker kills the others beside it, one of which still reads for it.
_CLUSTER = """
import os, sys
from pathlib import Path
import psutil
from headrace.spark.session import SparkConfig, open_session
from tests.integration.spark.source.test_kills import query

lake, folder = sys.argv[1], Path(sys.argv[2])

def pass_on(batches):
    for batch in batches:
        if not (folder / "killed").exists():
            (folder / "killed").touch()
            workers = psutil.Process(os.getppid()).children()
            for each in sorted(workers, key=lambda worker: worker.pid == os.getpid()):
                each.kill()  # the reader, which may be idle by now, and this one
        yield batch

def write(rows, number):
    narrow = rows.select("n0", "_time")
    through = narrow.mapInArrow(pass_on, narrow.schema)
    through.write.mode("overwrite").parquet(str(folder / "out" / str(number)))

conf = {"spark.ui.enabled": "false", "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"]}
with open_session(SparkConfig(master="local-cluster[2,1,1024]", conf=conf)) as session:
    query(session.spark, lake, "public.orders", folder / "checkpoint", write).awaitTermination()
    tracker = session.spark.sparkContext.statusTracker()
    stages = filter(None, map(tracker.getStageInfo, range(100)))
    print(sum(each.numFailedTasks for each in stages))
"""


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_worker_of_a_cluster_that_is_killed_reads_again(tmp_path: Path) -> None:
    made = BenchLake(str(tmp_path / "lake"), 1_200_000)
    done = run(_CLUSTER, made.store.url, str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.splitlines()[-1]) > 0
    rows = headrace.Lake(made.store.url).changes_arrow(str(TABLE), after=2)
    there = Counter(zip(rows["n0"].to_pylist(), rows["_time"].to_pylist(), strict=True))
    assert written(tmp_path / "out", "n0", "_time") == there
