"""Each way of `format("headrace")` on each version of PySpark that headrace takes, classic and on Connect.

PySpark alone is another one there, in a folder that comes first on the path; all else is this environment's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

import headrace
from headrace_testing.jars import locate_pyspark
from headrace_testing.postgres import Database
from tests.integration.spark.source.direct import held
from tests.laws.lake.chronicle import AWKWARD, Chronicle, Row, Transaction

pytestmark = [pytest.mark.full, pytest.mark.spark]

OLDER = ["4.0.5", "4.1.4", "4.2.1"]  # the newest of each line
_ROOT = Path(__file__).resolve().parents[3]
_CASES = {
    "tests/integration/spark/test_jobs.py": ["-k", "local or connect"],
    "tests/integration/spark/source": ["-m", "spark and not full"],
}
_CLIENT = """
import sys
import pyspark
from pyspark.sql import SparkSession

way, lake, url, folder = sys.argv[1:]
builder = SparkSession.builder.config("spark.ui.enabled", "false")
spark = (builder.remote("local[2]") if way == "connect" else builder.master("local[2]")).getOrCreate()
frame = spark.read.format("headrace").options(lake=lake, table="orders", epoch=2).load()
print(pyspark.__version__, "connect" in type(spark).__module__, sorted(each.id for each in frame.collect()))
streams = {
    "changes": {"lake": lake, "table": "orders", "as": "changes"},
    "raw": {"url": url, "tables": "public.*", "state": f"{folder}/raw-state"},
    "typed": {"url": url, "table": "public.t", "state": f"{folder}/typed-state"},
}
for name, options in streams.items():
    writer = spark.readStream.format("headrace").options(**options).load().writeStream.format("parquet")
    writer = writer.option("path", f"{folder}/{name}").option("checkpointLocation", f"{folder}/{name}-log")
    assert writer.trigger(availableNow=True).start().awaitTermination(400)
spark.stop()
"""


def environment(version: str) -> Mapping[str, str]:
    """The environment of a process with this PySpark."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    path = {} if version == pyspark.__version__ else {"PYTHONPATH": str(locate_pyspark(version))}
    return {**own, **path, "PYSPARK_PYTHON": sys.executable}


def row(number: int) -> Row:
    return (number, *[None] * (len(AWKWARD) - 1))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ["classic", "connect"])
@pytest.mark.parametrize("version", [*OLDER, pyspark.__version__])
def test_a_table_a_stream_of_changes_and_streams_of_a_database(
    version: str, way: str, database: Database, tmp_path: Path
) -> None:
    chronicle = Chronicle(str(tmp_path / "lake"))
    chronicle.copy({"public.orders": [row(1), row(2)]}, 1000)
    chronicle.publish([Transaction(1010, 1, {"public.orders": [(row(2), -1), (row(3), 1)]})])
    database.execute("CREATE TABLE t (id int PRIMARY KEY, note text)")
    database.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    database.execute("INSERT INTO t SELECT g, 'n' || g FROM generate_series(1, 10) g")
    done = subprocess.run(
        [sys.executable, "-c", _CLIENT, way, chronicle.path, database.url(), str(tmp_path)],
        env={**environment(version), "SPARK_TESTING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [f"{version} {way == 'connect'} [1, 2]"], done.stderr[-3000:]
    assert done.returncode == 0, done.stderr[-3000:]
    found: Counter[int] = Counter()
    for each in pq.read_table(tmp_path / "changes").select(["id", "__diff"]).to_pylist():
        found[each["id"]] += each["__diff"]
    assert sorted((+found).elements()) == headrace.Lake(chronicle.path).at().arrow("orders")["id"].to_pylist()
    raw = [(each["oid"], tuple(each["row_data"])) for each in pq.read_table(tmp_path / "raw").to_pylist()]
    assert Counter(raw) == held(database, "t")
    typed = [(each["id"], each["note"]) for each in pq.read_table(tmp_path / "typed").to_pylist()]
    assert sorted(typed) == sorted(database.execute("SELECT id, note FROM t"))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", OLDER)
def test_jobs_and_the_data_source_behave_the_same_on_older_versions(version: str) -> None:
    for cases, chosen in _CASES.items():
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, str(_ROOT / cases)],
            env=environment(version),
            cwd=_ROOT,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-6000:]
