"""The process of one MySQL or MariaDB server: started, stopped, killed, never left behind.

`server` builds on it. The folder holds `data`, `tmp`, `my.cnf`, the socket `s`, `log`, and `pid`, which the
server writes. A process is found by its id alone: its name is that of its loader.

    SIGTERM  stop    waits for nobody's transaction; the log is closed, the pages are written
    SIGKILL  crash   the next start recovers from the logs

A test run that is killed cannot clean up: the watchdog (`testing.watchdog`) does it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pymysql

from headrace_testing.mysql.programs import Programs, child_environment, missing
from headrace_testing.postmaster import DEADLINE, wait_for
from headrace_testing.watchdog import start_watchdog


class Process:
    """A server process over `<folder>/data`."""

    def __init__(self, programs: Programs, folder: Path) -> None:
        self.programs = programs
        self.folder = folder
        self.data = folder / "data"
        self.settings = folder / "my.cnf"
        self.socket = folder / "s"
        self.pid_file = folder / "pid"
        self.log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        # Ours, written at once: the server's own comes late in its start.
        self._started = folder / "started"
        self._watchdog = start_watchdog(folder, self._started, signal.SIGKILL)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id that the server wrote."""
        if not self.running:
            raise RuntimeError("the server is not running")
        return int(self.pid_file.read_text())

    def start(self) -> None:
        """Start the server and return when it accepts connections."""
        if self.running:
            return
        self.pid_file.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self.programs.command(self.programs.flavour.server), f"--defaults-file={self.settings}"],
                cwd=self.data,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=child_environment(),
                # Its own session: a Ctrl-C on our terminal is not meant for the server.
                start_new_session=True,
            )
        self._started.write_text(f"{self._process.pid}\n")
        wait_for(self._ready_or_dead, "the server accepts connections")
        if not self.running:
            said = self.log.read_text(errors="replace")[-2000:]
            raise missing(self.programs.flavour, "it did not start", detail=said)

    def send(self, number: signal.Signals) -> None:
        """Send the server process a signal, for example SIGSTOP and SIGCONT."""
        os.kill(self.pid, number)

    def stop(self) -> None:
        """Shut the server down and return when it is gone."""
        self._end(signal.SIGTERM)

    def crash(self) -> None:
        """Kill the server."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """Kill the server, remove its folder, end the watchdog."""
        self.crash()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._watchdog.stdin is not None:
            self._watchdog.stdin.close()
        self._watchdog.wait(DEADLINE)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None and self.running:
            self._process.send_signal(number)
            self._process.wait(DEADLINE)
        self._process = None

    def _ready_or_dead(self) -> bool:
        if not self.running:
            return True
        # A server that still recovers has no such file, or no socket, or refuses.
        if not self.pid_file.exists():
            return False
        try:
            pymysql.connect(unix_socket=str(self.socket), user="root", ssl_disabled=True).close()
        except pymysql.err.OperationalError:
            return False
        return True
