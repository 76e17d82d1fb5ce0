"""From COMMIT to mark for one large transaction, streamed while it runs and not, with pgbench beside it.

    python bench/large_transaction.py [--rows N] [--repeat N]

The transaction inserts N rows (and some more under a savepoint that it rolls back), updates every second and
deletes every third. The two ways take turns, each on a server and in a lake of its own; what is
measured is the time from the return of COMMIT to the mark that holds it, and the peak of memory (PSS) over
the driver, the receiver, the JVM and its workers, without the server. A transaction a quarter as large, of
which the memory is compared, goes before.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from headrace.lake.log.marks import Marks
from headrace.sources.postgres.position import Lsn
from headrace_testing.figures import keep
from headrace_testing.memory import Peak
from headrace_testing.mirror_process import Mirrored
from headrace_testing.postgres import Database, postgres

COLUMNS = "(id bigint PRIMARY KEY, a integer, b text, c text, d numeric(12,2), e timestamptz, f boolean)"
VALUES = "i, i % 1000, 'text ' || i, md5(i::text), i / 7.0, now(), i % 2 = 0"


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds and memory peaks of one way: for the transaction, and for one a quarter as large."""

    seconds: float
    quarter: float
    peak: int
    peak_of_quarter: int


def transaction(database: Database, table: str, rows: int) -> Lsn:
    """The large transaction; a position behind its commit."""
    with database.connect() as connection:
        connection.execute("BEGIN")
        connection.execute(f"INSERT INTO {table} SELECT {VALUES} FROM generate_series(1, {rows}) i")
        connection.execute("SAVEPOINT s")
        low, high = rows + 1, rows + rows // 10
        connection.execute(f"INSERT INTO {table} SELECT {VALUES} FROM generate_series({low}, {high}) i")
        connection.execute("ROLLBACK TO SAVEPOINT s")
        connection.execute(f"UPDATE {table} SET a = a + 1 WHERE id % 2 = 0")
        connection.execute(f"DELETE FROM {table} WHERE id % 3 = 0")
        connection.execute("COMMIT")
    return Lsn.parse(database.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0])


def timed(mirror: Mirrored, database: Database, table: str, rows: int) -> float:
    """Seconds from the return of COMMIT to the mark."""
    behind = transaction(database, table, rows)
    begun = time.perf_counter()
    marks = Marks(mirror.lake.store, "main")

    def published() -> bool:
        newest = marks.newest()
        return newest is not None and newest.time >= int(behind) - 1

    mirror.until(published, "mark behind the transaction", within=900)
    return time.perf_counter() - begun


def measure(streaming: str, rows: int) -> Result:
    with ExitStack() as stack:
        database = stack.enter_context(stack.enter_context(postgres()).database())
        for table in ("small", "large"):
            database.execute(f"CREATE TABLE {table} {COLUMNS}", user="app")
        database.pgbench_tables(1)
        lake = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "lake"
        options = {"streaming": streaming}
        mirror = stack.enter_context(Mirrored(lake, database.url(user="app"), "public.*", options=options))
        mirror.until_live()
        stack.enter_context(database.pgbench(clients=2, rate=50))
        with Peak(mirror.pid) as small:
            quarter = timed(mirror, database, "small", rows // 4)
        with Peak(mirror.pid) as large:
            seconds = timed(mirror, database, "large", rows)
        return Result(seconds, quarter, large.bytes, small.bytes)


def main() -> None:
    parser = argparse.ArgumentParser(description="COMMIT to mark of a large transaction")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeat", type=int, default=1)
    args = parser.parse_args()
    found: dict[str, list[Result]] = {"off": [], "auto": []}
    for _ in range(args.repeat):
        for streaming, results in found.items():
            results.append(measure(streaming, args.rows))
    print(f"{args.rows:,} rows, median of {args.repeat}")
    for streaming, results in found.items():
        seconds = statistics.median(r.seconds for r in results)
        peak = max(r.peak for r in results) / 2**20
        ratio = max(r.peak / r.peak_of_quarter for r in results)
        print(
            f"  streaming {streaming:<5} {seconds:6.1f} s from COMMIT to mark"
            f" ({statistics.median(r.quarter for r in results):.1f} s for a quarter),"
            f" peak {peak:,.0f} MB, {ratio:.2f} times a quarter's"
        )
        figures = {"seconds": seconds, "gb": max(r.peak for r in results) / 1e9, "of_quarter": ratio}
        keep(**{f"{name}_{streaming}": value for name, value in figures.items()})
    of = statistics.median(a.seconds / b.seconds for a, b in zip(found["auto"], found["off"], strict=True))
    print(f"  streamed: {of:.2f} times as long")
    keep(streamed_of_not=of)


if __name__ == "__main__":
    main()
