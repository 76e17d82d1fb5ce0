"""`readStream.format("headrace")` straight from PostgreSQL, beside our own receiver and beside COPY.

python -m bench.direct_stream [--transactions 10000] [--rows 100] [--snapshot 10000000] [--large 5000000]
                              [--commits 60]

backlog     raw and typed, to noop; the peers are the receiver alone, into the spool, and Debezium's engine
            without a sink (`peers.debezium`), both from the same log
commit      from COMMIT to the row in foreachBatch, paced, typed
snapshot    raw and typed, to noop; the peer is COPY ... TO STDOUT to nothing
memory      the peak of the query's own process on the driver: for the snapshot, for one large transaction,
            and while its batch is not done and the source goes on
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.peers.debezium import of_postgres
from bench.receiver import COLUMNS, VALUES, fill, ours
from headrace.sources.postgres.position import Lsn
from headrace.spark.session import SparkConfig, open_session
from headrace_testing.binaries import tool
from headrace_testing.figures import keep
from headrace_testing.memory import ReaderPeak
from headrace_testing.postgres import Database, postgres
from headrace_testing.postmaster import wait_for

MIB = 1 << 20
DEADLINE = 3600.0
WAYS = {"raw": {"tables": "public.t"}, "typed": {"table": "public.t"}}


@dataclass
class Query:
    """A query of the database's one table, with a state and a checkpoint of its own."""

    spark: Any
    database: Database
    way: str
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))

    def run(self) -> float:
        """Read until now; the seconds of its batches, without Spark's own start of the query."""
        query = self.start(lambda writer: writer.format("noop").trigger(availableNow=True))
        query.awaitTermination()
        return float(sum(each["durationMs"]["triggerExecution"] for each in query.recentProgress)) / 1000

    def start(self, sink: Any) -> Any:
        state = str(self.folder / "state")
        options = {"url": self.database.url(sslmode="disable"), "state": state, **WAYS[self.way]}
        frame = self.spark.readStream.format("headrace").options(**options).load()
        return sink(frame.writeStream.option("checkpointLocation", str(self.folder / "checkpoint"))).start()

    def drop(self) -> None:
        command = [sys.executable, "-m", "headrace.cli.main", "drop", "--yes", "--state"]
        subprocess.run([*command, str(self.folder / "state")], check=True, stdout=subprocess.DEVNULL)


def say(name: str, figure: str, beside: str = "") -> None:
    print(f"{name:44} {figure:>18} {beside}", flush=True)


@contextmanager
def table(server: Any) -> Iterator[Database]:
    with server.database() as database:
        database.execute(f"CREATE TABLE t ({COLUMNS})")
        database.execute("ALTER TABLE t REPLICA IDENTITY FULL")
        yield database


def backlog(spark: Any, database: Database, transactions: int, rows: int) -> None:
    queries = {way: Query(spark, database, way) for way in WAYS}
    for query in queries.values():
        query.run()
    database.execute("CREATE PUBLICATION p FOR TABLE t WITH (publish = 'insert')")
    [(begin,)] = database.execute("SELECT lsn::text FROM pg_create_logical_replication_slot('a', 'pgoutput')")
    with tempfile.TemporaryDirectory() as folder:
        engine = of_postgres(database, Path(folder))
        end = fill(database, transactions, rows)
        debezium = engine.read(transactions * rows).seconds if engine else None
    peer = ours(database, "a", Lsn.parse(begin), end, sslmode="disable")
    database.execute("SELECT pg_drop_replication_slot('a')")
    count = transactions * rows
    say("the receiver, into the spool", f"{count / peer.seconds / 1e6:.2f} M rows/s")
    if debezium:
        say("Debezium's engine, no sink", f"{count / debezium / 1e6:.2f} M rows/s")
    for way, query in queries.items():
        seconds = query.run()
        of_receiver = peer.seconds / seconds
        say(
            f"{way} backlog, to noop", f"{count / seconds / 1e6:.2f} M rows/s", f"{of_receiver:.2f} (bar 0.5)"
        )
        keep(**{f"{way}_of_receiver": of_receiver})
        if debezium:
            say(f"{way} backlog, of Debezium's", f"{debezium / seconds:.1f}", "(bar 5)")
            keep(**{f"{way}_of_debezium": debezium / seconds})
        query.drop()


def commits(spark: Any, database: Database, wanted: int) -> None:
    committed: dict[int, float] = {}
    found: dict[int, float] = {}

    def note(rows: Any, number: int) -> None:
        seen, now = [row["id"] for row in rows.select("id").collect()], time.perf_counter()
        found.update(dict.fromkeys(seen, now))

    query = Query(spark, database, "typed")
    query.run()
    running = query.start(lambda writer: writer.foreachBatch(note).trigger(processingTime="0 seconds"))
    with database.connect() as connection:
        for number in range(-1, -wanted - 1, -1):
            connection.execute("INSERT INTO t (id) VALUES (%s)", [number])
            committed[number] = time.perf_counter()
            time.sleep(0.25)  # the pace
    wait_for(lambda: committed.keys() <= found.keys(), "all rows are seen", deadline=DEADLINE)
    running.stop()
    query.drop()
    delays = [found[number] - at for number, at in committed.items()]
    p50 = statistics.median(delays[5:])
    say("commit to row, p50", f"{p50 * 1000:.0f} ms", "(bar 500)")
    keep(commit_to_row_p50=p50)


def snapshot(spark: Any, database: Database, rows: int) -> None:
    database.execute(f"INSERT INTO t SELECT {VALUES} FROM generate_series(1, {rows}) i")
    database.execute("VACUUM ANALYZE t")
    begun = time.perf_counter()
    command = [str(tool("psql")), database.url(), "-qc", "COPY t TO STDOUT"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    peer = time.perf_counter() - begun
    say("COPY to nothing", f"{rows / peer / 1e6:.2f} M rows/s")
    for way in WAYS:
        query = Query(spark, database, way)
        with ReaderPeak() as peak:
            seconds = query.run()
        say(f"{way} snapshot", f"{rows / seconds / 1e6:.2f} M rows/s", f"{peer / seconds:.2f} (bar 0.5)")
        say(f"{way} snapshot, the reader's process", f"{peak.bytes / MIB:.0f} MiB", "(bar 512)")
        keep(**{f"{way}_snapshot_of_copy": peer / seconds, f"{way}_snapshot_mib": peak.bytes / MIB})
        query.drop()
    database.execute("TRUNCATE t")


def large(spark: Any, database: Database, rows: int) -> None:
    """One transaction; then another while the batch of a query stands still."""
    for way in WAYS:
        query = Query(spark, database, way)
        query.run()
        database.execute(f"INSERT INTO t SELECT {VALUES} FROM generate_series(1, {rows}) i")
        with ReaderPeak() as peak:
            query.run()
        say(f"{way} transaction of {rows:,} rows, the reader", f"{peak.bytes / MIB:.0f} MiB", "(bar 512)")
        keep(**{f"{way}_large_mib": peak.bytes / MIB})
        query.drop()
        database.execute("TRUNCATE t")
    query, over, stands = Query(spark, database, "typed"), threading.Event(), threading.Event()
    counts: list[int] = []

    def stand(batch: Any, number: int) -> None:
        counts.append(batch.count())
        if counts[-1]:
            stands.set()
            over.wait(DEADLINE)

    query.run()
    running = query.start(lambda writer: writer.foreachBatch(stand).trigger(processingTime="0 seconds"))
    database.execute("INSERT INTO t (id) VALUES (0)")
    wait_for(stands.is_set, "the batch stands still", deadline=DEADLINE)
    with ReaderPeak() as peak:
        database.execute(f"INSERT INTO t SELECT {VALUES} FROM generate_series(1, {rows}) i")
        [(end,)] = database.execute("SELECT pg_current_wal_lsn()::text")
        received = "SELECT FROM pg_stat_replication WHERE write_lsn >= %s OR state <> 'streaming'"
        with suppress(TimeoutError):  # a full spool leaves the rest at the source
            wait_for(lambda: bool(database.execute(received, [end])), "it is received", deadline=120)
        over.set()
        wait_for(lambda: sum(counts) > rows, "it goes on", deadline=DEADLINE)
    running.stop()
    query.drop()
    say("stalled query, the reader", f"{peak.bytes / MIB:.0f} MiB", "(bar 512)")
    keep(stalled_mib=peak.bytes / MIB)


def main() -> int:
    """Measures and prints; judges nothing, since a machine that others use decides the ratios too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name, default in (
        ("transactions", 10_000),
        ("rows", 100),
        ("commits", 60),
        ("snapshot", 10_000_000),
        ("large", 5_000_000),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    chosen = parser.parse_args()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with (
        postgres(settings={"max_wal_size": "8GB"}) as server,
        open_session(SparkConfig(master="local[2]", conf={"spark.ui.enabled": "false"})) as session,
    ):
        spark = session.spark
        with table(server) as database:
            backlog(spark, database, chosen.transactions, chosen.rows)
        with table(server) as database:
            commits(spark, database, chosen.commits)
        with table(server) as database:
            snapshot(spark, database, chosen.snapshot)
            large(spark, database, chosen.large)
    return 0


if __name__ == "__main__":
    sys.exit(main())
