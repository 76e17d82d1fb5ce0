"""Cost of metrics and the page: their own times, and what their clients cost a run.

    python bench/page.py [--tables N] [--clients N] [--turns N] [--seconds N] [--only PART ...]

    answers    `headrace serve` beside a lake of so many tables: the time of each path, and the bytes that a
               browser receives for the first page and for the list of tables
    rest       the same process at rest: memory, and the share of a core
    help       `headrace --help`, from the call to its end
    clients    a run that serves its own page, and an application that commits 50 times a second: how long
               from the return of COMMIT to the mark that has it, in turns without clients and with so many
               of them, each of which asks for one path a second. The turns alternate (none, some, some,
               none, ...), so that what else the machine does falls on both; shown are the medians of the
               turns, and how far turns of one kind differ. A difference below that shows nothing.

The bars of decision 0060 stand beside the figures. The load of the machine is shown before each part.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import http.client
import multiprocessing
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.synchronize import Event
from pathlib import Path

import psutil

from headrace.lake.format import formatfile, statusfile
from headrace.lake.format.status import EpochStatus, PositionStatus, SourceStatus, TableStatus, TotalsStatus
from headrace.lake.store.open import open_store
from headrace_testing.figures import keep
from headrace_testing.mirror_process import Mirrored
from headrace_testing.ports import free_port
from headrace_testing.postgres import Database, postgres

PARTS = ("answers", "rest", "help", "clients")
PATHS = ("/", "/tables", "/metrics", "/api/status")
BARS = {"/metrics": "0.2 s", "/": "0.3 s", "/tables": "0.3 s"}
ASSETS = ("/assets/page.css", "/assets/page.js", "/assets/icon.svg")
RATE = 50  # transactions a second
WARM = 5.0  # seconds that do not count, at the beginning of a turn 1.0
SETTLE = 1.0
REPEAT = 15


# --- serve ----------------------------------------------------------------------------------------


def write_lake(folder: Path, tables: int) -> None:
    """A lake in which a run of so many tables wrote its status just now."""
    now = datetime.now(UTC).isoformat()
    known = {
        f"public.table_{number:04d}": TableStatus(
            "live", "rewind", rows=number, last_change=now, files=1, size_bytes=4711
        )
        for number in range(tables)
    }
    said = SourceStatus(
        "main", "running", owner={"pid": 1, "host": "here"}, position=PositionStatus(), tables=known,
        epochs=EpochStatus(newest=7), marked_at=now, totals=TotalsStatus(7, 1, 1, {"stream": 7}),
    )  # fmt: skip
    store = open_store(str(folder))
    formatfile.create_lake(store)
    statusfile.write(store, "main", said)


@contextmanager
def serve(lake: Path) -> Iterator[tuple[int, int]]:
    """A process of `headrace serve`: its port, and its id."""
    command = [sys.executable, "-m", "headrace", "serve", "--listen", "127.0.0.1:0", "--lake", str(lake)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        yield port, process.pid
        process.terminate()


def get(port: int, path: str) -> tuple[float, int, int]:
    """Ask once: the seconds, the bytes as they were sent, and unpacked."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    begun = time.perf_counter()
    connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    body = answer.read()
    seconds = time.perf_counter() - begun
    connection.close()
    assert answer.status == 200, (path, answer.status)
    zipped = answer.getheader("Content-Encoding") == "gzip"
    return seconds, len(body), len(gzip.decompress(body)) if zipped else len(body)


def answers(port: int) -> None:
    for path in PATHS:
        times = []
        for _ in range(REPEAT):
            time.sleep(1.05)  # past what clients share
            seconds, sent, whole = get(port, path)
            times.append(seconds)
        bar = f" (bar {BARS[path]})" if path in BARS else ""
        print(
            f"  {path:12} median {statistics.median(times):.3f} s, least {min(times):.3f} s{bar};"
            f" {sent / 1000:,.0f} kB sent, {whole / 1000:,.0f} kB unpacked",
            flush=True,
        )
    assets = sum(get(port, path)[1] for path in ASSETS)
    for path in ("/", "/tables"):
        kilobytes = (get(port, path)[1] + assets) / 1000
        print(f"  {path:12} with style, script and icon: {kilobytes:,.0f} kB (bar 150 kB)")


def rest(pid: int, seconds: float) -> None:
    process = psutil.Process(pid)
    before, begun = sum(process.cpu_times()[:2]), time.monotonic()
    time.sleep(seconds)
    used = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - begun)
    size = process.memory_info().rss / 1e6
    keep(serve_mb=size, serve_cores=used)
    print(f"  at rest      {size:.0f} MB (bar 80 MB), {used:.4f} of a core (bar 0.01)", flush=True)


def show_help() -> None:
    times, before = [], resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(REPEAT):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-m", "headrace", "--help"], check=True, capture_output=True)
        times.append(time.perf_counter() - begun)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / REPEAT
    keep(help_seconds=statistics.median(times))
    print(
        f"  --help       median {statistics.median(times):.2f} s, least {min(times):.2f} s (bar 0.3 s);"
        f" {used:.2f} s of processor time",
        flush=True,
    )


# --- clients of a run -----------------------------------------------------------------------------


async def _poll(port: int, number: int, clients: int, asking: Event) -> None:
    """Ask for one path a second, on a connection that is kept, while it is asked for."""
    reader: asyncio.StreamReader | None = None
    writer: asyncio.StreamWriter | None = None
    path = PATHS[number % len(PATHS)]
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n".encode()
    while True:
        await asyncio.sleep(number / clients - time.time() % 1 + 1)
        if not asking.is_set():
            continue
        with suppress(OSError, asyncio.IncompleteReadError):
            if reader is None or writer is None:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head)
            said = await reader.readuntil(b"\r\n\r\n")
            found = re.search(rb"(?i)content-length: (\d+)", said)
            await reader.readexactly(int(found[1]) if found else 0)
            continue
        reader = writer = None


def poll(port: int, clients: int, asking: Event) -> None:
    """The life of the process of all clients."""

    async def every_client() -> None:
        await asyncio.gather(*(_poll(port, number, clients, asking) for number in range(clients)))

    asyncio.run(every_client())


@dataclass
class Turn:
    """A stretch of time with clients or without."""

    has_clients: bool
    keys: range = range(0)
    delays: list[float] = field(default_factory=list)
    cores: float = 0.0  # that the run used

    @property
    def median(self) -> float:
        return statistics.median(self.delays)


def commit_paced(database: Database, seconds: float, first: int, at: dict[int, float]) -> int:
    """Commit at the rate, and note when each COMMIT returned; the next free key."""
    with database.connect() as writer:
        writer.autocommit = True
        begun = time.monotonic()
        for number in range(int(seconds * RATE)):
            time.sleep(max(0.0, begun + number / RATE - time.monotonic()))
            writer.execute(b"INSERT INTO t VALUES (%d, 'note')" % first)
            at[first] = time.time()
            first += 1
    return first


def measure_turns(database: Database, clients: int, turns: int, seconds: float) -> list[Turn]:
    """Turns of one run: none, some, some, none, and so on."""
    port, asking, at = free_port(), multiprocessing.get_context("spawn").Event(), {}  # type: ignore[var-annotated]
    found = [Turn(number % 4 in (1, 2)) for number in range(turns)]
    with tempfile.TemporaryDirectory() as folder:
        mirror = Mirrored(Path(folder, "lake"), database.url(user="app"), "public.t")
        mirror.start("--listen", f"127.0.0.1:{port}")
        asker = multiprocessing.get_context("spawn").Process(
            target=poll, args=(port, clients, asking), daemon=True
        )
        asker.start()
        try:
            mirror.until_live()
            key = commit_paced(database, WARM, 1, at)
            for turn in found:
                (asking.set if turn.has_clients else asking.clear)()
                key = commit_paced(database, SETTLE, key, at)
                first, used = key, _processor(mirror.pid)
                key = commit_paced(database, seconds, key, at)
                turn.keys, turn.cores = range(first, key), (_processor(mirror.pid) - used) / seconds
            mirror.until(lambda: len(mirror.lake.history("public.t")) == len(at), "all of the rows")
            rows = mirror.lake.history("public.t").select(["id", "_time"]).to_pylist()
            marks = mirror.lake.marks()
        finally:
            asker.kill()
            mirror.close()
    times = [mark.time for mark in marks]
    marked = {row["id"]: marks[bisect_left(times, row["_time"])].published_at.timestamp() for row in rows}
    for turn in found:
        turn.delays = [marked[key] - at[key] for key in turn.keys]
    return found


def _processor(pid: int) -> float:
    tree = psutil.Process(pid)
    return float(sum(sum(each.cpu_times()[:2]) for each in (tree, *tree.children(recursive=True))))


def show_turns(turns: Sequence[Turn], clients: int) -> None:
    medians = {}
    for has_clients in (False, True):
        these = [turn for turn in turns if turn.has_clients is has_clients]
        own = sorted(turn.median for turn in these)
        medians[has_clients] = statistics.median(own)
        what = f"{clients} clients" if has_clients else "none"
        print(
            f"  {what:12} p50 {medians[has_clients]:.3f} s (turns {own[0]:.3f} to {own[-1]:.3f});"
            f" the run used {statistics.median(turn.cores for turn in these):.2f} cores"
        )
    pairs = [
        (two.median if two.has_clients else one.median) / (one.median if two.has_clients else two.median) - 1
        for one, two in zip(turns[::2], turns[1::2], strict=False)
    ]
    keep(slower_with_clients=statistics.median(pairs))
    alike = [turn.median for turn in turns if not turn.has_clients]
    print(
        f"  with clients {medians[True] / medians[False] - 1:+.1%}, median of {len(pairs)} pairs"
        f" {statistics.median(pairs):+.1%} (bar +5 %); turns without clients differ by"
        f" {max(alike) / min(alike) - 1:.0%} among themselves",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of metrics and the page")
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--turns", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    args = parser.parse_args()
    if {"answers", "rest"} & set(args.only):
        print(f"headrace serve, {args.tables:,} tables; load {os.getloadavg()[0]:.1f}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            write_lake(Path(folder), args.tables)
            with serve(Path(folder)) as (port, pid):
                if "answers" in args.only:
                    answers(port)
                if "rest" in args.only:
                    rest(pid, 20.0)
    if "help" in args.only:
        print(f"headrace --help; load {os.getloadavg()[0]:.1f}", flush=True)
        show_help()
    if "clients" in args.only:
        print(
            f"a run that serves, {args.turns} turns of {args.seconds:g} s; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        with postgres() as server, server.database() as database:
            database.execute("CREATE TABLE t (id bigint PRIMARY KEY, note text)", user="app")
            turns = measure_turns(database, args.clients, args.turns, args.seconds)
        show_turns(turns, args.clients)
        print(f"  load then {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
