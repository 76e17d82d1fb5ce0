"""Cost of DDL that a mirror follows: an added column, rewritten rows, a look at many tables, many versions.

    python bench/evolve.py [--rows N] [--quarter N] [--tables N] [--versions N] [--marks N] [--only PART ...]

    add       a table of so many rows gets a column that is NULL in all: from its commit to the mark that has
              it, beside a mark's ordinary latency; no data file may come or go
    rewrite   a column is added with a value: the rows are written again in the lake while another table is
              written; rows a second, the other table's latency, and the peak of memory (PSS) of the whole
              tree, at all rows and at a quarter
    look      one look at so many tables, as each mark needs it: by the clock, and in processors' time, ours
              and that of the server's process
    versions  a table that was altered so often reads at any mark as one that never was

A latency is the time from a commit to its mark, as the mark tells both: nobody asks meanwhile, who would take
the processors that are measured. The first and the last line say how busy the machine is beside this.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psutil

from headrace.pipeline.state.records import source_of, tables_of
from headrace.sources import registry
from headrace_testing.figures import keep
from headrace_testing.memory import Peak
from headrace_testing.mirror_process import Mirrored
from headrace_testing.postgres import Database, postgres

PARTS = ("add", "rewrite", "look", "versions")
COLUMNS = "(id bigint PRIMARY KEY, a int, b text, c text, d numeric(12,2), e timestamptz, f boolean)"
VALUES = "i, i % 1000, 'text ' || i, md5(i::text), i / 7.0, now(), i % 2 = 0"
_SERVER_PROCESS = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE '%bench%'"
DEADLINE = 3600.0
POLL = 0.1


@dataclass
class Pulse:
    """A table that is written about five times a second, and how long its rows took to be in a mark."""

    mirror: Mirrored
    database: Database
    _over: threading.Event = field(default_factory=threading.Event)

    def beat(self) -> None:
        with self.database.connect(user="app") as connection:
            while not self._over.wait(0.2):
                connection.execute("INSERT INTO pulse DEFAULT VALUES")
                connection.commit()

    @contextmanager
    def beating(self) -> Iterator[list[float]]:
        """The latencies of the marks that bring what is written meanwhile, once it is over."""
        latencies: list[float] = []
        self._over, begun = threading.Event(), datetime.now(UTC)
        thread = threading.Thread(target=self.beat, daemon=True)
        thread.start()
        try:
            yield latencies
        finally:
            ended = datetime.now(UTC)
            self._over.set()
            thread.join()
            [(place,)] = self.database.execute("SELECT pg_current_wal_insert_lsn()")
            wait(partial(reached, self.mirror, str(place)))
            latencies.extend(latencies_of(self.mirror, begun, ended))


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(POLL)


def bytes_of(place: str) -> int:
    high, low = place.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def latencies_of(mirror: Mirrored, begun: datetime, ended: datetime) -> Iterator[float]:
    """Yield how long the first commit of each mark waited, if it was committed in between."""
    for mark in mirror.lake.marks():
        earliest = mark.upstream_earliest_commit_ts
        if earliest is not None and begun <= earliest <= ended and "public.pulse" in mark.versions:
            yield (mark.published_at - earliest).total_seconds()


def reached(mirror: Mirrored, place: str) -> bool:
    return mirror.lake.marks()[-1].time + 1 >= bytes_of(place)


def percentile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def processor(pid: int) -> float:
    """The seconds that a process and its children have used by now."""
    tree = psutil.Process(pid)
    times = [process.cpu_times() for process in (tree, *tree.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


def data_files(mirror: Mirrored) -> set[str]:
    return {path.name for path in (mirror.lake_path / "tables/main/public/big").glob("*.parquet")}


def has(mirror: Mirrored, column: str) -> bool:
    """Tell whether the newest mark has the table with this column."""
    cut = mirror.lake.at()
    return "public.big" in cut.tables() and column in cut.schema("public.big").names


def until_it_has(mirror: Mirrored, column: str, since: datetime) -> float:
    """The seconds until the first mark that has the table with this column."""
    wait(partial(has, mirror, column))
    later = [mark for mark in mirror.lake.marks() if mark.published_at > since]
    named = [mark for mark in later if "public.big" in mark.versions]
    with_it = (
        mark for mark in named if column in mirror.lake.at(epoch=mark.epoch).schema("public.big").names
    )
    return (next(with_it).published_at - since).total_seconds()


def filled(database: Database, rows: int) -> None:
    database.execute(f"CREATE TABLE big {COLUMNS}; CREATE TABLE pulse (id bigserial PRIMARY KEY)", user="app")
    database.execute(f"INSERT INTO big SELECT {VALUES} FROM generate_series(1, {rows}) i", user="app")


def altered(rows: int, parts: Sequence[str]) -> tuple[int, float]:
    """Measure a table of so many rows; return the peak of the rewrite, and its seconds."""
    with ExitStack() as stack:
        database = stack.enter_context(stack.enter_context(postgres()).database())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        filled(database, rows)
        mirror = stack.enter_context(
            closing(Mirrored(folder / "lake", database.url(user="app"), "public.*", options={"every": "0s"}))
        )
        mirror.start()
        mirror.until_live(within=DEADLINE)
        pulse = Pulse(mirror, database)
        with pulse.beating() as calm:
            time.sleep(15)
        if "add" in parts:
            add(mirror, database, rows, calm)
        return rewrite(pulse, database, rows, calm) if "rewrite" in parts else (0, 0.0)


def add(mirror: Mirrored, database: Database, rows: int, calm: Sequence[float]) -> None:
    before = data_files(mirror)
    begun = datetime.now(UTC)
    database.execute("ALTER TABLE big ADD COLUMN more text; INSERT INTO pulse DEFAULT VALUES", user="app")
    seconds = until_it_has(mirror, "more", begun)
    files = "no file written" if data_files(mirror) == before else "FILES WERE WRITTEN"
    print(
        f"add      {rows:>11,} rows  {seconds:6.2f} s to the mark (a mark: {statistics.median(calm):.2f} s), "
        f"{files}",
        flush=True,
    )


def rewrite(pulse: Pulse, database: Database, rows: int, calm: Sequence[float]) -> tuple[int, float]:
    mirror = pulse.mirror
    with Peak(mirror.pid) as peak, pulse.beating() as beside:
        used, begun = processor(mirror.pid), datetime.now(UTC)
        database.execute("ALTER TABLE big ADD COLUMN extra int DEFAULT 7", user="app")
        seconds = until_it_has(mirror, "extra", begun)
        used = processor(mirror.pid) - used
    quiet, busy = percentile(calm, 0.99), percentile(beside, 0.99)
    print(
        f"rewrite  {rows:>11,} rows  {seconds:6.1f} s, {rows / seconds / 1e6:.2f} M rows/s, "
        f"{used:.1f} s of processors; another's p99 "
        f"{busy:.2f} s, {busy / quiet:.1f} times {quiet:.2f}; peak {peak.bytes / 2**20:,.0f} MB",
        flush=True,
    )
    keep(million_rows_a_second=rows / seconds / 1e6, p99_beside=busy / quiet)
    return peak.bytes, seconds


def look(count: int) -> None:
    with ExitStack() as stack:
        database = stack.enter_context(stack.enter_context(postgres()).database())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for number in range(count):
            database.execute(f"CREATE TABLE t{number:04} {COLUMNS}", user="app")
        url = database.url(user="app")
        mirror = stack.enter_context(closing(Mirrored(folder / "lake", url, "public.*")))
        assert mirror.once(within=DEADLINE) == 0, mirror.log()
        records = mirror.lake.catalog()
        source, known = source_of(records), tables_of(records)
        assert source is not None
        kind = registry.by_kind(source.kind)
        session = stack.enter_context(closing(kind.connect(kind.address(url), role="bench")))
        tables = session.mirror(source.upstream)
        [(server,)] = database.execute(_SERVER_PROCESS)
        taken, ours, theirs = [], [], processor(server)
        for _ in range(30):
            begun, used = time.perf_counter(), time.process_time()
            check = tables.check({str(name): record.definition for name, record in known.items()})
            taken.append(time.perf_counter() - begun)
            ours.append(time.process_time() - used)
            assert not check.changes
        print(
            f"look     {count:>11,} tables  best {min(taken) * 1000:.0f} ms, median "
            f"{statistics.median(taken) * 1000:.0f}; processors: ours "
            f"{statistics.median(ours) * 1000:.0f} ms, the server's "
            f"{(processor(server) - theirs) / len(taken) * 1000:.0f}",
            flush=True,
        )


def versions(count: int, marks: int) -> None:
    with ExitStack() as stack:
        database = stack.enter_context(stack.enter_context(postgres()).database())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in ("altered", "plain"):
            database.execute(f"CREATE TABLE {name} {COLUMNS}", user="app")
            database.execute(
                f"INSERT INTO {name} SELECT {VALUES} FROM generate_series(1, 1000) i", user="app"
            )
        url = database.url(user="app")
        mirror = Mirrored(folder / "lake", url, "public.*", options={"every": "0s"})
        stack.enter_context(closing(mirror)).start()
        mirror.until_live()
        for number in range(marks):
            ddl = f"ALTER TABLE altered ADD COLUMN x{number} int;" if number % (marks // count) == 0 else ""
            database.execute(
                f"{ddl} UPDATE altered SET a = {number} WHERE id = {number % 1000 + 1};"
                f" UPDATE plain SET a = {number} WHERE id = {number % 1000 + 1}",
                user="app",
            )
            [(place,)] = database.execute("SELECT pg_current_wal_insert_lsn()")
            wait(partial(reached, mirror, str(place)))
        assert mirror.stop() == 0, mirror.log()
        epochs = [mark.epoch for mark in mirror.lake.marks() if len(mark.versions) == 2]
        sample = epochs[:: max(1, len(epochs) // 50)]
        taken = {name: [opened(mirror, epoch, name) for epoch in sample] for name in ("plain", "altered")}
        plain, more = (statistics.median(taken[name]) for name in ("plain", "altered"))
        print(
            f"versions {count:>11,} of a table, {len(epochs)} marks: at any of them {more * 1000:.0f} ms, "
            f"{more / plain:.2f} times {plain * 1000:.0f} (worst {max(taken['altered']) * 1000:.0f}, "
            f"{max(taken['plain']) * 1000:.0f})",
            flush=True,
        )


def opened(mirror: Mirrored, epoch: int, name: str) -> float:
    begun = time.perf_counter()
    assert mirror.lake.at(epoch=epoch).arrow(f"public.{name}").num_rows == 1000
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of DDL that is followed")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--quarter", type=int, help="rows of the smaller table; 0: none")
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--versions", type=int, default=50)
    parser.add_argument("--marks", type=int, default=500)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    quarter = args.rows // 4 if args.quarter is None else args.quarter
    if "rewrite" in args.only and quarter:
        smaller, _ = altered(quarter, ["rewrite"])
        whole, _ = altered(args.rows, args.only)
        print(f"memory   {whole / smaller:.2f} times that of {quarter:,} rows", flush=True)
        keep(memory_of_quarter=whole / smaller)
    elif {"add", "rewrite"} & set(args.only):
        altered(args.rows, args.only)
    if "look" in args.only:
        look(args.tables)
    if "versions" in args.only:
        versions(args.versions, args.marks)
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
