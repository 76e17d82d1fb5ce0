"""Rate at which the stream reaches the spool, beside `pg_recvlogical` to /dev/null: one server, one run, TCP.

    python bench/receiver.py [--transactions N] [--rows N] [--repeat N]

Every run reads the same log from a slot of its own, made before the log was written; they take turns. The
receiver reads it over TLS, too, which the peer as it is packaged can't.
Time is from the first byte asked for to the last commit there; what a process needs to start is shown
apart. On a busy machine, compare the CPU seconds of client and walsender: they bound the rate.
The receiver does more than its peer: it finds the transactions, makes checksums, writes to disk.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from headrace.core.records import to_record
from headrace.ingest.supervisor import Feed, Receiver
from headrace.sources.postgres.position import Lsn, PostgresTimeline
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import identify
from headrace.sources.postgres.upstream import PostgresUpstream
from headrace.spool.reader import SpoolReader
from headrace_testing import tls
from headrace_testing.binaries import tool
from headrace_testing.figures import keep
from headrace_testing.postgres import Database, postgres
from headrace_testing.postmaster import wait_for

COLUMNS = (
    "id bigint, a integer, b text, c text, d numeric(12,2), e timestamptz, f boolean, g double precision"
)
VALUES = "i, i % 1000, 'text ' || i, md5(i::text), i / 7.0, now(), i % 2 = 0, i / 3.0"


@dataclass(frozen=True)
class Run:
    """One measured reading of the log."""

    start: float
    seconds: float
    cpu: float  # of the client
    server: float  # CPU of the walsender


def fill(database: Database, transactions: int, rows: int) -> Lsn:
    """Write the log; where it ends."""
    statement = f"INSERT INTO t SELECT {VALUES} FROM generate_series(1, {rows}) i"
    with database.connect() as connection:
        for _ in range(transactions):
            connection.execute(statement)
        row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        connection.execute("INSERT INTO t (id) VALUES (0)")  # so that the log goes on behind the end
    assert row is not None
    return Lsn.parse(row[0])


def ended_children(database: Database) -> float:
    """CPU seconds of the server's processes that have ended."""
    pid = int((database.server.postmaster.data / "postmaster.pid").read_text().split()[0])
    times = psutil.Process(pid).cpu_times()
    return float(times.children_user + times.children_system)


def walsender_cpu(database: Database, before: float) -> float:
    idle = "SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_stat_replication)"
    wait_for(lambda: bool(database.execute(idle)), "the walsender has ended")
    return ended_children(database) - before


def peer(database: Database, slot: str, end: Lsn) -> Run:
    before, ended = resource.getrusage(resource.RUSAGE_CHILDREN), ended_children(database)
    begun = time.perf_counter()
    subprocess.run(
        [
            str(tool("pg_recvlogical")),
            *("-d", database.url(sslmode="disable"), "-S", slot, "--start", "--endpos", str(end)),
            *("-o", "proto_version=1", "-o", "publication_names=p", "--no-loop", "-f", "/dev/null"),
        ],
        check=True,
    )
    seconds = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(0.0, seconds, cpu, walsender_cpu(database, ended))


def ours(database: Database, slot: str, start: Lsn, end: Lsn, **options: str) -> Run:
    address = PostgresAddress.parse(database.url(**options))
    with connect(address, role="bench") as connection:
        identity = identify(connection)
    upstream = to_record(PostgresUpstream(slot, "p"))
    with tempfile.TemporaryDirectory() as folder:
        receiver = Receiver(Feed("postgres", address, to_record(identity), upstream, Path(folder) / "spool"))
        reader = SpoolReader(Path(folder) / "spool")
        begun, ended = time.perf_counter(), ended_children(database)
        receiver.start(PostgresTimeline().position(start))
        wait_for(lambda: receiver.poll().streaming, "the receiver streams")
        process = psutil.Process(receiver.pid)
        streaming, used = time.perf_counter(), sum(process.cpu_times()[:2])
        wait_for(lambda: (reader.frontier() or 0) >= int(end), "everything is in the spool", deadline=600)
        seconds, cpu = time.perf_counter() - streaming, sum(process.cpu_times()[:2]) - used
        receiver.stop()
    return Run(streaming - begun, seconds, cpu, walsender_cpu(database, ended))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--transactions", type=int, default=5000)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=3)
    wanted = parser.parse_args()
    runs: dict[str, list[Run]] = {"pg_recvlogical": [], "receiver": [], "receiver, TLS": []}
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres(settings={"max_wal_size": "8GB"}, tls=tls.issue(Path(folder))) as server,
        server.database() as database,
    ):
        database.execute(f"CREATE TABLE t ({COLUMNS})")
        database.execute("CREATE PUBLICATION p FOR TABLE t WITH (publish = 'insert')")
        begin = Lsn(0)
        for i in range(wanted.repeat):
            for name in ("a", "b", "c"):
                ((lsn,),) = database.execute(
                    f"SELECT lsn::text FROM pg_create_logical_replication_slot('{name}{i}', 'pgoutput')"
                )
                begin = max(begin, Lsn.parse(lsn))
        end = fill(database, wanted.transactions, wanted.rows)
        for i in range(wanted.repeat):
            runs["pg_recvlogical"].append(peer(database, f"a{i}", end))
            runs["receiver"].append(ours(database, f"b{i}", begin, end, sslmode="disable"))
            runs["receiver, TLS"].append(ours(database, f"c{i}", begin, end, sslmode="require"))
    show(runs, wanted.transactions * (wanted.rows + 2))


def show(runs: dict[str, list[Run]], messages: int) -> None:
    print(f"{messages:,} messages over TCP; median (and each) of the runs")
    for name, measured in runs.items():
        rates = [messages / run.seconds for run in measured]
        each = ", ".join(f"{rate / 1000:.0f}" for rate in rates)
        cpu = statistics.median(run.cpu for run in measured)
        start = statistics.median(run.start for run in measured)
        server = statistics.median(run.server for run in measured)
        print(
            f"{name:16} {statistics.median(rates) / 1000:7.0f}k messages/s ({each}) "
            f"  client CPU {cpu:5.2f} s   walsender CPU {server:5.2f} s   start {start:.2f} s"
        )
    ratio = statistics.median(
        theirs.seconds / mine.seconds
        for theirs, mine in zip(runs["pg_recvlogical"], runs["receiver"], strict=True)
    )
    print(f"receiver : pg_recvlogical = {ratio:.2f} : 1")
    encrypted = statistics.median(
        plain.seconds / safe.seconds
        for plain, safe in zip(runs["receiver"], runs["receiver, TLS"], strict=True)
    )
    print(f"receiver over TLS : receiver = {encrypted:.2f} : 1")
    used = {name: statistics.median(run.cpu for run in measured) for name, measured in runs.items()}
    share = used["receiver"] / used["pg_recvlogical"]
    keep(of_pg_recvlogical=ratio, of_its_cpu=share, tls_of_plain=encrypted)


if __name__ == "__main__":
    main()
