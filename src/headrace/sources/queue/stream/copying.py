"""The events of one batch, off the server beside whoever waits for them.

    thread    COPY (batch) TO STDOUT (FORMAT binary) ─► buffers of whole tuples ─► a few of them at a time
    reader    take(timeout) ─► a buffer, or nothing yet; the last one ends with COPY's own end

A server may look for a batch's first event for a while, and whoever reads a stream has others to answer.
At most so many buffers are ahead of the reader. What fails in the thread is raised by `take`.
"""

from __future__ import annotations

import queue
import threading
from contextlib import closing, suppress

from psycopg import pq

from headrace.core.errors import Transient
from headrace.decode.kernel import Bytes
from headrace.decode.queue.framing import COPY_HEADER
from headrace.sources.postgres.copy.copy_out import stream_copy
from headrace.sources.postgres.session import timeouts
from headrace.sources.postgres.session.timeouts import hang_up
from headrace.sources.postgres.session.wire import lost_error

AHEAD = 4  # buffers, of about a megabyte each
_AGAIN = 0.2  # seconds after which a thread that waits looks whether it is still wanted
_END_SECONDS = 5.0  # for the thread to end, once the server was asked to, and once the line is cut


class BatchCopy:
    """A batch that is being read, over a connection of its own."""

    def __init__(self, pgconn: pq.abc.PGconn, query: str) -> None:
        self._pgconn = pgconn
        self._statement = f"COPY ({query}) TO STDOUT (FORMAT binary)"
        self._buffers: queue.Queue[Bytes | BaseException] = queue.Queue(AHEAD)
        self._unwanted = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="batch")
        self._thread.start()

    def take(self, timeout: float) -> Bytes | None:
        """Take the next tuples, whole ones; None where nothing has come in time."""
        try:
            found = self._buffers.get(timeout=max(timeout, 0.001))
        except queue.Empty:
            if self._thread.is_alive() or not self._buffers.empty():
                return None
            raise lost_error("it ended in the midst of a batch") from None
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        """Have the server end what it does for us; from one that does not answer the thread is cut off.

        To close the connection under a thread that waits for it leaves thread and socket behind, for ever.
        """
        self._unwanted.set()
        if self._thread.is_alive():
            timeouts.request(self._pgconn)
        self._thread.join(_END_SECONDS)
        if self._thread.is_alive():
            hang_up(self._pgconn)
            self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        try:
            with closing(stream_copy(self._pgconn, self._statement)) as buffers:
                first = True
                for buffer in buffers:
                    self._put(_without_header(buffer) if first else buffer)
                    first = False
                    if self._unwanted.is_set():
                        return
        except BaseException as error:  # noqa: BLE001 - the reader raises it: nobody else would learn of it
            self._put(error)

    def _put(self, item: Bytes | BaseException) -> None:
        while not self._unwanted.is_set():
            with suppress(queue.Full):
                self._buffers.put(item, timeout=_AGAIN)
                return


def _without_header(buffer: Bytes) -> Bytes:
    """The tuples behind what stands before all of them."""
    if buffer[: len(COPY_HEADER)].tobytes() != COPY_HEADER:
        raise Transient(
            "PG_BAD_FRAME",
            "the server's answer to COPY cannot be read",
            hint="check what stands between this machine and the server",
        )
    return buffer[len(COPY_HEADER) :]
