"""A mirror at work, as a process of its own: what a user starts, and what a test may kill.

    with Mirrored(lake, "postgresql://...", "public.*") as mirror:
        mirror.until_live()            every table exact in the newest mark
        mirror.kill()                  as by kill -9
        mirror.start()                 again, on the same lake

The process is `headrace run` with the password in its environment, so that what is tested is what is
documented. Its output is kept and shown when something was waited for in vain.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol

from headrace.core.errors import HeadraceError
from headrace.lake.read.lake import Lake
from headrace.status.picture import SourcePicture, pictures
from headrace_testing.oracle.registry import oracle_of
from headrace_testing.postmaster import condition_holds

DEADLINE = 300.0


class Process(Protocol):
    """A process, in the words of `subprocess.Popen`."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, number: int, /) -> None: ...


# Starts the command line in a session of its own: arguments, environment, where it says what it says.
Program = Callable[[Sequence[str], Mapping[str, str], IO[bytes]], Process]


def interpreter(*module: str) -> Program:
    """`python -m`: the command line, or a module that is it but for one thing."""

    def start(arguments: Sequence[str], environment: Mapping[str, str], log: IO[bytes]) -> Process:
        return subprocess.Popen(
            [sys.executable, "-m", *module, *arguments],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    return start


COMMAND = interpreter("headrace.cli.main")


class Mirrored:
    """A `headrace run` that tests start, watch and end."""

    def __init__(
        self,
        lake: Path | str,
        url: str,
        *tables: str,
        environment: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        spark: Mapping[str, Any] | None = None,
        program: Program = COMMAND,
        deadline: float = DEADLINE,
    ) -> None:
        self._deadline = deadline  # for whatever is waited for without another one
        self._where = str(lake)
        self.lake_path = Path(lake)  # where it is a directory
        self._program = program
        login = oracle_of(url).login(url)
        ours = {**login.environment, "PYTHONFAULTHANDLER": "1"}
        self._environment = {**os.environ, **(environment or {}), **ours}
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-mirrored-")
        self._config = Path(self._folder.name, "headrace.toml")
        source = {"url": login.address, "tables": list(tables), "every": "0s", **(options or {})}
        self._config.write_text(_toml(self._where, source, {"master": "local[2]", **(spark or {})}))
        self._log = Path(self._folder.name, "log")
        self._process: Process | None = None

    def __enter__(self) -> Mirrored:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it, and forget its configuration and its output."""
        self.kill()
        self._folder.cleanup()

    # --- the process ----------------------------------------------------------------------------

    def start(self, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        """Run it (again)."""
        assert not self.running
        with self._log.open("ab") as log:
            command = ["run", "--config", str(self._config), *arguments]
            self._process = self._program(command, self._environment | dict(environment or {}), log)

    @contextmanager
    def held_up(self, where: str) -> Iterator[None]:
        """Run it; it stands at that fail point while the block runs, and goes on afterwards."""
        release = Path(self._folder.name, f"release-{len(list(Path(self._folder.name).iterdir()))}")
        self.start(
            environment={"HEADRACE_FAILPOINT": f"{where}=pause", "HEADRACE_FAILPOINT_RELEASE": str(release)}
        )
        self.until(lambda: f"fail point {where}" in self.log(), f"stop at {where}")
        yield
        release.touch()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """End it at once, and with it the JVM and the workers that it started."""
        if self._process is not None:
            _kill_session(self._process)

    def stop(self, within: float | None = None) -> int:
        """Ask it to finish (SIGTERM); its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait(within)

    def wait(self, within: float | None = None) -> int:
        """Its exit code, once it has ended."""
        assert self._process is not None
        within = within or self._deadline
        try:
            return self._process.wait(within)
        except subprocess.TimeoutExpired:
            _abort(self._process)
            raise AssertionError(f"it has not ended within {within} s\n{self.log()}") from None

    def once(self, *arguments: str, within: float | None = None) -> int:
        """Run until it has caught up; its exit code."""
        self.start("--once", *arguments)
        return self.wait(within)

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    # --- what it does ---------------------------------------------------------------------------

    @property
    def lake(self) -> Lake:
        return Lake(self._where)

    def status(self) -> SourcePicture:
        """Ask `headrace status` for its record."""
        [source] = pictures(self._where)
        return source

    def until(self, condition: Callable[[], bool], what: str, within: float | None = None) -> None:
        """Wait for a condition while it runs."""
        within = within or self._deadline
        deadline = time.monotonic() + within
        while not condition_holds(partial(_holds, condition), 0.05):
            if not self.running:
                raise AssertionError(f"it ended while {what} was waited for\n{self.log()}")
            if time.monotonic() > deadline:
                assert self._process is not None
                _abort(self._process)
                raise AssertionError(f"no {what} within {within} s\n{self.log()}")

    def until_live(self, within: float | None = None) -> None:
        """Wait until every table is exact in the newest mark."""
        self.until(self._live, "mark that names every table", within)

    def _live(self) -> bool:
        catalog = self.lake.catalog()
        names = {key.removeprefix("table/") for key in catalog if key.startswith("table/")}
        return bool(names) and names <= set(self.lake.at().mark.versions)


def _holds(condition: Callable[[], bool]) -> bool:
    """A lake that is not there yet is a condition that does not hold yet."""
    try:
        return condition()
    except (HeadraceError, IndexError, ValueError):
        return False


def _abort(process: Process) -> None:
    """End a process that is late; its log says where each of its threads stood."""
    process.send_signal(signal.SIGABRT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(10)


def _kill_session(process: Process) -> None:
    """The process leads a session of its own (`start_new_session`): nobody else is in it."""
    for pid in [process.pid, *_members(process.pid)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def _members(session: int) -> list[int]:
    """The processes of a session: the JVM and its workers (a receiver ends when its parent does)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session:
                found.append(int(entry.name))
    return found


def _toml(lake: str, source: Mapping[str, Any], spark: Mapping[str, Any]) -> str:
    """A configuration file; JSON's spelling of strings, numbers and lists is TOML's too."""
    lines = ["[lake]", f"path = {json.dumps(lake)}", "[source.main]"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in source.items()]
    conf = spark.get("conf", {})
    lines += ["[spark]", *(f"{key} = {json.dumps(value)}" for key, value in spark.items() if key != "conf")]
    lines += ["[spark.conf]", *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in conf.items())]
    return "\n".join(lines) + "\n"
