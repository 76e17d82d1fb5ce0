"""Speed of mirroring MySQL and MariaDB: a snapshot beside their own client, a backlog beside PostgreSQL's.

    python bench/mysql_mirror.py [--rows N] [--transactions N] [--repeat N] [--kinds mysql mariadb] [--tls]

One Spark is up and warm, all servers are on this machine, and everything takes turns. The snapshot is
`mirror(once=True)` into a new lake. Beside it the server's own client reads the table to nowhere (`--quick
--batch`), and Spark JDBC reads it in as many partitions as there are cores and writes Parquet. Spark JDBC
needs its driver's jar (JDBC_JAR, or where Debian's libmariadb-java puts it); without one the benchmark leaves
it out, and says so. Both go over TCP, in plain or with `--tls` encrypted: Java's driver asks for no TLS by
itself, and a mirror does wherever the server has it. The client is on the server's socket. The backlog is
written while nobody mirrors: each transaction inserts 500 rows, updates half and deletes a tenth of them.
PostgreSQL gets the same backlog, and is mirrored in the same run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import headrace
from headrace.spark.session import RunningSpark, SparkConfig, open_session
from headrace_testing.figures import keep
from headrace_testing.mysql import Database, mariadb, mysql
from headrace_testing.oracle.registry import oracle_of
from headrace_testing.postgres import postgres

SERVERS = {"mysql": mysql, "mariadb": mariadb}
ROWS = 500  # of a transaction
PORTION = 50_000
PEERS = {"client": "its own client to nowhere", "jdbc": "Spark JDBC to Parquet"}
JAR = Path(os.environ.get("JDBC_JAR", "/usr/share/java/mariadb-java-client.jar"))


@dataclass(frozen=True)
class Spelling:
    """A kind of server's spelling of the benchmark's table and rows."""

    table: str
    rows: str  # from {low} to {high}


POSTGRES = Spelling(
    "t (id bigint PRIMARY KEY, a integer, b text, c text, d numeric(12,2), e timestamp, f boolean)",
    "SELECT i, i % 1000, 'text ' || i, left(encode(sha256(i::text::bytea), 'hex'), 32), i / 7.0,"
    " localtimestamp, i % 2 = 0 FROM generate_series({low}, {high}) i",
)
MYSQL = Spelling(
    "t (id bigint PRIMARY KEY, a integer, b text, c text, d decimal(12,2), e datetime(6), f bit(1))",
    "WITH RECURSIVE s (i) AS (SELECT {low} UNION ALL SELECT i + 1 FROM s WHERE i < {high})"
    " SELECT i, i % 1000, concat('text ', i), left(sha2(i, 256), 32), i / 7.0, now(6), i % 2 = 0 FROM s",
)


@dataclass(frozen=True)
class Mirrored:
    """A table and the lake of its mirror."""

    url: str
    table: str
    lake: Path

    def once(self, session: RunningSpark) -> float:
        """Catch up; the seconds that it takes."""
        source: Mapping[str, Any] = {"url": self.url, "tables": [self.table]}
        begun = time.perf_counter()
        headrace.mirror(
            {"lake": {"path": str(self.lake)}, "source": {"main": source}}, spark=session.spark, once=True
        )
        return time.perf_counter() - begun


def filled(url: str, spelling: Spelling, rows: int, *settings: str) -> None:
    """Make the table, with so many rows."""
    with oracle_of(url).session(url) as session:
        for statement in (*settings, f"CREATE TABLE {spelling.table}"):
            session.execute(statement)
        for low in range(1, rows + 1, PORTION):
            session.execute(
                "INSERT INTO t " + spelling.rows.format(low=low, high=min(rows, low + PORTION - 1))
            )
            session.commit()


def by_client(database: Database) -> float:
    """Read the table by the server's own client to nowhere; the seconds that it takes."""
    server = database.server
    words = [*server.tool("mysql"), "--no-defaults", "--quick", "--batch", f"--socket={server.socket}"]
    begun = time.perf_counter()
    subprocess.run(
        [*words, "--user=root", "-e", "SELECT * FROM t", database.name],
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=600,
    )
    return time.perf_counter() - begun


def write(url: str, spelling: Spelling, transactions: int, first: int) -> None:
    """The backlog."""
    with oracle_of(url).session(url) as session:
        for low in range(first, first + transactions * ROWS, ROWS):
            session.execute("INSERT INTO t " + spelling.rows.format(low=low, high=low + ROWS - 1))
            session.execute(f"UPDATE t SET a = a + 1 WHERE id BETWEEN {low} AND {low + ROWS // 2 - 1}")
            session.execute(f"DELETE FROM t WHERE id BETWEEN {low} AND {low + ROWS // 10 - 1}")
            session.commit()


def address(database: Database, *, tls: bool) -> str:
    """The address for a mirror."""
    return database.url(user="app", **{"ssl-mode": "REQUIRED" if tls else "DISABLED"})


def through_jdbc(database: Database, session: RunningSpark, folder: Path, args: argparse.Namespace) -> float:
    """Read the table by Spark's own JDBC reader into Parquet; the seconds that it takes."""
    encrypted = "?useSSL=true&trustServerCertificate=true" if args.tls else ""
    chosen = {
        "url": f"jdbc:mysql://127.0.0.1:{database.server.port}/{database.name}{encrypted}",
        "dbtable": "t",
        "driver": "org.mariadb.jdbc.Driver",
        "user": "root",
        "fetchsize": "10000",
        "partitionColumn": "id",
        "lowerBound": "1",
        "upperBound": str(args.rows),
        "numPartitions": str(os.cpu_count()),
    }
    begun = time.perf_counter()
    session.spark.read.format("jdbc").options(**chosen).load().write.parquet(str(folder))
    return time.perf_counter() - begun


def snapshots(
    database: Database, session: RunningSpark, folder: Path, args: argparse.Namespace
) -> dict[str, float]:
    """The median of each way, in turns; the first of ours warms the caches and does not count."""
    url, table = address(database, tls=args.tls), f"{database.name}.t"
    Mirrored(url, table, folder / "first").once(session)
    seconds: dict[str, list[float]] = {"ours": [], "client": [], "jdbc": []}
    for number in range(args.repeat):
        seconds["client"].append(by_client(database))
        seconds["ours"].append(Mirrored(url, table, folder / f"ours-{number}").once(session))
        if JAR.exists():
            seconds["jdbc"].append(through_jdbc(database, session, folder / f"jdbc-{number}", args))
    return {way: statistics.median(found) for way, found in seconds.items() if found}


@dataclass(frozen=True)
class Backlog:
    """A mirror that rests, and who writes what it is to catch up with, from a key on."""

    mirror: Mirrored
    write: Callable[[int], object]


def backlogs(
    made: Mapping[str, Database], stack: ExitStack, folder: Path, args: argparse.Namespace
) -> dict[str, Backlog]:
    """Create the same table in PostgreSQL and in each of the servers; return each mirror and its writer."""
    source = stack.enter_context(stack.enter_context(postgres()).database("source"))
    filled(source.url(), POSTGRES, args.rows)
    places = {"postgres": (source.url(), "public.t", POSTGRES)}
    places |= {kind: (address(one, tls=args.tls), f"{one.name}.t", MYSQL) for kind, one in made.items()}
    return {
        kind: Backlog(
            Mirrored(url, table, folder / f"{kind}-backlog"), partial(write, url, spelling, args.transactions)
        )
        for kind, (url, table, spelling) in places.items()
    }


def caught_up(
    found: Mapping[str, Backlog], session: RunningSpark, args: argparse.Namespace
) -> dict[str, list[float]]:
    """The seconds that each takes for its backlog, in turns."""
    for each in found.values():
        each.mirror.once(session)
    seconds: dict[str, list[float]] = {kind: [] for kind in found}
    for number in range(args.repeat):
        for kind, each in found.items():
            each.write(args.rows + 1 + number * args.transactions * ROWS)
            seconds[kind].append(each.mirror.once(session))
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description="MySQL and MariaDB: a snapshot, a backlog")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--transactions", type=int, default=500)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--kinds", nargs="+", choices=tuple(SERVERS), default=list(SERVERS))
    args = parser.parse_args()
    if not JAR.exists():
        print("Spark JDBC is left out: no driver jar; install libmariadb-java or set JDBC_JAR")
    with ExitStack() as stack:
        conf = {"spark.jars": str(JAR)} if JAR.exists() else {}
        session = stack.enter_context(open_session(SparkConfig(master="local[2]", conf=conf)))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        made = {
            kind: stack.enter_context(stack.enter_context(SERVERS[kind]()).database()) for kind in args.kinds
        }
        for kind, database in made.items():
            more = f"SET SESSION {database.server.flavour.recursion} = {PORTION}"
            filled(database.url(user="app"), MYSQL, args.rows, more)
            ways = snapshots(database, session, folder / kind, args)
            ours = ways.pop("ours")
            print(f"{kind}, {args.rows:,} rows: {ours:.1f} s from start to mark")
            for way, theirs in ways.items():
                print(f"  {PEERS[way]} {theirs:.1f} s: ours has {theirs / ours:.2f} times its rate")
                keep(**{f"{kind}_of_{way}": theirs / ours})
        seconds = caught_up(backlogs(made, stack, folder, args), session, args)
    changes = args.transactions * (ROWS + ROWS // 2 + ROWS // 10)
    them = statistics.median(seconds["postgres"])
    print(f"a backlog of {changes:,} changes in {args.transactions:,} transactions, median of {args.repeat}")
    for kind, found in seconds.items():
        us = statistics.median(found)
        print(f"  {kind:<10} {changes / us:>10,.0f} changes/s   {them / us:.2f} times PostgreSQL's rate")
        keep(**{f"{kind}_of_postgres": them / us})


if __name__ == "__main__":
    main()
