"""Processes of tests: hundreds of them, each of which would first import for a second or two.

    a test's process ──► nursery         a process that has imported all and does nothing
                           └── minder    one for each that is asked for: tells its pid, then how it ended
                                 ├── receiver     `worker.main`, as the supervisor starts it
                                 └── run          `headrace run` without Spark (`tests.without_spark`)
                                       └── nursery ── minder ── receiver

A run ends when the nursery does: a pytest that is killed leaves none behind. Receivers end by
themselves when their driver is gone, which tests try.

They are forked from one that is ready. Each is a process that leads a session of its own, with the pipes, the
arguments and the environment that it is given; only its parent is another, so its end is told by a pipe.

The fixtures are imported by the `conftest` of folders whose tests start receivers or runs.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import IO, Any, cast

import psutil
import pytest

from headrace.ingest import supervisor, worker
from headrace.sources import registry
from headrace_testing.mirror_process import COMMAND, Program

_LIFE = "import sys; from tests.nursery import nurse, ready; ready(); nurse(int(sys.argv[1]))"
_LIVES = {"receiver": (worker.__name__, ""), "run": ("tests.without_spark", "headrace")}
# What a run imports once Spark was told to start.
_LATE = ("headrace.pipeline.run", "headrace.pipeline.loop", "headrace.pipeline.recovery")
_PID_DIGITS = 10


class Forked:
    """A process, in the words of `subprocess.Popen`."""

    def __init__(self, news: int, stdin: int | None = None, stdout: int | None = None) -> None:
        self.stdin = None if stdin is None else os.fdopen(stdin, "wb")
        self.stdout = None if stdout is None else os.fdopen(stdout, "rb")
        self.returncode: int | None = None
        self._news = os.fdopen(news, "rb", buffering=0)
        self.pid = int(self._news.read(_PID_DIGITS))

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._news], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("forked", timeout or 0)
            self.returncode = int(self._news.read(16))
            self._news.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    """The process that others are forked from."""

    def __init__(self, asking: socket.socket, end: Callable[[], object]) -> None:
        self._asking = asking
        self._end = end
        self._one = threading.Lock()  # the sources of a run start their receivers side by side

    @classmethod
    def started(cls) -> Nursery:
        """One that imports for itself."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-c", _LIFE, str(theirs.fileno()), worker.__name__]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        return cls(ours, process.wait)

    @classmethod
    def forked(cls) -> Nursery:
        """One that is ready because this process is. It has no other threads yet."""
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            nurse(theirs.detach())
            os._exit(0)
        theirs.close()
        return cls(ours, lambda: os.waitpid(pid, 0))

    def start_process(self) -> Forked:
        """Start a receiver, as `supervisor.start_process` does."""
        (orders, stdin), (stdout, said) = os.pipe(), os.pipe()
        news = self._ask("receiver", [], os.environ, [orders, said, 2])
        for given in (orders, said):
            os.close(given)
        return Forked(news, stdin, stdout)

    def run(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: IO[bytes],
        errors: IO[bytes] | None = None,
    ) -> Forked:
        """A `Program`: `headrace` without Spark; what it says of errors may go elsewhere."""
        with open(os.devnull, "rb") as nothing:
            said = [nothing.fileno(), log.fileno(), (errors or log).fileno()]
            return Forked(self._ask("run", arguments, environment, said))

    def _ask(
        self, life: str, arguments: Sequence[str], environment: Mapping[str, str], streams: list[int]
    ) -> int:
        """Have a process forked, with these as its standard streams; where its end is told."""
        news, told = os.pipe()
        order = json.dumps([life, list(arguments), dict(environment)]).encode()
        with self._one:
            self._asking.sendall(len(order).to_bytes(4, "big") + order)
            socket.send_fds(self._asking, [b"."], [*streams, told])
        os.close(told)
        return news

    def close(self) -> None:
        self._asking.close()
        self._end()


def ready() -> None:
    """Import what lives are made of, also what they import when they need it: each would do so anew."""
    for module in (*(module for module, _ in _LIVES.values()), *_LATE):
        import_module(module)
    for kind in ("postgres", "queue", *(("mysql", "mariadb") if find_spec("pymysql") else ())):
        registry.stream_source(kind)
        registry.by_kind(kind)
    if find_spec("pymysql"):
        import_module("headrace.sources.mysql.session.login")


def nurse(descriptor: int) -> None:
    """Fork a process whenever one is asked for; the life of a nursery."""
    signal.signal(signal.SIGCHLD, _reap)
    asked = socket.socket(fileno=descriptor)
    while size := asked.recv(4, socket.MSG_WAITALL):
        order = json.loads(asked.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
        _, given, _, _ = socket.recv_fds(asked, 1, 4)
        if os.fork() == 0:
            asked.close()
            _mind(order, given)
        for each in given:
            os.close(each)


def _reap(*_: object) -> None:
    """Take note of those that ended: what they took of the machine counts as this process's then."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _mind(order: list[Any], given: list[int]) -> None:
    """Tell the process's pid, and its exit code when it has one."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, told = given
    dies_along = order[0] == "run"
    if dies_along:
        _die_with_parent()
    pid = os.fork()
    if pid == 0:
        if dies_along:
            _die_with_parent()
        os.setsid()
        for target, each in enumerate(streams):
            os.dup2(each, target)
        os.closerange(3, 1 << 10)
        os._exit(_live(*order))
    for each in streams:
        os.close(each)
    os.write(told, str(pid).zfill(_PID_DIGITS).encode())
    _, status = os.waitpid(pid, 0)
    os.write(told, b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)


_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """Have the kernel kill this process when its parent, which has one thread, has ended."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _live(life: str, arguments: list[str], environment: dict[str, str]) -> int:
    """Run a life's `main`; its exit code."""
    module, program = _LIVES[life]
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [program, *arguments]
    faulthandler.enable()  # a fork of one that began without
    try:
        code: int = import_module(module).main()
    except BaseException:  # noqa: BLE001 - as the interpreter would
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    return code


def running(of: int | None = None) -> list[psutil.Process]:
    """The receivers of this process, or of that one; they lead sessions of their own."""
    return [each for each in psutil.Process(of).children(recursive=True) if _receives(each)]


def _receives(process: psutil.Process) -> bool:
    try:
        return worker.__name__ in process.cmdline() and os.getsid(process.pid) == process.pid
    except (psutil.Error, ProcessLookupError):
        return False  # it has ended


@contextmanager
def receivers_of(nursery: Nursery) -> Iterator[None]:
    """Receivers that this process starts are forked there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "start_process", cast(Any, nursery.start_process))
        yield


@pytest.fixture(scope="package", autouse=True)
def nursery() -> Iterator[Nursery]:
    """The nursery, and the receivers of the folder's tests from there."""
    with receivers_of(found := _of_this_process()):
        yield found


@cache
def _of_this_process() -> Nursery:
    """One for all folders: what it imports takes seconds."""
    made = Nursery.started()
    atexit.register(made.close)
    return made


@pytest.fixture(
    params=[
        pytest.param(False, id="process"),
        pytest.param(True, id="spark", marks=[pytest.mark.full, pytest.mark.spark]),
    ]
)
def program(request: pytest.FixtureRequest, nursery: Nursery) -> Program:
    """Choose what a `Mirrored` runs: the command line without Spark; in the full run with it, too."""
    return COMMAND if request.param else nursery.run
