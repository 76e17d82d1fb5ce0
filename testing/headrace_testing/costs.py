"""The cost of a mirror that runs: processor time and memory of its processes, files and bytes of its lake."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from headrace_testing.memory import of_process

_CACHES = ("spool", "status", "requests")
ROLES = ("driver", "receiver", "jvm", "workers")


def processes(pid: int) -> Iterator[tuple[str, psutil.Process]]:
    """The processes of a mirror with their roles."""
    driver = psutil.Process(pid)
    yield "driver", driver
    for child in driver.children(recursive=True):
        try:
            ancestors = [each.name() for each in child.parents()]
        except psutil.NoSuchProcess:
            continue
        yield ("jvm" if child.name() == "java" else "workers" if "java" in ancestors else "receiver"), child


def processor(pid: int) -> dict[str, float]:
    """The seconds that a process and its children have used by now, by role."""
    used: dict[str, float] = {}
    for role, process in processes(pid):
        times = process.cpu_times()
        used[role] = used.get(role, 0.0) + times.user + times.system
    return used


def own_processor() -> dict[str, float]:
    """The seconds of this process and its children by role, with those that have ended, without servers."""
    used = dict.fromkeys(ROLES, 0.0)
    for role, process in processes(os.getpid()):
        with suppress(psutil.NoSuchProcess):
            if process.name() == "postgres":  # the servers are children of this process as well
                continue
            times = process.cpu_times()
            used[role] += times.user + times.system
            used["receiver" if role == "driver" else "workers"] += times.children_user + times.children_system
    return used


def of_command(*command: str) -> tuple[float, str]:
    """The seconds of processors that a command takes, in starts of this interpreter, and what it prints.

    A start is the dearest of three: a machine may be slow, and be busy with other things.
    """
    starts = [_timed(sys.executable, "-c", "pass")[0] for _ in range(3)]
    seconds, said = _timed(*command)
    return seconds / max(starts), said


def _timed(*command: str) -> tuple[float, str]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, said


def memory(pid: int, part: str = "Pss") -> dict[str, int]:
    """The memory of a process and its children by role, a page that processes share counted once in all."""
    used = dict.fromkeys(ROLES, 0)
    for role, process in processes(pid):
        used[role] += of_process(process.pid, part)
    return used


def contents(lake: Path) -> tuple[int, int]:
    """The files of a lake and their bytes, without what is written over and over."""
    caches = tuple(str(lake / "_headrace" / name) for name in _CACHES)
    sizes = [
        path.stat().st_size for path in lake.rglob("*") if path.is_file() and not str(path).startswith(caches)
    ]
    return len(sizes), sum(sizes)
