"""The memory that processes take, at most, while something goes on.

    with Peak(pid) as peak:         a process with all that it started
        ...
    assert peak.bytes < 3 << 30

    with ReaderPeak() as peak:      the processes in which Spark runs the readers of our streaming queries

`Peak` measures the proportional set size, in which a page that processes share counts once in all: what the
machine would get back if they all ended. Linux says it for each process in `/proc/<pid>/smaps_rollup`.
`ReaderPeak` measures the resident memory of the largest.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import psutil

EVERY_SECONDS = 0.25


class Peak:
    """Watches a process and its descendants from a thread of its own."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.bytes = 0

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(EVERY_SECONDS):
            self.bytes = max(self.bytes, self._measure())

    def _measure(self) -> int:
        return proportional(self._pid)


class ReaderPeak(Peak):
    """Watches the processes of the streaming queries that this process has started."""

    def __init__(self) -> None:
        super().__init__(os.getpid())

    def _measure(self) -> int:
        found = 0
        for process in psutil.Process(self._pid).children(recursive=True):
            with suppress(psutil.Error):
                if any("python_streaming_source_runner" in word for word in process.cmdline()):
                    found = max(found, process.memory_info().rss)
        return found


def proportional(pid: int) -> int:
    """The proportional set size of a process and its descendants, in bytes; 0 if it is gone."""
    try:
        processes = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        return 0
    return sum(of_process(each) for each in processes)


def of_process(pid: int, part: str = "Pss") -> int:
    """The proportional set size of one process.

    Part "Pss_File" is pages of mapped files, which the kernel takes back when others need the memory.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended, or is another user's
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(f"{part}:")) << 10
