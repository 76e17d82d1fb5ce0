"""Silence: how a connection that will never answer is told from one that takes its time.

A half-open connection is up as far as this machine knows: its other end, or something between, accepts what
is sent and never answers. TCP's own keepalives are answered by whatever stands between. So every wait for
the server is bounded here: when it lasts too long the socket is shut down, and whoever waits, in psycopg,
libpq or `recv`, wakes with the error of a lost connection, which is transient.

    with silence(pgconn) as heard:      one question, one answer
        ...
        heard()                         in a long answer: something came, begin to count anew

One thread of a process watches all of its waits, for a question takes less time than a thread's start:

    begin ─► the waits ─► end           under a lock, which whoever hangs up holds as well: a wait that has
               │                        ended is never hung up, nor what its owner does afterwards
             watch                      sleeps until the first of the waits may be over

A new wait ends later than those under way, as a rule, so that it wakes nobody. A process that was forked has
none of its parent's waits, and a thread of its own.

The request to end what a server does for a connection: it goes over a connection of its own.

`PQcancel` waits for as long as that takes, and holds Python's lock: beside a server that has stopped no
thread of this process would ever go on. Since libpq 17 it is made in steps, and waited for so long and no
longer; a `psycopg` that was built with an older one (ours is not) has the former alone.
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

REQUEST_SECONDS = 5.0  # for one request: the server may be as deaf to it as to all else

_WANTED = {pq.PollingStatus.READING: select.POLLIN, pq.PollingStatus.WRITING: select.POLLOUT}


def request(pgconn: pq.abc.PGconn) -> None:
    """Ask the server to end the statement. It may not listen: who asks waits for its answer elsewhere."""
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

    A step before that is a wait in libpq: for as long as the network keeps silent, with Python's lock.
    """
    asking.start()
    wanted = select.POLLOUT
    while wanted and _ready(asking.socket, wanted, deadline - time.monotonic()):
        wanted = _WANTED.get(pq.PollingStatus(asking.poll()), 0)


def _ready(socket: int, wanted: int, seconds: float) -> bool:
    waiting = select.poll()
    waiting.register(socket, wanted)
    return bool(waiting.poll(max(0.0, seconds) * 1000))


ANSWER_SECONDS = 60.0  # for a question; a wait for locks the server ends before that (`connection.PINS`)
COPY_SECONDS = 120.0  # between two rows of a copy


def socket_of(pgconn: pq.abc.PGconn) -> int:
    """The connection's descriptor. Where libpq has found it lost by now there is none: the coded error."""
    try:
        return pgconn.socket
    except psycopg.OperationalError as error:
        raise refused_error(None, str(error)) from None


@contextmanager
def silence(pgconn: pq.abc.PGconn, seconds: float = ANSWER_SECONDS) -> Iterator[Callable[[], None]]:
    """Hang up if the block is not over, and nothing is heard, within so many seconds."""
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
    """The waits of a process, and the thread that ends those that last too long."""

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
        """The thread, under way. Where this machine lets no more of them be, nobody waits unwatched."""
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
        """Hang up where it is time; how long nobody else has to be, None where nobody waits."""
        now = time.monotonic()
        for wait in list(self._waits):  # a copy: a wait may end in this very thread, by the collector
            if wait.deadline <= now:
                self._waits.discard(wait)
                _shut_down(wait.pgconn, wait.descriptor)
        self._wakes_at = min((wait.deadline for wait in list(self._waits)), default=float("inf"))
        return self._wakes_at - now if self._waits else None


def hang_up(pgconn: pq.abc.PGconn) -> None:
    """Wake who waits for this connection in another thread: it is lost to him from now on."""
    with suppress(HeadraceError):
        _shut_down(pgconn, socket_of(pgconn))


def _shut_down(pgconn: pq.abc.PGconn, descriptor: int) -> None:
    """End the conversation, not the descriptor: that stays its owner's to close."""
    try:
        if pgconn.socket != descriptor:
            return  # it was closed meanwhile, and the number may be somebody else's
        line = socket.socket(fileno=descriptor)
    except (psycopg.OperationalError, OSError):
        return  # likewise
    try:
        line.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has ended by itself meanwhile
    finally:
        line.detach()


_watch = _Watch()


def _forget() -> None:
    """Begin anew in a child: its parent's thread is not here, and may have held the lock."""
    global _watch
    _watch = _Watch()


os.register_at_fork(after_in_child=_forget)
