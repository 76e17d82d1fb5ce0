"""Speed of a table's copy into the lake, beside COPY to nowhere and beside Spark's own JDBC reader.

    python -m bench.snapshot [--rows N] [--repeat N]

All read one table over TCP from one server, in turns. `psql` runs one binary COPY to /dev/null: that is as
much as one connection of the server can send. Spark JDBC reads in as many partitions as there are cores and
writes Parquet. It needs its driver's jar (JDBC_JAR, or where Debian's libpostgresql-jdbc-java puts it);
without one the benchmark leaves it out, and says so. Ours is `mirror(once=True)` into a new lake, in a
Spark that is up and warm.

Each also reads a table of a tenth of the rows: the difference between the two is its rate without its start.
The processors' time is that of the larger table: of the server, and of our processes by role.
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
from dataclasses import dataclass
from pathlib import Path

import headrace
from bench.receiver import ended_children
from headrace.spark.session import RunningSpark, SparkConfig, open_session
from headrace_testing.binaries import tool
from headrace_testing.costs import ROLES, own_processor
from headrace_testing.figures import keep
from headrace_testing.postgres import Database, postgres

COLUMNS = (
    "id bigint PRIMARY KEY, a integer, b text, c text, d numeric(12,2), e timestamptz, f boolean, g smallint"
)
VALUES = "i, i % 1000, 'text ' || i, md5(i::text), i / 7.0, now(), i % 2 = 0, i % 30000"
TABLES = ("part", "whole")
NAMES = {
    "copy": "psql, binary COPY to /dev/null",
    "itself": "headrace",
    "jdbc": "Spark JDBC to Parquet",
}
SHOWN = {"copy": ["server"], "itself": ["server", *ROLES], "jdbc": ["server", "jvm"]}
JAR = Path(os.environ.get("JDBC_JAR", "/usr/share/java/postgresql.jar"))


def copied(database: Database, table: str, folder: Path, session: RunningSpark) -> None:
    copy = f"\\copy {table} to /dev/null (format binary)"
    subprocess.run([str(tool("psql")), "-qd", database.url(), "-c", copy], check=True, timeout=600)


def mirrored(database: Database, table: str, folder: Path, session: RunningSpark) -> None:
    source = {"url": database.url(), "tables": [f"public.{table}"]}
    config = {"lake": {"path": str(folder / "lake")}, "source": {"main": source}}
    headrace.mirror(config, spark=session.spark, once=True)


def through_jdbc(database: Database, table: str, folder: Path, session: RunningSpark) -> None:
    [(rows,)] = database.execute(f"SELECT max(id) FROM {table}")
    reader = (
        session.spark.read.format("jdbc").option("dbtable", table).option("driver", "org.postgresql.Driver")
    )
    reader = reader.option("url", f"jdbc:postgresql://127.0.0.1:{database.server.port}/{database.name}")
    reader = reader.option("user", "postgres").option("fetchsize", 10_000)
    parts = {"partitionColumn": "id", "lowerBound": 1, "upperBound": rows, "numPartitions": os.cpu_count()}
    for key, value in parts.items():
        reader = reader.option(key, str(value))
    reader.load().write.parquet(str(folder / "jdbc"))


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds: by the clock, and of the processors by process."""

    seconds: float
    used: dict[str, float]


def measured(
    run: Callable[[Database, str, Path, RunningSpark], None],
    database: Database,
    table: str,
    session: RunningSpark,
) -> Cost:
    with tempfile.TemporaryDirectory() as folder:
        before, begun = {"server": ended_children(database), **own_processor()}, time.perf_counter()
        run(database, table, Path(folder), session)
        seconds, now = time.perf_counter() - begun, {"server": ended_children(database), **own_processor()}
        return Cost(seconds, {name: now[name] - before[name] for name in now})


def main() -> None:
    parser = argparse.ArgumentParser(description="snapshot beside COPY and Spark JDBC")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    peers = {"copy": copied, "itself": mirrored}
    conf = {}
    if JAR.exists():
        peers["jdbc"] = through_jdbc
        conf["spark.jars"] = str(JAR)
    else:
        print("Spark JDBC is left out: no driver jar; install libpostgresql-jdbc-java or set JDBC_JAR")
    sizes = dict(zip(TABLES, (args.rows // 10, args.rows), strict=True))
    with ExitStack() as stack:
        session = stack.enter_context(open_session(SparkConfig(master="local[2]", conf=conf)))
        database = stack.enter_context(stack.enter_context(postgres()).database("source"))
        for table, rows in sizes.items():
            database.execute(f"CREATE TABLE {table} ({COLUMNS})")
            database.execute(f"INSERT INTO {table} SELECT {VALUES} FROM generate_series(1, {rows}) i")
            database.execute(f"VACUUM ANALYZE {table}")
        first = measured(mirrored, database, TABLES[0], session).seconds  # warms caches and workers
        costs: dict[tuple[str, str], list[Cost]] = {}
        for _ in range(args.repeat):
            for name, run in peers.items():
                for table in TABLES:
                    costs.setdefault((name, table), []).append(measured(run, database, table, session))
    print(f"{args.rows:,} rows of 8 columns, median of {args.repeat} (first of ours: {first:.1f} s)")
    show(args.rows, list(peers), costs)


def show(rows: int, peers: list[str], costs: dict[tuple[str, str], list[Cost]]) -> None:
    """Print the rates and the processors' time of each, and keep them."""
    middle = {case: statistics.median(cost.seconds for cost in found) for case, found in costs.items()}
    rates = {name: (rows - rows // 10) / (middle[name, "whole"] - middle[name, "part"]) for name in peers}
    for name, rate in rates.items():
        whole = middle[name, "whole"]
        print(
            f"  {NAMES[name]:31} {whole:6.1f} s, {whole / middle['itself', 'whole']:.2f} times ours;"
            f" without its start {rate:>10,.0f} rows/s, ours is {rates['itself'] / rate:.2f} times that"
        )
        keep(**{f"of_{name}": whole / middle["itself", "whole"], f"rate_of_{name}": rates["itself"] / rate})
        found = costs[name, "whole"]
        millions = len(found) * rows / 1e6
        cpu = {process: sum(cost.used[process] for cost in found) / millions for process in SHOWN[name]}
        each = ", ".join(f"{process} {spent:.2f}" for process, spent in cpu.items())
        print(f"  {'':31} CPU seconds a million rows: {each}")
        keep(**{f"cpu_{process}_{name}": spent for process, spent in cpu.items()})


if __name__ == "__main__":
    main()
