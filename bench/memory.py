"""The memory of a mirror of PostgreSQL: a large table copied, a backlog, each beside a quarter of itself.

    python -m bench.memory [--rows N] [--changes N]

The figure is the peak of memory (PSS) over the driver, the receiver, the JVM and its workers, without the
server. The table is copied by a run of its own. The backlog is written while no run is there, in transactions
of 800 changes. `large_transaction` has the memory of one transaction.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.backlog import BEFORE, SHAPES
from headrace.sources.postgres.position import Lsn
from headrace_testing.figures import keep
from headrace_testing.memory import Peak
from headrace_testing.mirror_process import Mirrored
from headrace_testing.postgres import Server, postgres

SHAPE = SHAPES["usual"]
DEADLINE = 1800.0


def copied(server: Server, rows: int) -> tuple[int, float]:
    """The peak of a run that copies a table of so many rows, and its seconds."""
    with server.database() as database, tempfile.TemporaryDirectory() as folder:
        SHAPE.create(database)
        SHAPE.fill(database, rows)
        begun = time.perf_counter()
        with Mirrored(Path(folder) / "lake", database.url(), "public.*") as mirror, Peak(mirror.pid) as peak:
            mirror.until_live(within=DEADLINE)
        return peak.bytes, time.perf_counter() - begun


def caught_up(server: Server, changes: int) -> tuple[int, float]:
    """The peak of a run that catches up with so many changes, and its seconds."""
    with server.database() as database, tempfile.TemporaryDirectory() as folder:
        SHAPE.create(database)
        SHAPE.fill(database)
        with Mirrored(Path(folder) / "lake", database.url(), "public.*") as mirror:
            mirror.until_live(within=DEADLINE)
            mirror.stop()
            SHAPE.write(database, changes, BEFORE + 1)
            end = int(Lsn.parse(database.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0]))
            begun = time.perf_counter()
            mirror.start()
            with Peak(mirror.pid) as peak:
                mirror.until(
                    lambda: mirror.lake.at().mark.position.time >= end - 1, "the newest mark", within=DEADLINE
                )
            return peak.bytes, time.perf_counter() - begun


def show(key: str, what: str, count: int, measure: Callable[[int], tuple[int, float]]) -> None:
    quarter, _ = measure(count // 4)
    whole, seconds = measure(count)
    print(
        f"  {what:20} {count:>11,}  {seconds:6.1f} s  peak {whole / 2**20:6,.0f} MB,"
        f" {whole / quarter:.2f} times a quarter's",
        flush=True,
    )
    keep(**{f"{key}_gb": whole / 1e9, f"{key}_of_quarter": whole / quarter})


def main() -> None:
    parser = argparse.ArgumentParser(description="the memory of a mirror of PostgreSQL")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--changes", type=int, default=10_000_000)
    args = parser.parse_args()
    with postgres() as server:
        show("copied", "rows copied", args.rows, partial(copied, server))
        show("backlog", "changes to catch up", args.changes, partial(caught_up, server))


if __name__ == "__main__":
    main()
