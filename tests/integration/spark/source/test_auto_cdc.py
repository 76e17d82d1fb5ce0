"""AUTO CDC of declarative pipelines over our streams: Iceberg's tables follow a source's.

`examples/auto-cdc/` runs as it stands there. Beside it run flows whose views bring later changes before
earlier ones, and some of them twice; and between the runs the last batch of each flow is forgotten, as after
a kill.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pyspark
import pytest

import headrace
from headrace_testing.jars import ICEBERG, locate
from headrace_testing.postgres import Database
from tests.meta.tracked import ROOT

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.timeout(2400)]

_DEADLINE = 900.0
_ROUNDS = (
    "UPDATE orders SET state = 'paid', n = n + 1 WHERE id % 2 = 0; DELETE FROM orders WHERE id % 5 = 0",
    "UPDATE orders SET id = id + 100 WHERE id < 4; INSERT INTO orders VALUES (5, 'again', 5)",
    "DELETE FROM orders WHERE id = 101; INSERT INTO orders VALUES (10, 'again', NULL); "
    "UPDATE orders SET n = 7 WHERE id = 7;UPDATE orders SET n = 77 WHERE id = 7",
)
# The late half comes whole with the first mark of the early half, whose marks then bring it once more.
_MIXED = """
def mixed(form: str) -> DataFrame:
    late, early = (
        spark.readStream.format("headrace").options(lake=LAKE, table="public.orders", after=after, **limit)
        .option("as", form).load()
        for after, limit in ((LATE, {}), (EARLY, {"max_marks": 1}))
    )
    return late.unionAll(early)

@dp.temporary_view
def mixed_upserts() -> DataFrame:
    return mixed("upserts")

@dp.temporary_view
def mixed_changes() -> DataFrame:
    return mixed("changes").selectExpr("*", "struct(_sequence, _diff) AS _at")
"""


def iceberg(folder: Path) -> dict[str, str]:
    """The settings of a Spark that has tables of Iceberg in the folder.

    On 26 November 2026 Iceberg's newest jar is for Spark 4.1, and Spark 4.3 refuses its catalog. So its
    tables stand behind a catalog of ours, which has no views and is compiled here.
    """
    jar = locate(ICEBERG)
    spark = Path(pyspark.__file__).parent / "jars" / "*"
    source = Path(__file__).with_name("IcebergTables.java")
    command = ["javac", "-nowarn", "-cp", f"{jar}:{spark}", "-d", str(folder / "classes"), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    made = shutil.make_archive(str(folder / "tables"), "zip", folder / "classes")
    (folder / "house" / "shop").mkdir(parents=True)
    return {
        "spark.jars": f"{jar},{shutil.move(made, folder / 'tables.jar')}",
        "spark.sql.catalog.house": "IcebergTables",
        "spark.sql.catalog.house.warehouse": str(folder / "house"),
    }


def pipeline(folder: Path, conf: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """A run of the pipeline in the folder."""
    # Spark waits ten seconds for the process of a reader: on a busy machine they start one by one.
    own = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.pipelines.execution.maxConcurrentFlows": "1",
    }
    settings = {**conf, **own}
    lines = "".join(f"{name} {value}\n" for name, value in settings.items())
    (folder / "spark-defaults.conf").write_text(lines, encoding="utf-8")
    return subprocess.run(
        [Path(sys.executable).with_name("spark-pipelines"), "run", "--remote", "local[2]"],
        cwd=folder,
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(folder),
            "SPARK_TESTING": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=_DEADLINE,
    )


def printed(done: subprocess.CompletedProcess[str]) -> str:
    """The text that a run printed, without the JVM's frames."""
    lines = re.sub(r"(?m)^\s+at .*\n", "", done.stdout + done.stderr)
    return lines[-6000:]


def forget_last_batches(folder: Path) -> int:
    """Take away Spark's note that the last batch of each flow was written."""
    logs = list((folder / "storage").rglob("commits"))
    for log in logs:
        last = max((path for path in log.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        last.unlink()
        (log / f".{last.name}.crc").unlink(missing_ok=True)
    return len(logs)


_READ = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
print(json.dumps([list(map(list, spark.sql(query).collect())) for query in sys.argv[2:]]))
"""


def read(conf: Mapping[str, str], *queries: str) -> list[set[tuple[Any, ...]]]:
    """Read the rows of each query, in a Spark that has Iceberg."""
    done = subprocess.run(
        [sys.executable, "-c", _READ, json.dumps(conf), *queries],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=_DEADLINE,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [set(map(tuple, rows)) for rows in json.loads(done.stdout.splitlines()[-1])]


def versions(lake: headrace.Lake, first: int | None) -> set[tuple[Any, ...]]:
    """Each row that ever was since an epoch, with the places where it came and went, from our own history."""
    history = lake.at().history_polars("orders").select("id", "state", "n", "_time", "_ordinal", "_diff")
    parts = [history.collect()]
    if first is not None:
        cut = lake.at(epoch=first)
        time = pl.lit(cut.mark.time, pl.Int64)
        own = {"_time": time, "_ordinal": pl.lit(0, pl.Int64), "_diff": pl.lit(1, pl.Int64)}
        contents = cut.polars("orders").select("id", "state", "n").with_columns(**own).collect()
        parts = [contents, parts[0].filter(pl.col("_time") > cut.mark.time)]
    rows = sorted(pl.concat(parts).rows(), key=lambda row: (row[0], *row[3:]))
    found = set()
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        if row[-1] > 0:
            ends = following is not None and following[0] == row[0]
            found.add((*row[:3], _sequence(row), _sequence(following) if ends and following else None))
    return found


def _sequence(row: tuple[Any, ...]) -> str:
    return str((row[3] << 63) + row[4])


def flows_apart(folder: Path, early: int, late: int) -> None:
    """Add the flows of the example once more, from views that mix the order of batches."""
    example = (folder / "transformations" / "orders.py").read_text(encoding="utf-8")
    begin, flows = example.index("@dp"), example.index("dp.create_streaming_table")
    for name, other in (("orders", "mixed"), ("order_", "mixed_")):
        example = example[:flows] + example[flows:].replace(f'"{name}', f'"{other}')
    text = f"{example[:begin]}\nEARLY, LATE = {early}, {late}\n{_MIXED}\n{example[flows:]}"
    (folder / "transformations" / "mixed.py").write_text(text, encoding="utf-8")


class Shop:
    """The example in a folder of its own, and a mirror of the table that it names."""

    def __init__(self, folder: Path, database: Database, spark: Any) -> None:
        self.folder, self._database, self._spark = folder, database, spark
        shutil.copytree(ROOT / "examples" / "auto-cdc", folder)
        spec = folder / "spark-pipeline.yml"
        text = spec.read_text(encoding="utf-8")
        text = text.replace("/srv/orders-pipeline", f"{folder}/storage").replace(
            "/srv/lake", f"{folder}/lake"
        )
        spec.write_text(text, encoding="utf-8")

    @property
    def lake(self) -> headrace.Lake:
        return headrace.Lake(self.folder / "lake")

    def mirror(self, statements: str) -> int:
        """Change the source; the epoch of the mark that holds it."""
        for statement in statements.split("; "):
            self._database.execute(statement)
        source = {"url": self._database.url(), "tables": ["public.orders"]}
        config = {"lake": {"path": str(self.folder / "lake")}, "source": {"main": source}}
        headrace.mirror(config, spark=self._spark, once=True)
        return self.lake.at().epoch


@pytest.fixture
def shop(database: Database, spark: Any, tmp_path: Path) -> Shop:
    return Shop(tmp_path / "example", database, spark)


def test_tables_of_iceberg_follow_in_whatever_order_batches_come(shop: Shop, database: Database) -> None:
    conf = iceberg(shop.folder)
    early = shop.mirror("CREATE TABLE orders (id int PRIMARY KEY, state text, n int)")
    first = shop.mirror("INSERT INTO orders SELECT g, 'new', g FROM generate_series(1, 20) g")
    done = pipeline(shop.folder, conf)
    assert done.returncode == 0, printed(done)
    marks = [shop.mirror(statements) for statements in _ROUNDS]
    flows_apart(shop.folder, early, marks[0])
    assert forget_last_batches(shop.folder) == 2
    done = pipeline(shop.folder, conf)
    assert done.returncode == 0, printed(done)
    history = (
        "SELECT id, state, n, string(__START_AT._sequence), string(__END_AT._sequence) FROM house.shop.{}"
    )
    now, mixed, ever, mixed_ever = read(
        conf,
        "SELECT id, state, n FROM house.shop.orders",
        "SELECT id, state, n FROM house.shop.mixed",
        history.format("orders_history"),
        history.format("mixed_history"),
    )
    assert now == mixed == set(database.execute("SELECT id, state, n FROM orders"))
    assert ever == versions(shop.lake, first)
    assert mixed_ever == versions(shop.lake, None)
