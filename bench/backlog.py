"""Rate at which a backlog becomes marks, beside PostgreSQL's built-in subscription: same log, same run, TCP.

    python bench/backlog.py [--transactions N] [--rows N] [--repeat N]

Both have copied the table already and are stopped; then the log is written: inserts, updates of rows
from before, deletes. The subscription is measured from ENABLE to the state in which its table has the last
row; ours from the call of `mirror(once=True)`, in a Spark that is up and warm, to its return: connecting,
taking over and the acknowledgement are in it. The two take turns.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import headrace
from headrace.spark.session import RunningSpark, SparkConfig, open_session
from headrace_testing.figures import keep
from headrace_testing.postgres import Database, postgres
from headrace_testing.postmaster import wait_for

TABLE = "t (id bigint PRIMARY KEY, a integer, b text, c text, d numeric(12,2), e timestamptz, f boolean)"
VALUES = "i, i % 1000, 'text ' || i, md5(i::text), i / 7.0, now(), i % 2 = 0"
BEFORE = 200_000


def config(database: Database, lake: Path) -> dict[str, Any]:
    source = {"url": database.url(), "tables": ["public.t"]}
    return {"lake": {"path": str(lake)}, "source": {"main": source}}


def write(database: Database, transactions: int, rows: int, first: int) -> int:
    """The backlog; how many changes it holds."""
    with database.connect() as connection:
        for number in range(transactions):
            low = first + number * rows
            with connection.transaction():
                connection.execute(
                    f"INSERT INTO t SELECT {VALUES} FROM generate_series({low}, {low + rows - 1}) i"
                )
                connection.execute(f"UPDATE t SET a = a + 1 WHERE id BETWEEN {low} AND {low + rows // 2 - 1}")
                connection.execute(f"DELETE FROM t WHERE id BETWEEN {low} AND {low + rows // 10 - 1}")
    return transactions * (rows + rows // 2 + rows // 10)


def subscribed(target: Database, last: int) -> float:
    """Let the built-in subscription catch up; the seconds that it takes."""
    begun = time.perf_counter()
    target.execute("ALTER SUBSCRIPTION s ENABLE")
    wait_for(lambda: bool(target.execute(f"SELECT 1 FROM t WHERE id = {last}")), "the last row", deadline=600)
    seconds = time.perf_counter() - begun
    target.execute("ALTER SUBSCRIPTION s DISABLE")
    return seconds


def mirrored(database: Database, lake: Path, session: RunningSpark) -> float:
    begun = time.perf_counter()
    headrace.mirror(config(database, lake), spark=session.spark, once=True)
    return time.perf_counter() - begun


def prepare(stack: ExitStack, session: RunningSpark, lake: Path) -> tuple[Database, Database]:
    """Two servers with the table; the subscription and the mirror have copied it and rest."""
    source = stack.enter_context(stack.enter_context(postgres()).database("source"))
    target = stack.enter_context(stack.enter_context(postgres()).database("target"))
    for database in (source, target):
        database.execute(f"CREATE TABLE {TABLE}")
    source.execute(f"INSERT INTO t SELECT {VALUES} FROM generate_series(1, {BEFORE}) i")
    source.execute("CREATE PUBLICATION p FOR TABLE t")
    target.execute(
        f"CREATE SUBSCRIPTION s CONNECTION '{source.conninfo}' PUBLICATION p WITH (streaming = off)"
    )
    ready = "SELECT 1 FROM pg_subscription_rel WHERE srsubstate = 'r'"
    wait_for(lambda: bool(target.execute(ready)), "the subscription's copy", deadline=300)
    target.execute("ALTER SUBSCRIPTION s DISABLE")
    mirrored(source, lake, session)
    return source, target


def main() -> None:
    parser = argparse.ArgumentParser(description="backlog to marks, beside the built-in subscription")
    parser.add_argument("--transactions", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    with ExitStack() as stack:
        session = stack.enter_context(open_session(SparkConfig(master="local[2]")))
        lake = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "lake"
        source, target = prepare(stack, session, lake)
        ours, theirs, first, changes = [], [], BEFORE + 1, 0
        for _ in range(args.repeat):
            changes = write(source, args.transactions, args.rows, first)
            first += args.transactions * args.rows
            theirs.append(subscribed(target, first - 1))
            ours.append(mirrored(source, lake, session))
        target.execute("ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s")
        source.execute("SELECT pg_drop_replication_slot('s')")
    us, them = statistics.median(ours), statistics.median(theirs)
    keep(of_subscription=them / us, changes_a_second=changes / us)
    print(f"{changes:,} changes in {args.transactions:,} transactions, median of {args.repeat}")
    print(f"  built-in subscription   {changes / them:>10,.0f} changes/s")
    print(
        f"  headrace                {changes / us:>10,.0f} changes/s   {them / us:.2f} times the subscription"
    )


if __name__ == "__main__":
    main()
