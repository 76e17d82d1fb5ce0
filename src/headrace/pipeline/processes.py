"""The memory and the CPU time of a run's processes, by role, as Linux tells them under /proc.

    driver      this process               receiver    the child that takes the stream
    jvm         Java below this process    workers     Python below that Java

CPU time of a process that ended stays in the sum of its role, so the sum never falls while the run goes on.
Where there is no /proc, or Spark runs elsewhere, there is nothing to tell.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from headrace.lake.format.status import ProcessStatus

EVERY_SECONDS = 5.0
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class _Process:
    """A process as its line in /proc tells it."""

    pid: int
    name: str
    parent: int
    cpu_seconds: float
    begun_at: int
    resident_bytes: int


@dataclass(slots=True)
class Processes:
    """The use of this run's processes; looked at once in `EVERY_SECONDS`."""

    status: Mapping[str, ProcessStatus] = field(default_factory=dict)
    _looked_at: float = -EVERY_SECONDS
    _receiver: int | None = None
    _cpu_seconds: dict[tuple[int, int], float] = field(default_factory=dict)  # CPU seconds by process
    _sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def look(self, receiver: int | None) -> Mapping[str, ProcessStatus]:
        """Tell the use by role, at most some seconds old."""
        if receiver != self._receiver or monotonic() - self._looked_at >= EVERY_SECONDS:
            self._looked_at, self._receiver = monotonic(), receiver
            self._count(receiver)
        return self.status

    def _count(self, receiver: int | None) -> None:
        resident: defaultdict[str, int] = defaultdict(int)
        known: dict[tuple[int, int], float] = {}
        for role, process in _roles(receiver):
            key = (process.pid, process.begun_at)
            known[key] = process.cpu_seconds
            self._sums[role] += max(0.0, process.cpu_seconds - self._cpu_seconds.get(key, 0.0))
            resident[role] += process.resident_bytes
        self._cpu_seconds = known
        self.status = {
            role: ProcessStatus(resident[role], round(seconds, 2)) for role, seconds in self._sums.items()
        }


def _roles(receiver: int | None) -> Iterator[tuple[str, _Process]]:
    """This process and those below it that have a role."""
    children: defaultdict[int, list[_Process]] = defaultdict(list)
    own: _Process | None = None
    for process in _processes():
        children[process.parent].append(process)
        own = process if process.pid == os.getpid() else own
    if own is None:
        return
    yield "driver", own
    below = [(each, False) for each in children[own.pid]]
    while below:
        process, in_jvm = below.pop()
        if process.pid == receiver:
            yield "receiver", process
        elif process.name == "java":
            yield "jvm", process
        elif in_jvm:
            yield "workers", process
        below += [(each, in_jvm or process.name == "java") for each in children[process.pid]]


def _processes() -> Iterator[_Process]:
    tick = os.sysconf("SC_CLK_TCK")
    page = os.sysconf("SC_PAGE_SIZE")
    try:
        entries = [entry for entry in os.listdir(_PROC) if entry.isdigit()]
    except OSError:
        return
    for entry in entries:
        try:
            head, _, rest = (_PROC / entry / "stat").read_text().rpartition(")")
        except (OSError, UnicodeDecodeError):
            continue  # it ended meanwhile
        fields = rest.split()
        yield _Process(
            pid=int(entry),
            name=head.partition("(")[2],
            parent=int(fields[1]),
            cpu_seconds=(int(fields[11]) + int(fields[12])) / tick,
            begun_at=int(fields[19]),
            resident_bytes=int(fields[21]) * page,
        )
