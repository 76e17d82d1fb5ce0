"""Single-row updates of random keys, mirrored by rewriting files and by deletion vectors.

    python bench/random_updates.py [--rows N ...] [--rate N] [--seconds N] [--merge rewrite auto ...]

The application updates so many rows a second, each in a transaction of its own. The benchmark tells how long
a commit waits for its mark, whether the mirror keeps up, what a change costs in processor time and in bytes,
and the memory at the end.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

from headrace_testing.costs import contents, memory, processor
from headrace_testing.figures import keep
from headrace_testing.mirror_process import Mirrored
from headrace_testing.postgres import Database, postgres

WARMED = 20.0  # seconds of updates before the clock runs
SAMPLED = 0.05  # seconds between two commits whose wait is measured


@dataclass(frozen=True)
class Updates:
    """Figures of a mirror of such updates."""

    waits: list[float]  # seconds from a commit to the mark that holds it, in ascending order
    behind: float  # seconds from the last commit to its mark
    cpu: float  # seconds a change
    size: float  # bytes a change
    memory: int

    def share(self, part: float) -> float:
        return self.waits[min(len(self.waits) - 1, int(part * len(self.waits)))]


def update(database: Database, rows: int, rate: float, seconds: float) -> list[tuple[float, int]]:
    """Update for so long; now and then a moment, and the position up to which all was committed by then."""
    committed, dice = [], random.Random(rows)
    with database.connect(user="app") as connection:
        connection.autocommit = True
        begun, count, sampled = time.time(), 0, 0.0
        while time.time() - begun < seconds:
            connection.execute(b"UPDATE t SET n = n + 1 WHERE id = %d" % dice.randrange(rows))
            count += 1
            if time.time() - sampled > SAMPLED:
                [(lsn,)] = connection.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchall()
                sampled = time.time()
                committed.append((sampled, int(lsn)))
            time.sleep(max(0.0, begun + count / rate - time.time()))
    return committed


def measured(database: Database, merge: str, rows: int, rate: float, seconds: float) -> Updates:
    with tempfile.TemporaryDirectory() as folder:
        lake, url = Path(folder) / "lake", database.url(user="app")
        with Mirrored(lake, url, "public.t", options={"merge": merge, "every": "0s"}) as mirror:
            mirror.until_live(within=1800)
            update(database, rows, rate, WARMED)
            (_, before), used = contents(lake), processor(mirror.pid)
            committed = update(database, rows, rate, seconds)
            cpu = sum(processor(mirror.pid).values()) - sum(used.values())
            size = contents(lake)[1] - before
            last = committed[-1][1]
            mirror.until(lambda: mirror.lake.at().mark.position.time >= last, "the last commit", within=1800)
            marks = sorted(
                (mark.position.time, mark.published_at.timestamp()) for mark in mirror.lake.marks()
            )
            times = [at for at, _ in marks]
            waits = [marks[bisect_right(times, lsn - 1)][1] - at for at, lsn in committed]
            changes = rate * seconds
            return Updates(sorted(waits), waits[-1], cpu / changes, size / changes, memory(mirror.pid))


def main() -> None:
    parser = argparse.ArgumentParser(description="updates of random rows, by the way they are merged")
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 20_000_000])
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--merge", nargs="+", default=["rewrite", "auto"])
    args = parser.parse_args()
    print(f"{args.rate:g} updates of random rows a second, {args.seconds:g} s each")
    heads = {
        "rows": 12,
        "merge": 8,
        "p50 s": 8,
        "p99 s": 8,
        "last s": 8,
        "ms/change": 10,
        "B/change": 10,
        "MB": 6,
    }
    print(" ".join(f"{head:>{width}}" for head, width in heads.items()))
    with postgres() as server:
        for rows in args.rows:
            for merge in args.merge:
                with server.database() as database:
                    database.execute(
                        "CREATE TABLE t (id bigint PRIMARY KEY, n bigint, t text);"
                        f" INSERT INTO t SELECT i, 0, md5(i::text) FROM generate_series(0, {rows - 1}) i",
                        user="app",
                    )
                    done = measured(database, merge, rows, args.rate, args.seconds)
                    p50, p99 = done.share(0.5), done.share(0.99)
                    print(
                        f"{rows:>12} {merge:>8} {p50:>8.2f} {p99:>8.2f} {done.behind:>8.2f}"
                        f" {1000 * done.cpu:>10.2f} {done.size:>10.0f} {done.memory / 1e6:>6.0f}",
                        flush=True,
                    )
                    figures = {"p50": p50, "p99": p99, "cpu": done.cpu, "bytes": done.size}
                    keep(**{f"{name}_{merge}_{rows}": value for name, value in figures.items()})


if __name__ == "__main__":
    main()
