"""Tasks that leave the processors to others: behind them, or only in the time that nobody else wants.

    in_background   a tenth of the weight of others. For tasks that read a source: their snapshot keeps old
                    rows there as long as it lasts, so they go on beside a stream that is never idle
    in_spare_time   only while no other thread wants the processor. For tasks in the lake alone. Any other
                    thread gets the processor at once, and not after the task's turn of milliseconds: a mark
                    needs one some dozens of times

Spare time may never come. So each task reports its share of a processor: after a task that got next to
nothing, the tasks of this worker run in the background, until one of them had a processor most of the time.

Each task runs in a thread of its own: on Linux both priorities belong to a thread, and only root can raise
them again. Elsewhere they belong to the process, which also serves other tasks, so nothing is done there. An
executor with another version of this package is found before (`warmth`).

A thread inherits its maker's niceness, and keeps it. Libraries make theirs when they are first used, for as
long as the process lives: made by a thread that has stepped back, they would serve every later task of the
worker behind all others. So a worker has them made (`raise_pools`) when it is warmed, or, where it came later
(another one died, an executor was added), before its first task in the background.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import TypeVar

from headrace.spark.worker import Task

NICENESS = 10  # a tenth of the weight of a thread that has none

CROWDED = 10.0  # seconds: what took less than that was not held up by anything
NEXT_TO_NOTHING, MOST = 0.1, 0.5  # of the time of one processor

_crowded = False  # spare time hardly came, when it was last waited for

T = TypeVar("T")


def in_background(task: Task, item: bytes) -> bytes | list[bytes]:
    """Run the task so that others have ten times as much of a processor that both want."""
    return _in_thread(_step_back, lambda: task(item))


def in_spare_time(task: Task, item: bytes) -> bytes | list[bytes]:
    """Run the task so that it has a processor only while nobody else wants it, as long as that is enough."""
    global _crowded
    how = _step_back if _crowded else _step_aside
    made, seconds, share = _in_thread(how, lambda: _time_work(lambda: task(item)))
    _crowded = is_crowded(_crowded, seconds, share)
    return made


def is_crowded(before: bool, seconds: float, share: float) -> bool:
    """Tell whether the next task waits for no spare time, after one that had this share of a processor."""
    return share < MOST if before else seconds > CROWDED and share < NEXT_TO_NOTHING


def _in_thread(prepare: Callable[[], None], work: Callable[[], T]) -> T:
    raise_pools()
    with ThreadPoolExecutor(1, "headrace-background", prepare) as thread:
        return thread.submit(work).result()


def _time_work(work: Callable[[], T]) -> tuple[T, float, float]:
    """The work's result, how long it took, and the share of a processor that it had."""
    begun = time.monotonic()
    used = time.thread_time()  # read within the seconds: the share of a short task is never above 1
    made = work()
    used = time.thread_time() - used
    seconds = time.monotonic() - begun
    return made, seconds, used / max(seconds, 1e-9)


def _step_back() -> None:
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may forbid it: then it goes as fast as the others
            os.nice(NICENESS)


def _step_aside() -> None:
    _step_back()
    if sys.platform == "linux":
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # 0: this thread


@cache
def raise_pools() -> None:
    """Have the libraries make their threads now; once a process."""
    import polars
    import pyarrow
    from pyarrow import parquet

    polars.DataFrame({"a": [1]}).lazy().sort("a").collect()
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table({f"c{number}": [number] for number in range(64)}), sink)
    parquet.read_table(pyarrow.BufferReader(sink.getvalue()))
