"""A cold `run --once` that catches up with pgbench, beside `pg_recvlogical` to /dev/null: one log, one run.

    python -m bench.cold_start [--changes N] [--scale N] [--repeat N]

The tables are in the lake, and nothing of ours runs. pgbench writes so many changes, four a transaction. Then
`headrace run --once` starts, catches up, and ends. `pg_recvlogical` reads the same log from a slot of
its own. The same command once more, with nothing to catch up with, tells how much of that is the start.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from bench.receiver import peer
from headrace.sources.postgres.position import Lsn
from headrace_testing.binaries import tool
from headrace_testing.costs import ROLES, processor
from headrace_testing.figures import keep
from headrace_testing.postgres import Database, postgres

SAMPLED = 0.1  # seconds between two looks at what our processes have used
CONFIG = '[lake]\npath = "{lake}"\n[source.main]\nurl = {url}\ntables = ["public.*"]\n'


def pgbench(database: Database, *arguments: str) -> None:
    command = [str(tool("pgbench")), "-n", *arguments, database.url(sslmode="disable")]
    subprocess.run(command, check=True, capture_output=True)


def once(config: Path) -> tuple[float, dict[str, float]]:
    """Catch up and end; the seconds by the clock, and those of the processors by role."""
    begun, used = time.perf_counter(), dict.fromkeys(ROLES, 0.0)
    command = [sys.executable, "-m", "headrace", "run", "--once", "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            with suppress(psutil.NoSuchProcess):
                used |= {role: max(used[role], spent) for role, spent in processor(process.pid).items()}
            time.sleep(SAMPLED)
    assert process.returncode == 0
    return time.perf_counter() - begun, used


def end_of_log(database: Database) -> Lsn:
    """The end of the log, once something stands behind it."""
    [(lsn,)] = database.execute("SELECT pg_current_wal_flush_lsn()::text")
    database.execute("UPDATE pgbench_branches SET bbalance = bbalance WHERE bid = 1")
    return Lsn.parse(lsn)


@dataclass(frozen=True, slots=True)
class Run:
    """A log that both have read once."""

    peer: float  # seconds
    ours: float
    start: float  # of ours
    used: dict[str, float]  # seconds of processors by role, without the start


def repeated(database: Database, config: Path, changes: int) -> Run:
    """Write a log, and let both read it."""
    clients = os.cpu_count() or 1
    database.execute("SELECT pg_create_logical_replication_slot('peer', 'pgoutput')")
    pgbench(database, "-c", str(clients), "-t", str(changes // 4 // clients))
    read = peer(database, "peer", end_of_log(database)).seconds
    database.execute("SELECT pg_drop_replication_slot('peer')")
    whole, used = once(config)
    start, at_start = once(config)
    return Run(read, whole, start, {role: used[role] - at_start[role] for role in ROLES})


def main() -> None:
    parser = argparse.ArgumentParser(description="a cold run --once beside pg_recvlogical")
    parser.add_argument("--changes", type=int, default=500_000)
    parser.add_argument("--scale", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    settings = {"max_wal_size": "8GB"}
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres(settings=settings) as server,
        server.database() as database,
    ):
        config = Path(folder) / "headrace.toml"
        config.touch(mode=0o600)
        config.write_text(CONFIG.format(lake=f"{folder}/lake", url=json.dumps(database.url())))
        database.pgbench_tables(args.scale)
        database.execute("CREATE PUBLICATION p FOR ALL TABLES")
        once(config)
        runs = [repeated(database, config, args.changes) for _ in range(args.repeat)]
    theirs, ours, start = (median(getattr(run, each) for run in runs) for each in ("peer", "ours", "start"))
    cpu = {role: sum(run.used[role] for run in runs) / len(runs) / args.changes * 1e6 for role in ROLES}
    rate, without = theirs / ours, theirs / (ours - start)
    print(f"{args.changes:,} changes of pgbench, median of {args.repeat}")
    print(f"  pg_recvlogical       {theirs:6.1f} s")
    print(f"  headrace run --once  {ours:6.1f} s, {rate:.2f} of its rate; {start:.1f} s are the start")
    print(f"  without its start    {ours - start:6.1f} s, {without:.2f} of its rate")
    each = ", ".join(f"{role} {spent:.1f}" for role, spent in cpu.items())
    print(f"  CPU without its start, seconds a million changes: {sum(cpu.values()):.1f}: {each}")
    keep(of_pg_recvlogical=rate, without_start=without, start=start)


if __name__ == "__main__":
    main()
