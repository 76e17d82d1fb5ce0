"""Silence: how a connection that will never answer is told from one that takes its time.

A half-open connection is up as far as this machine knows: its other end, or something between, accepts what
is sent and never answers. TCP's own keepalives are answered by whatever stands between. So every wait for
the server is bounded here: when it lasts too long the socket is shut down, and whoever waits, in psycopg,
libpq or `recv`, wakes with the error of a lost connection, which is transient.

    with silence(pgconn) as heard:      one question, one answer
        ...
        heard()                         in a long answer: something came, begin to count anew
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from psycopg import pq

from headrace.sources.postgres.session.refusals import refused

ANSWER_SECONDS = 60.0  # for a question; a wait for locks the server ends before that (`connection.PINS`)
COPY_SECONDS = 120.0  # between two rows of a copy


def socket_of(pgconn: pq.abc.PGconn) -> int:
    """The connection's descriptor. Where libpq has found it lost by now there is none: the coded error."""
    try:
        return pgconn.socket
    except psycopg.OperationalError as error:
        raise refused(None, str(error)) from None


@contextmanager
def silence(pgconn: pq.abc.PGconn, seconds: float = ANSWER_SECONDS) -> Iterator[Callable[[], None]]:
    """Hang up if the block is not over, and nothing is heard, within so many seconds."""
    heard_at = time.monotonic()
    over = threading.Event()
    descriptor = socket_of(pgconn)

    def heard() -> None:
        nonlocal heard_at
        heard_at = time.monotonic()

    def watch() -> None:
        while not over.wait(max(0.01, heard_at + seconds - time.monotonic())):
            if time.monotonic() >= heard_at + seconds:
                _hang_up(descriptor)
                return

    threading.Thread(target=watch, name="headrace-silence", daemon=True).start()
    try:
        yield heard
    finally:
        over.set()


def _hang_up(descriptor: int) -> None:
    """End the conversation, not the descriptor: that stays its owner's to close."""
    line = socket.socket(fileno=descriptor)
    try:
        line.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has ended by itself meanwhile
    finally:
        line.detach()
