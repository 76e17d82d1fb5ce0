"""Time of a small job at steady state: the fixed price of an epoch that runs on Spark.

    python bench/spark_round_trip.py [--master local[*]] [--jobs 60] [--java-options=OPTIONS]

One item, one task, warm workers: the median is to stay under 150 ms on a machine of two cores. Beside
it, in the same run: the same function in the driver, a job with a shuffle, an item for each slot, and,
as the peer, the round trip of Spark itself without any Python worker (a range, collected). Below stand the
CPU seconds of each process; `--java-options=-XX:+UseG1GC` and its like take the place of our options of Java.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from headrace.spark.jobs import DriverRunner, Runner
from headrace.spark.session import SparkConfig, open_session
from headrace.spark.warmth import warm
from headrace_testing.costs import memory, processor
from headrace_testing.figures import keep

BAR_MS = 150.0
_SETTLE = 10


def same(item: bytes) -> bytes:
    """The item; the work is nothing, so that what is measured is the job."""
    return item


def alone(item: bytes) -> Iterator[tuple[str, int, bytes]]:
    """The item as the only blob of its group."""
    yield item.decode(), 0, item


def passed(group: str, blobs: Iterator[bytes]) -> Iterator[bytes]:
    """The blobs of a group as they come."""
    yield from blobs


def measure(job: Callable[[], object], jobs: int) -> list[float]:
    """Milliseconds of each of so many jobs, in ascending order, after some that are not counted."""
    taken: list[float] = []
    for number in range(_SETTLE + jobs):
        started = time.perf_counter()
        job()
        if number >= _SETTLE:
            taken.append((time.perf_counter() - started) * 1000)
    return sorted(taken)


def report(name: str, taken: list[float]) -> float:
    """Prints a line of the table; the median."""
    median = statistics.median(taken)
    late = taken[int(len(taken) * 0.95)]
    print(f"{name:42} {taken[0]:8.1f} {median:8.1f} {late:8.1f}")
    return median


def main() -> int:
    """Measures, prints the table and whether the bar is held; 1 if it is not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--master", default=None)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--java-options", default=None)
    chosen = parser.parse_args()
    options = chosen.java_options
    conf = {} if options is None else {"spark.driver.extraJavaOptions": options}
    with open_session(SparkConfig(master=chosen.master, conf=conf)) as session:
        runner, driver = Runner(session), DriverRunner()
        started = time.perf_counter()
        workers = warm(runner)
        print(f"{workers} workers of {runner.at_once} slots warm after {time.perf_counter() - started:.1f} s")
        print(f"CPU seconds until then: {_cpu()}")
        print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
        print(f"{'milliseconds':42} {'min':>8} {'median':>8} {'p95':>8}")
        median = report("one item, one job", measure(lambda: runner.run(same, [b"a"]), chosen.jobs))
        slots = [b"a"] * runner.at_once
        report("an item for each slot, one job", measure(lambda: runner.run(same, slots), chosen.jobs))
        report("split, shuffle, merge, one job", measure(_grouped(runner), chosen.jobs))
        report("one item in the driver, no Spark", measure(lambda: driver.run(same, [b"a"]), chosen.jobs))
        report("peer: Spark alone, no Python worker", measure(_plain(session.jobs), chosen.jobs))
        print(f"\nCPU seconds: {_cpu()}; {sum(memory(os.getpid()).values()) / 1e6:.0f} MB")
    keep(one_item_ms=median)
    print(f"\nbar: median of one item {median:.0f} ms, to be under {BAR_MS:.0f} ms")
    return 0 if median < BAR_MS else 1


def _cpu() -> str:
    return ", ".join(f"{name} {seconds:.1f}" for name, seconds in processor(os.getpid()).items())


def _grouped(runner: Runner) -> Callable[[], object]:
    return lambda: runner.run_grouped(alone, passed, [b"a", b"b"])


def _plain(spark: object) -> Callable[[], object]:
    return lambda: spark.range(1).toArrow()  # type: ignore[attr-defined]


if __name__ == "__main__":
    # Tasks travel by the name of their module: workers cannot import "__main__", but this.
    root = str(Path(__file__).resolve().parents[1])
    sys.path.insert(0, root)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    raise SystemExit(importlib.import_module("bench.spark_round_trip").main())
