"""The process of one PostgreSQL server: started, stopped in three ways, killed, never left behind.

`headrace_testing.postgres` builds a cluster around it. Signals go to the server by its process id, as
`pg_ctl` would send them; readiness is what the server itself writes into `postmaster.pid`.

    SIGINT   fast      open transactions are aborted, a checkpoint is written
    SIGQUIT  immediate no checkpoint: the next start replays the log
    SIGKILL  crash     the server and every one of its children at one moment, as a power cut would

A test run that is killed cannot clean up: the watchdog (`testing.watchdog`) does it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from headrace_testing.binaries import Binaries, ServerUser, missing
from headrace_testing.watchdog import start_watchdog

DEADLINE = 60.0


def wait_for(condition: Callable[[], bool], what: str, *, deadline: float = DEADLINE) -> None:
    """Look until the condition holds; past the deadline say what it was that did not come."""
    end = time.monotonic() + deadline
    while not condition_holds(condition):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {deadline:g} s")


def condition_holds(condition: Callable[[], bool], least: float = 0.01, most: float = 2.0) -> bool:
    """Ask once, and if it does not hold, wait for a moment.

    Asking costs those who are waited for time on the same cores: it takes no more than a fifth, unless an
    answer takes very long itself, which says that something stalls and not what asking costs.
    """
    asked = time.monotonic()
    if condition():
        return True
    time.sleep(min(max(least, 4 * (time.monotonic() - asked)), most))
    return False


class Postmaster:
    """A server process over `<folder>/data`, with its log in `<folder>/log`."""

    def __init__(self, binaries: Binaries, folder: Path) -> None:
        self.binaries = binaries
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "log"
        self._user = ServerUser.choose()
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog = start_watchdog(folder, folder / "data/postmaster.pid", signal.SIGQUIT)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    def start(self) -> None:
        """Start the server and return when it accepts connections."""
        if self.running:
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [self.binaries["postgres"], "-D", self.data],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self._user.uid,
                group=self._user.gid,
                extra_groups=None if self._user.uid is None else [],
                # Its own session: a Ctrl-C on our terminal is not meant for the server.
                start_new_session=True,
            )
        wait_for(self._ready_or_dead, "the server accepts connections")
        if not self.running:
            raise missing("it did not start", detail=self.log.read_text(errors="replace")[-2000:])

    def send(self, number: signal.Signals) -> None:
        """Send the server process a signal, for example SIGSTOP and SIGCONT."""
        os.kill(self.pid, number)

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stop the server with that signal and return when it is gone."""
        if self._process is not None and self.running:
            self._process.send_signal(number)
            self._process.wait(DEADLINE)
        self._process = None

    def crash(self) -> None:
        """Kill the server and all of its children at one moment."""
        if self._process is None or not self.running:
            return
        # Stopped first, so that it can neither react to a child's death nor fork another.
        self.send(signal.SIGSTOP)
        children = _children(self.pid)
        for pid in (self.pid, *children):
            _kill(pid)
        self._process.wait(DEADLINE)
        self._process = None
        # The next start refuses while a child still holds the shared memory.
        wait_for(lambda: not any(map(_alive, children)), "the server's children are gone")

    def close(self) -> None:
        """Kill the server, remove its folder, end the watchdog."""
        self.crash()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._watchdog.stdin is not None:
            self._watchdog.stdin.close()
        self._watchdog.wait(DEADLINE)

    def _ready_or_dead(self) -> bool:
        if not self.running:
            return True
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        # A stale file of a crashed server stands until the new one has overwritten it.
        return len(lines) > 7 and lines[0] == str(self.pid) and lines[7].strip() == "ready"


def _children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _stat(int(entry.name))[1:2] == [str(parent)]:
            found.append(int(entry.name))
    return found


def _alive(pid: int) -> bool:
    """Tell whether the process still runs: one that only waits to be reaped does not."""
    return _stat(pid)[:1] not in ([], ["Z"])


def _stat(pid: int) -> list[str]:
    """State, parent, ... of a process: the fields after its name; nothing if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
