"""Receivers of tests: hundreds of them, each of which would first import for more than a second.

    a test's process ──► nursery         a process that has imported all and does nothing
                           └── minder    one for each receiver: tells its pid, then how it ended
                                 └── receiver     `worker.main` in a process and session of its own

They are forked from one that is ready. Each is a process as `headrace.pipeline.ingest.supervisor` starts it,
with the same pipes and the environment of that moment; only its parent is another, so its end is told by a
pipe.

Called by the `conftest` of folders whose tests start receivers in their own process.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, cast

import psutil
import pytest

from headrace.pipeline.ingest import supervisor, worker

_LIFE = "import sys; from tests.receivers import nurse; nurse(int(sys.argv[1]))"
_PID_DIGITS = 10


class Forked:
    """A receiver's process, in the words of `subprocess.Popen`."""

    def __init__(self, stdin: int, stdout: int, news: int) -> None:
        self.stdin = os.fdopen(stdin, "wb")
        self.stdout = os.fdopen(stdout, "rb")
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
                raise subprocess.TimeoutExpired("receiver", timeout or 0)
            self.returncode = int(self._news.read(16))
            self._news.close()
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class Nursery:
    """The process that receivers are forked from."""

    def __init__(self) -> None:
        self._asking, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LIFE, str(theirs.fileno()), worker.__name__],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()

    def start_process(self) -> Forked:
        """As `supervisor.start_process`."""
        (orders, stdin), (stdout, said), (news, told) = os.pipe(), os.pipe(), os.pipe()
        environment = json.dumps(dict(os.environ)).encode()
        self._asking.sendall(len(environment).to_bytes(4, "big") + environment)
        socket.send_fds(self._asking, [b"."], [orders, said, 2, told])
        for given in (orders, said, told):
            os.close(given)
        return Forked(stdin, stdout, news)

    def close(self) -> None:
        self._asking.close()
        self._process.wait()


def nurse(descriptor: int) -> None:
    """Fork a receiver whenever one is asked for; the life of a nursery."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    asked = socket.socket(fileno=descriptor)
    while size := asked.recv(4, socket.MSG_WAITALL):
        environment = asked.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
        _, given, _, _ = socket.recv_fds(asked, 1, 4)
        if os.fork() == 0:
            asked.close()
            _mind(worker.main, json.loads(environment), given)
        for each in given:
            os.close(each)


def _mind(life: Any, environment: dict[str, str], given: list[int]) -> None:
    """Tell the receiver's pid, and its exit code when it has one."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    orders, said, errors, told = given
    pid = os.fork()
    if pid == 0:
        os.setsid()
        for target, each in enumerate((orders, said, errors)):
            os.dup2(each, target)
        os.closerange(3, 1 << 10)
        os.environ.clear()
        os.environ.update(environment)
        try:
            os._exit(life())
        except BaseException:  # noqa: BLE001 - as the interpreter would
            traceback.print_exc()
            os._exit(1)
    for each in (orders, said, errors):
        os.close(each)
    os.write(told, str(pid).zfill(_PID_DIGITS).encode())
    _, status = os.waitpid(pid, 0)
    os.write(told, b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def running() -> list[psutil.Process]:
    """The receivers of this process, which lead sessions of their own."""
    return [each for each in psutil.Process().children(recursive=True) if _receives(each)]


def _receives(process: psutil.Process) -> bool:
    try:
        return worker.__name__ in process.cmdline() and os.getsid(process.pid) == process.pid
    except (psutil.Error, ProcessLookupError):
        return False  # it has ended


@contextmanager
def forked() -> Iterator[None]:
    """Receivers that this process starts are forked."""
    with pytest.MonkeyPatch.context() as patch, closing(Nursery()) as nursery:
        begin = cast(Any, nursery.start_process)
        patch.setattr(supervisor, "start_process", begin)
        yield
