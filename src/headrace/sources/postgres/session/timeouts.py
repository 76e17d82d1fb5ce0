"""Timeouts: hang up on a server that does not answer, and cancel a statement.

A half-open connection looks open to this machine: its other end, or a device in between, accepts data and
never answers. Such a device may even answer TCP's keepalives. So every wait for the server is bounded here.
If it lasts too long, the socket is shut down, and the waiting call in psycopg, libpq or `recv` fails with the
error of a lost connection, which is transient.

    with silence(pgconn) as heard:      one statement, one answer
        ...
        heard()                         in a long answer: data came, so count from now

One thread of a process watches all its waits, since a statement takes less time than the start of a thread:

    begin ─► the waits ─► end           under a lock. The watch holds it too when it hangs up: so it never
               │                        hangs up a connection whose wait has ended
             watch                      sleeps until the first of the waits may be over

A new wait usually ends later than those under way, so it need not wake the watch. A forked process has none
of its parent's waits, and starts a thread of its own.

`request` cancels a statement, over a connection of its own. `PQcancel` would wait without a limit and hold
Python's lock: if the server has stopped, no thread of this process would go on. libpq 17 offers the request
in steps, so the wait can be bounded. A `psycopg` that was built with an older libpq (ours is not) has only
`PQcancel`.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psycopg
from psycopg import capabilities, pq

from headrace.core.errors import HeadraceError, Transient
from headrace.sources.postgres.session.refusals import refused_error

REQUEST_SECONDS = 5.0  # for one request: the server may not answer it, either

_WANTED = {pq.PollingStatus.READING: select.POLLIN, pq.PollingStatus.WRITING: select.POLLOUT}


def request(pgconn: pq.abc.PGconn) -> None:
    """Ask the server to cancel the statement. It may ignore that: wait for the statement's end elsewhere."""
    with suppress(psycopg.Error):
        if not capabilities.has_cancel_safe():
            pgconn.get_cancel().cancel()
            return
        asking = pgconn.cancel_conn()
        try:
            _await(asking, time.monotonic() + REQUEST_SECONDS)
        finally:
            asking.finish()


def _await(asking: pq.abc.PGcancelConn, deadline: float) -> None:
    """Go through the steps of a request, each once its socket is ready for it.

    If a step is called too early, libpq waits without a limit, and holds Python's lock.
    """
    asking.start()
    wanted = select.POLLOUT
    while wanted and _ready(asking.socket, wanted, deadline - time.monotonic()):
        wanted = _WANTED.get(pq.PollingStatus(asking.poll()), 0)


def _ready(socket: int, wanted: int, seconds: float) -> bool:
    waiting = select.poll()
    waiting.register(socket, wanted)
    return bool(waiting.poll(max(0.0, seconds) * 1000))


ANSWER_SECONDS = 60.0  # for a statement; the server ends waits for locks before that (`connection.PINS`)
COPY_SECONDS = 120.0  # between two rows of a copy


def socket_of(pgconn: pq.abc.PGconn) -> int:
    """The connection's descriptor; raises if libpq has found the connection lost."""
    try:
        return pgconn.socket
    except psycopg.OperationalError as error:
        raise refused_error(None, str(error)) from None


@contextmanager
def silence(pgconn: pq.abc.PGconn, seconds: float = ANSWER_SECONDS) -> Iterator[Callable[[], None]]:
    """Hang up if the block neither ends nor reports data within so many seconds."""
    wait = _Wait(pgconn, socket_of(pgconn), seconds)
    _watch.begin(wait)
    try:
        yield wait.on_answer
    finally:
        _watch.end(wait)


@dataclass(slots=True, eq=False)
class _Wait:
    """A wait for a server."""

    pgconn: pq.abc.PGconn
    descriptor: int
    seconds: float
    heard_at: float = field(default_factory=time.monotonic)

    def on_answer(self) -> None:
        self.heard_at = time.monotonic()

    @property
    def deadline(self) -> float:
        return self.heard_at + self.seconds


class _Watch:
    """The waits of a process, and the thread that ends waits that last too long."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waits: set[_Wait] = set()
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    def begin(self, wait: _Wait) -> None:
        with self._changed:
            self._waits.add(wait)
            if self._thread is None or not self._thread.is_alive():
                self._thread = self._start(wait)
            elif wait.deadline < self._wakes_at:
                self._changed.notify()

    def end(self, wait: _Wait) -> None:
        with self._changed:
            self._waits.discard(wait)

    def _start(self, first: _Wait) -> threading.Thread:
        """Start the thread. If this machine allows no more threads, raise: no wait may be unwatched."""
        thread = threading.Thread(target=self._run, name="headrace-silence", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            self._waits.discard(first)
            raise Transient(
                "THREADS_EXHAUSTED",
                "this machine lets the process start no more threads",
                hint="raise the limit of its processes or its memory, or end what else runs there",
            ) from None
        return thread

    def _run(self) -> None:
        with self._changed:
            while True:
                self._changed.wait(self._pause())

    def _pause(self) -> float | None:
        """Hang up connections that are due; return the seconds until the next is due, None without waits."""
        now = time.monotonic()
        for wait in list(self._waits):  # a copy: the garbage collector may end a wait in this thread
            if wait.deadline <= now:
                self._waits.discard(wait)
                _shut_down(wait.pgconn, wait.descriptor)
        self._wakes_at = min((wait.deadline for wait in list(self._waits)), default=float("inf"))
        return self._wakes_at - now if self._waits else None


def hang_up(pgconn: pq.abc.PGconn) -> None:
    """Shut the connection down: a thread that waits for it wakes, and has lost it."""
    with suppress(HeadraceError):
        _shut_down(pgconn, socket_of(pgconn))


def _shut_down(pgconn: pq.abc.PGconn, descriptor: int) -> None:
    """Shut down the socket, but leave its descriptor open: its owner closes it."""
    try:
        if pgconn.socket != descriptor:
            return  # it was closed meanwhile, and another file may have its number
        line = socket.socket(fileno=descriptor)
    except (psycopg.OperationalError, OSError):
        return  # likewise
    try:
        line.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it ended by itself meanwhile
    finally:
        line.detach()


_watch = _Watch()


def _forget() -> None:
    """Start afresh after a fork: the parent's thread is gone, and may have held the lock."""
    global _watch
    _watch = _Watch()


os.register_at_fork(after_in_child=_forget)
