"""Time to mirror and to verify many small tables, beside psql that copies each to nowhere.

    python bench/small_tables.py [--tables N] [--rows N] [--handoff NAME ...]

An application's schema has hundreds of tables, most of them with few rows: the cost of a table counts, not
the cost of a row. psql runs one COPY for each table over one connection. Ours are `mirror(once=True)` into a
new lake and `verify` of it, in a Spark that is up and warm; they go through the same tables in the same
order.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import headrace
from headrace.pipeline.verify.proof import verify
from headrace.pipeline.verify.verdicts import EQUAL
from headrace.spark.session import RunningSpark, SparkConfig, open_session
from headrace_testing.binaries import tool
from headrace_testing.figures import keep
from headrace_testing.postgres import Database, postgres


def tables(database: Database, count: int, rows: int) -> None:
    statement = (
        "CREATE TABLE s{0:04} (id int PRIMARY KEY, name text, made timestamptz DEFAULT now());"
        "INSERT INTO s{0:04} SELECT i, 'name ' || i FROM generate_series(1, {1}) i"
    )
    for number in range(count):
        database.execute(statement.format(number, rows))


def copied(database: Database, count: int) -> None:
    commands = "".join(f"\\copy s{number:04} to /dev/null\n" for number in range(count))
    subprocess.run(
        [str(tool("psql")), "-qd", database.url()], input=commands.encode(), check=True, timeout=600
    )


def configured(database: Database, lake: Path, handoff: str) -> dict[str, object]:
    source = {"url": database.url(), "tables": ["public.*"], "handoff": handoff}
    return {"lake": {"path": str(lake)}, "source": {"main": source}}


def seconds(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def mirrored(config: dict[str, object], session: RunningSpark) -> None:
    headrace.mirror(config, spark=session.spark, once=True)


def verified(config: dict[str, object], session: RunningSpark) -> None:
    [verdict] = verify(config, spark=session.spark)
    different = [table.name for table in verdict.tables if table.outcome != EQUAL]
    assert not different, different


def main() -> None:
    parser = argparse.ArgumentParser(description="many small tables: copy and verify")
    parser.add_argument("--tables", type=int, default=533)
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--handoff", nargs="*", default=["slot", "chunks"])
    args = parser.parse_args()
    measured: dict[str, float] = {}
    with ExitStack() as stack:
        session = stack.enter_context(open_session(SparkConfig(master="local[2]")))
        database = stack.enter_context(stack.enter_context(postgres()).database("source"))
        tables(database, args.tables, args.rows)
        measured["psql COPY to /dev/null"] = seconds(partial(copied, database, args.tables))
        for handoff in args.handoff:
            lake = Path(stack.enter_context(tempfile.TemporaryDirectory()), "lake")
            config = configured(database, lake, handoff)
            measured[f"mirror, handoff {handoff}"] = seconds(partial(mirrored, config, session))
            measured[f"verify after {handoff}"] = seconds(partial(verified, config, session))
    print(f"{args.tables} tables of {args.rows} rows")
    for name, took in measured.items():
        print(f"  {name:26} {took:8.1f} s   {1000 * took / args.tables:8.1f} ms a table")
    for handoff in args.handoff:
        copy, proof = measured[f"mirror, handoff {handoff}"], measured[f"verify after {handoff}"]
        keep(**{f"copy_{handoff}_{args.tables}": copy, f"verify_{handoff}_{args.tables}": proof})


if __name__ == "__main__":
    main()
