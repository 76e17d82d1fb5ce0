"""Cost of a mirror beside a quiet application, by the cadence of its marks.

    python bench/cadence.py [--seconds N] [--rate N] [--every auto 0s 1s ...]      --rate 0: nothing happens

The application commits so many transactions a second. Each touches one of three tables of some thousand rows:
an insert, and updates of rows from before. The benchmark counts the processor time of the mirror's processes
by role (Spark's rests), their memory at the end, and the files and bytes that came into its lake, before
maintenance has taken any. Spark ends when nothing has needed it for five minutes: memory at rest is what is
left after `--seconds 480`. The processors' time is that of processes that live at the end.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from headrace_testing.costs import ROLES, contents, memory, processor
from headrace_testing.figures import keep
from headrace_testing.mirror_process import Mirrored
from headrace_testing.postgres import Database, postgres

TABLES = ("orders", "lines", "customers")
ROWS = 5_000


@dataclass(frozen=True)
class Cost:
    """Counts of one cadence over so many seconds."""

    every: str
    seconds: float
    marks: int
    processor: dict[str, float]  # seconds, by role
    files: int
    size: int
    memory: dict[str, int]  # PSS by role

    def line(self) -> str:
        marks, processor = max(1, self.marks), sum(self.processor.values())
        roles = " ".join(f"{1000 * self.processor.get(role, 0.0) / self.seconds:>8.1f}" for role in ROLES)
        return (
            f"{self.every:>6} {self.marks / self.seconds:>8.2f} {processor / self.seconds:>8.3f} "
            f"{self.files / self.seconds:>8.1f} {self.size / self.seconds / 1000:>8.1f} "
            f"{self.files / marks:>10.1f} {self.size / marks / 1000:>10.1f} "
            f"{processor / marks * 1000:>10.0f} {roles} "
            + " ".join(f"{self.memory[role] / 1e6:>8.0f}" for role in ROLES)
        )


def write(database: Database, rate: float, seconds: float, first: int) -> int:
    """Commit at this rate for so long; the next free key."""
    if not rate:
        time.sleep(seconds)
        return first
    with database.connect(user="app") as connection:
        connection.autocommit = True
        begun, count = time.monotonic(), 0
        while time.monotonic() - begun < seconds:
            table = TABLES[first % len(TABLES)]
            connection.execute(
                f"BEGIN; INSERT INTO {table} VALUES ({first}, 0, 'new'); UPDATE {table} SET n = n + 1"
                f" WHERE id IN ({first * 7 % ROWS}, {first * 13 % ROWS}); COMMIT".encode()
            )
            first, count = first + 1, count + 1
            time.sleep(max(0.0, begun + count / rate - time.monotonic()))
    return first


def measured(database: Database, every: str, rate: float, seconds: float) -> Cost:
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder) / "lake"
        url = database.url(user="app")
        with Mirrored(lake, url, "public.*", options={"every": every}) as mirror:
            mirror.until_live()
            [(first,)] = database.execute("SELECT max(id) + 1 FROM orders")
            first = write(database, rate, 5, int(first) + ROWS)  # what is loaded once is loaded by then
            before, files, used, begun = (
                mirror.lake.at().mark.epoch,
                contents(lake),
                processor(mirror.pid),
                time.monotonic(),
            )
            write(database, rate, seconds, first)
            spent = {role: seconds - used.get(role, 0.0) for role, seconds in processor(mirror.pid).items()}
            now = contents(lake)
            cost = Cost(
                every,
                time.monotonic() - begun,
                mirror.lake.at().mark.epoch - before,
                spent,
                now[0] - files[0],
                now[1] - files[1],
                memory(mirror.pid),
            )
    return cost


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of marks beside a quiet application")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=5)
    parser.add_argument("--every", nargs="+", default=["auto", "0s", "1s", "10s"])
    args = parser.parse_args()
    print(f"{args.rate:g} transactions a second over {len(TABLES)} tables, {args.seconds:g} s each")
    print("by role: milliseconds of processor time a second, then MB")
    print(
        f"{'every':>6} {'marks/s':>8} {'cores':>8} {'files/s':>8} {'kB/s':>8} "
        f"{'files/mark':>10} {'kB/mark':>10} {'ms/mark':>10} "
        + " ".join(f"{role:>8}" for role in (*ROLES, *ROLES))
    )
    with postgres() as server:
        for every in args.every:
            with server.database() as database:
                for table in TABLES:
                    database.execute(
                        f"CREATE TABLE {table} (id bigint PRIMARY KEY, n int, t text);"
                        f" INSERT INTO {table} SELECT i, 0, md5(i::text) FROM generate_series(1, {ROWS}) i",
                        user="app",
                    )
                cost = measured(database, every, args.rate, args.seconds)
                print(cost.line(), flush=True)
                figures = {"cores": sum(cost.processor.values()), "files": cost.files, "bytes": cost.size}
                keep(**{f"files_a_mark_{every}": cost.files / max(1, cost.marks)})
                keep(**{f"{name}_a_second_{every}": value / cost.seconds for name, value in figures.items()})
                keep(**{f"mb_{every}": sum(cost.memory.values()) / 1e6})


if __name__ == "__main__":
    main()
