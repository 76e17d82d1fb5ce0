"""Single-row updates of random keys, mirrored by rewriting files and by deletion vectors.

    python bench/random_updates.py [--rows N ...] [--rate N] [--seconds N] [--merge rewrite auto ...] [--every 0s] [--worn MINUTES]

The application updates so many rows a second, each in a transaction of its own. The benchmark tells how long
a commit waits for its mark, whether the mirror keeps up, what a change costs in processor time and in bytes,
and the memory at the end, in all and without mapped files. Then it starts the mirror again without its row
cache, and tells how long a second's updates wait for their mark. In one more case the marks of the largest table are as far apart as `every = "auto"`
chooses.

`--worn` goes on for so many minutes, in compressed time: a second's updates are committed at once, and their mark
is awaited. Then Polars, DuckDB and Spark read the whole table, and once more after all files with deleted rows
were written anew.
"""  # noqa: E501

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import duckdb
import polars as pl

from headrace.pipeline.commands import ask
from headrace.spark.session import SparkConfig, open_session
from headrace_testing.costs import contents, memory, processor
from headrace_testing.figures import keep
from headrace_testing.mirror_process import Mirrored
from headrace_testing.postgres import Database, postgres

WARMED = 20.0  # seconds of updates before the clock runs
AT_ONCE = "0s"  # between two marks
SAMPLED = 0.05  # seconds between two commits whose wait is measured


@dataclass(frozen=True)
class Updates:
    """Figures of a mirror of such updates."""

    waits: list[float]  # seconds from a commit to the mark that holds it, in ascending order
    behind: float  # seconds from the last commit to its mark
    cpu: float  # seconds a change
    size: float  # bytes a change
    memory: dict[str, int]  # PSS by role
    mapped: dict[str, int]  # of it, pages of mapped files: the row cache, mostly
    restart: float  # seconds from a commit to its mark, the first after a start without a row cache

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


def update_at_once(database: Database, mirror: Mirrored, rows: int, count: int, seed: int) -> float:
    """Update so many rows in one transaction; the seconds from its commit to its mark."""
    dice = random.Random(seed)
    ids = ",".join(str(dice.randrange(rows)) for _ in range(count))
    database.execute(f"UPDATE t SET n = n + 1 WHERE id IN ({ids})", user="app")
    return await_mark(database, mirror)


def await_mark(database: Database, mirror: Mirrored) -> float:
    """Wait for a mark that holds all that was committed; the seconds that it took."""
    begun = time.monotonic()
    [(lsn,)] = database.execute("SELECT (pg_current_wal_lsn() - '0/0')::bigint")
    lake = mirror.lake
    mirror.until(lambda: lake.at().mark.position.time >= lsn, "its mark", within=1800)
    return time.monotonic() - begun


def restarted(database: Database, mirror: Mirrored, cache: Path, rows: int, count: int) -> float:
    """Start the mirror without its row cache; the seconds that its first updates of the table wait."""
    mirror.stop()
    for each in cache.glob("headrace-rows-*"):
        shutil.rmtree(each)
    mirror.start()
    database.execute("INSERT INTO beside VALUES (1)", user="app")
    await_mark(database, mirror)
    return update_at_once(database, mirror, rows, count, seed=1)


def measured(
    database: Database, options: Mapping[str, str], rows: int, rate: float, seconds: float, worn: float
) -> tuple[Updates, dict[str, tuple[float, float]]]:
    with tempfile.TemporaryDirectory() as folder:
        lake, url = Path(folder) / "lake", database.url(user="app")
        (cache := Path(folder) / "cache").mkdir()
        environment = {"TMPDIR": str(cache)}
        with Mirrored(lake, url, "public.*", environment=environment, options=options) as mirror:
            mirror.until_live(within=1800)
            update(database, rows, rate, WARMED)
            await_mark(database, mirror)
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
            used_memory, mapped = (memory(mirror.pid, part) for part in ("Pss", "Pss_File"))
            restart = restarted(database, mirror, cache, rows, round(rate))
            updates = Updates(
                sorted(waits), waits[-1], cpu / changes, size / changes, used_memory, mapped, restart
            )
            if not worn:
                return updates, {}
            for number in range(round(60 * worn)):
                update_at_once(database, mirror, rows, round(rate), seed=2 + number)
            return updates, scans(mirror)


def scans(mirror: Mirrored) -> dict[str, tuple[float, float]]:
    """The seconds in which engines read the table: as it is, and without deleted rows."""
    with (
        open_session(SparkConfig(master="local[2]")) as session,
        duckdb.connect(config={"allow_unsigned_extensions": True}) as duck,
    ):
        package = find_spec("duckdb_extension_delta")
        assert package is not None
        assert package.origin is not None
        duck.execute(f"LOAD '{next(Path(package.origin).parent.rglob('delta.duckdb_extension'))}'")

        def polars() -> object:
            return mirror.lake.at().polars("public.t").select(pl.sum("n"), pl.max("t")).collect()

        def by_duckdb() -> object:
            cut = mirror.lake.at()
            query = "SELECT sum(n), max(t) FROM delta_scan(?, version = ?)"
            return duck.execute(query, [cut.url("public.t"), cut.version("public.t")]).fetchall()

        def spark() -> object:
            return mirror.lake.at().table(session.spark, "public.t").agg({"n": "sum", "t": "max"}).collect()

        engines: dict[str, Callable[[], object]] = {"polars": polars, "duckdb": by_duckdb, "spark": spark}
        as_is = {name: _seconds(read) for name, read in engines.items()}
        print(f"{'':>12} before: {_shape(mirror)}", flush=True)
        ask.ask(str(mirror.lake_path), "maintain", {"rewrite": True})
        print(f"{'':>12} after:  {_shape(mirror)}")
        return {name: (as_is[name], _seconds(read)) for name, read in engines.items()}


def _seconds(read: Callable[[], object]) -> float:
    taken = []
    read()
    for _ in range(5):
        begun = time.perf_counter()
        read()
        taken.append(time.perf_counter() - begun)
    return median(taken)


def _shape(mirror: Mirrored) -> str:
    cut = mirror.lake.at()
    dead = sum(len(positions) for positions in cut.vectors("public.t").values())
    return f"{len(cut.files('public.t', with_deleted=True))} files, {dead} deleted rows"


HEADS = {
    "rows": 12,
    "merge": 8,
    "every": 6,
    "p50 s": 8,
    "p99 s": 8,
    "last s": 8,
    "ms/change": 10,
    "B/change": 10,
    "MB": 6,
    "unmapped": 8,
    "restart s": 10,
}


def show(rows: int, merge: str, every: str, done: Updates, read: Mapping[str, tuple[float, float]]) -> None:
    """Print the figures of a mirror, and keep them."""
    p50, p99 = done.share(0.5), done.share(0.99)
    unmapped = {role: used - done.mapped[role] for role, used in done.memory.items()}
    used = sum(done.memory.values())
    print(
        f"{rows:>12} {merge:>8} {every:>6} {p50:>8.2f} {p99:>8.2f} {done.behind:>8.2f}"
        f" {1000 * done.cpu:>10.2f} {done.size:>10.0f} {used / 1e6:>6.0f}"
        f" {sum(unmapped.values()) / 1e6:>8.0f} {done.restart:>10.2f}",
        flush=True,
    )
    roles = ", ".join(f"{role} {size / 1e6:.0f}" for role, size in unmapped.items())
    print(f"{'':>12} unmapped MB: {roles}", flush=True)
    for name, (worn, whole) in read.items():
        print(f"{'':>12} {name}: {worn:.2f} s, {worn / whole:.2f} times the compacted table's", flush=True)
    figures = {"p50": p50, "p99": p99, "cpu": done.cpu, "bytes": done.size, "restart": done.restart}
    figures |= {"gb": used / 1e9, "unmapped_gb": sum(unmapped.values()) / 1e9, "last": done.behind}
    figures |= {f"scan_{name}": worn / whole for name, (worn, whole) in read.items()}
    case = merge if every == AT_ONCE else f"{merge}_every_{every}"
    keep(**{f"{name}_{case}_{rows}": value for name, value in figures.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description="updates of random rows, by the way they are merged")
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 20_000_000])
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument(
        "--every", help="of all cases (default: 0s, and the largest table by default once more)"
    )
    parser.add_argument("--worn", type=float, default=0, metavar="MINUTES")
    parser.add_argument("--merge", nargs="+", default=["rewrite", "auto"])
    args = parser.parse_args()
    cases = [(rows, merge, args.every or AT_ONCE) for rows in args.rows for merge in args.merge]
    cases += [] if args.every else [(max(args.rows), "auto", "auto")]
    print(f"{args.rate:g} updates of random rows a second, {args.seconds:g} s each")
    print(" ".join(f"{head:>{width}}" for head, width in HEADS.items()))
    cpu: dict[tuple[int, str], float] = {}
    with postgres() as server:
        for rows, merge, every in cases:
            with server.database() as database:
                database.execute(
                    "CREATE TABLE beside (id int PRIMARY KEY);"
                    "CREATE TABLE t (id bigint PRIMARY KEY, n bigint, t text);"
                    f" INSERT INTO t SELECT i, 0, md5(i::text) FROM generate_series(0, {rows - 1}) i",
                    user="app",
                )
                options = {"merge": merge, "every": every}
                done, read = measured(database, options, rows, args.rate, args.seconds, args.worn)
                show(rows, merge, every, done, read)
                cpu.setdefault((rows, merge), done.cpu)
    for merge in args.merge:
        least, most = (cpu[of(args.rows), merge] for of in (min, max))
        keep(**{f"cpu_of_large_{merge}": most / least})
        print(f"{merge}: a change to the largest table costs {most / least:.2f} times that to the smallest")


if __name__ == "__main__":
    main()
