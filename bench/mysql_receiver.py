"""Rate at which a binlog is received, beside `mysqlbinlog --raw`: same server, same log, same run, TCP.

    python bench/mysql_receiver.py [--transactions N] [--rows N] [--repeat N]

Both read the same files from a server of their own; they take turns. Ours finds the transactions, verifies
checksums and filters by tables; the peer writes the bytes to files as they are. Both write to the same
folder. Both run without TLS; ours with it, too. CPU seconds are those of the reading process alone: on a busy
machine they bound the rate.
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

from headrace.sources.mysql.position import MysqlTimeline, parse
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.stream.dump import BinlogDump, DumpRequest
from headrace_testing.figures import keep
from headrace_testing.mysql import Database, Server, mysql

VALUES = "i, i % 1000, CONCAT('text ', i), SHA2(i, 256), i / 7, NOW(6), i / 3"
COLUMNS = "id bigint, a int, b varchar(40), c varchar(80), d decimal(12, 2), e datetime(6), g double"


@dataclass(frozen=True)
class Run:
    """One measured reading of the log."""

    seconds: float
    cpu: float


def fill(database: Database, transactions: int, rows: int) -> None:
    """Write the log."""
    insert = (
        "INSERT INTO t WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n "
        f"WHERE i < {rows}) SELECT {VALUES} FROM n"
    )
    with database.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET SESSION cte_max_recursion_depth = {rows + 1}")
        for _ in range(transactions):
            cursor.execute(insert)


def executed(server: Server) -> str:
    [(text,)] = server.execute("SELECT @@global.gtid_executed")
    return str(text)


def peer(server: Server, files: list[str]) -> Run:
    """The server's own tool."""
    with tempfile.TemporaryDirectory() as folder:
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(
            [
                *server.tool("mysqlbinlog"),
                *("--no-defaults", "--read-from-remote-server", "--raw", f"--result-file={folder}/"),
                *("--host=127.0.0.1", f"--port={server.port}", "--user=root", "--ssl-mode=DISABLED"),
                *files,
            ],
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Run(time.perf_counter() - begun, used)


def ours(database: Database, start: str, end: str, tls: str) -> Run:
    """A dump, and its bytes to a file."""
    log = MysqlTimeline()
    at, target = log.position(start), parse(end).count
    wanted = DumpRequest(((database.name, "t"),), frontier=at, received_until=at, log=log)
    dump = BinlogDump.open(MysqlAddress.parse(database.server.url() + f"?ssl-mode={tls}"), wanted)
    used, begun = time.process_time(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "spool").open("wb") as spool:
        reached = at.time
        while reached < log.time(target):
            received = dump.read(1.0)
            if received is not None:
                spool.write(memoryview(received.data))  # type: ignore[arg-type]
                reached = received.complete
    dump.close()
    return Run(time.perf_counter() - begun, time.process_time() - used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--transactions", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--repeat", type=int, default=3)
    wanted = parser.parse_args()
    runs: dict[str, list[Run]] = {"mysqlbinlog --raw": [], "BinlogDump": [], "BinlogDump, TLS": []}
    with mysql({"sync_binlog": 0}) as server, server.database() as database:
        database.execute(f"CREATE TABLE t ({COLUMNS})")
        server.execute("FLUSH BINARY LOGS")
        start, first = executed(server), len(server.execute("SHOW BINARY LOGS")) - 1
        fill(database, wanted.transactions, wanted.rows)
        end = executed(server)
        server.execute("FLUSH BINARY LOGS")
        files = server.execute("SHOW BINARY LOGS")[first:-1]
        for _ in range(wanted.repeat):
            runs["mysqlbinlog --raw"].append(peer(server, [str(name) for name, *_ in files]))
            runs["BinlogDump"].append(ours(database, start, end, "DISABLED"))
            runs["BinlogDump, TLS"].append(ours(database, start, end, "REQUIRED"))
    show(runs, sum(int(size) for _, size, *_ in files), wanted.transactions)


def show(runs: dict[str, list[Run]], size: int, transactions: int) -> None:
    print(f"{size / 1e6:,.0f} MB of binlog, {transactions:,} transactions; median (and each) of the runs")
    for name, measured in runs.items():
        rates = [size / 1e6 / run.seconds for run in measured]
        each = ", ".join(f"{rate:.0f}" for rate in rates)
        cpu = statistics.median(run.cpu for run in measured)
        print(f"  {name:18} {statistics.median(rates):6.0f} MB/s ({each})   CPU {cpu:.2f} s")
    middle = {name: statistics.median(run.seconds for run in measured) for name, measured in runs.items()}
    theirs = middle["mysqlbinlog --raw"]
    keep(of_mysqlbinlog=theirs / middle["BinlogDump"], tls_of_mysqlbinlog=theirs / middle["BinlogDump, TLS"])


if __name__ == "__main__":
    main()
