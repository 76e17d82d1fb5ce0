"""Speed of a table's copy into the lake, beside COPY to nowhere and beside Spark's own JDBC reader.

    python bench/snapshot.py [--rows N] [--repeat N]

All read one table over TCP from one server, in turns. `psql` runs one COPY to /dev/null: that is as much as
the server can send. Spark JDBC reads in as many partitions as there are cores and writes Parquet. It needs
its driver's jar (JDBC_JAR, or where Debian's libpostgresql-jdbc-java puts it); without one the benchmark
leaves it out, and says so. Ours is `mirror(once=True)` into a new lake, in a Spark that is up and warm.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import headrace
from headrace.spark.session import RunningSpark, SparkConfig, open_session
from headrace_testing.binaries import tool
from headrace_testing.figures import keep
from headrace_testing.postgres import Database, postgres

TABLE = "t (id bigint PRIMARY KEY, a integer, b text, c text, d numeric(12,2), e timestamptz, f boolean)"
VALUES = "i, i % 1000, 'text ' || i, md5(i::text), i / 7.0, now(), i % 2 = 0"
FIGURES = {"psql COPY to /dev/null": "copy", "headrace": "itself", "Spark JDBC to Parquet": "jdbc"}
JAR = Path(os.environ.get("JDBC_JAR", "/usr/share/java/postgresql.jar"))


def copied(database: Database, folder: Path, session: RunningSpark) -> None:
    subprocess.run(
        [str(tool("psql")), "-qd", database.url(), "-c", "\\copy t to /dev/null"], check=True, timeout=600
    )


def mirrored(database: Database, folder: Path, session: RunningSpark) -> None:
    source = {"url": database.url(), "tables": ["public.t"]}
    config = {"lake": {"path": str(folder / "lake")}, "source": {"main": source}}
    headrace.mirror(config, spark=session.spark, once=True)


def through_jdbc(database: Database, folder: Path, session: RunningSpark) -> None:
    [(rows,)] = database.execute("SELECT max(id) FROM t")
    reader = (
        session.spark.read.format("jdbc").option("dbtable", "t").option("driver", "org.postgresql.Driver")
    )
    reader = reader.option("url", f"jdbc:postgresql://127.0.0.1:{database.server.port}/{database.name}")
    reader = reader.option("user", "postgres").option("fetchsize", 10_000)
    parts = {"partitionColumn": "id", "lowerBound": 1, "upperBound": rows, "numPartitions": os.cpu_count()}
    for key, value in parts.items():
        reader = reader.option(key, str(value))
    reader.load().write.parquet(str(folder / "jdbc"))


def measured(
    run: Callable[[Database, Path, RunningSpark], None], database: Database, session: RunningSpark
) -> float:
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        run(database, Path(folder), session)
        return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description="snapshot beside COPY and Spark JDBC")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    peers = {"psql COPY to /dev/null": copied, "headrace": mirrored}
    conf = {}
    if JAR.exists():
        peers["Spark JDBC to Parquet"] = through_jdbc
        conf["spark.jars"] = str(JAR)
    else:
        print("Spark JDBC is left out: no driver jar; install libpostgresql-jdbc-java or set JDBC_JAR")
    with ExitStack() as stack:
        session = stack.enter_context(open_session(SparkConfig(master="local[2]", conf=conf)))
        database = stack.enter_context(stack.enter_context(postgres()).database("source"))
        database.execute(f"CREATE TABLE {TABLE}")
        database.execute(f"INSERT INTO t SELECT {VALUES} FROM generate_series(1, {args.rows}) i")
        database.execute("VACUUM ANALYZE t")
        mirrored_once = measured(mirrored, database, session)  # warms caches and workers
        seconds: dict[str, list[float]] = {name: [] for name in peers}
        for _ in range(args.repeat):
            for name, run in peers.items():
                seconds[name].append(measured(run, database, session))
    print(f"{args.rows:,} rows of 7 columns, median of {args.repeat} (first of ours: {mirrored_once:.1f} s)")
    ours = statistics.median(seconds["headrace"])
    for name, values in seconds.items():
        middle = statistics.median(values)
        print(f"  {name:24} {args.rows / middle:>10,.0f} rows/s   {middle / ours:.2f} times our seconds")
        keep(**{f"of_{FIGURES[name]}": middle / ours})


if __name__ == "__main__":
    main()
