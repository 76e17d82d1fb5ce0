"""The request to end what a server does for a connection: it goes over a connection of its own.

`PQcancel` waits for as long as that takes, and holds Python's lock: beside a server that has stopped no
thread of this process would ever go on. Since libpq 17 it is made in steps, and waited for so long and no
longer; a `psycopg` that was built with an older one (ours is not) has the former alone.
"""

from __future__ import annotations

import select
import time
from contextlib import suppress

import psycopg
from psycopg import capabilities, pq

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
