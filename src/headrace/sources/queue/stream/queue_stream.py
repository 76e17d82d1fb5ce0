"""A queue as a stream: read each tick in order to its end, and take a tick if there is none.

    read ─► the batch under way ─► its next events, or its end
         ─► the next tick, whichever lake took it ─► its batch
         ─► no tick: has anything come? ─► take a tick

A busy queue is asked every `pause` seconds, an idle one every `idle_pause`.

No tick can be taken while another session holds the queue's row. The stream waits, and reports no progress of
time meanwhile. After `LOCKED_SECONDS` it raises an error that names the holder.

Several receivers may read one queue. Each takes a tick when it finds new events, one at a time, and all read
the same ticks. If nothing happens at a source, nothing is written to it. The queue keeps what a reader has
not passed; `feedback` says how far the lake is.

`BatchCopy` reads the events of one batch in a thread of its own:

    thread    COPY (batch) TO STDOUT (FORMAT binary) ─► buffers of whole tuples ─► a few of them at a time
    reader    take(timeout) ─► a buffer, or nothing yet; the last one ends with COPY's own end

The server may take a while to find a batch's first event, and the reader of a stream has other work. The
thread is at most `AHEAD` buffers ahead of the reader. `take` raises the thread's errors.

`TickEvents` makes frames of a tick's events, with a head before the first:

    HEAD ─ EVENT ─ EVENT ─ ...  │  EVENT ─ EVENT ...  │  EVENT ...
    └────── a first read ──────┘  └──── further ones ──┘  └── the last one: the tick ends

A tick without an event leaves no frame; the position behind it shows that it has passed. `TickEvents` needs
no Arrow and no connection.
"""

from __future__ import annotations

import queue
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass

import numpy as np
from psycopg import pq

from headrace.core.errors import Transient
from headrace.core.position import Position
from headrace.decode.kernel import Bytes
from headrace.decode.queue.framing import COPY_END, COPY_HEADER, EMPTIED, head, scan
from headrace.sources.contract.stream import TRANSACTION, Open, StreamRead
from headrace.sources.contract.values import Json
from headrace.sources.postgres.copy.copy_out import stream_copy
from headrace.sources.postgres.session import timeouts
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect, plain
from headrace.sources.postgres.session.identity import identify, verify
from headrace.sources.postgres.session.statements import Session
from headrace.sources.postgres.session.timeouts import hang_up
from headrace.sources.postgres.session.wire import lost_error
from headrace.sources.queue import proof, readers
from headrace.sources.queue import tick as ticks
from headrace.sources.queue.batch import TickBatch
from headrace.sources.queue.position import QueueTimeline, TickPlace
from headrace.sources.queue.session.identity import prove
from headrace.sources.queue.stream import retention
from headrace.sources.queue.tick import QueueLocked, Tick
from headrace.sources.queue.upstream import QueueUpstream

_NOTHING: Bytes = np.empty(0, np.uint8)


@dataclass(slots=True)
class TickEvents:
    """The events of one tick, as they come."""

    tick: Tick
    log: QueueTimeline
    changes: int = 0
    truncates: int = 0
    has_begun: bool = False  # its head was handed on

    def take(self, buffer: Bytes) -> StreamRead:
        """Hand on whole tuples; behind the last ones stands COPY's end."""
        found = scan(buffer)
        tuples, rest = buffer[: found.tail], buffer[found.tail :].tobytes()
        if rest not in (b"", COPY_END):
            raise Transient(
                "PG_BAD_FRAME",
                "the server's answer to COPY cannot be read",
                hint="check what stands between this machine and the server",
            )
        self.changes += int(found.changes.sum())
        self.truncates += int((found.diff == EMPTIED).sum())
        return self._as_arrival(tuples, ends=rest == COPY_END)

    def end(self) -> StreamRead:
        """Hand on a tick in which nothing can be."""
        return self._as_arrival(_NOTHING, ends=True)

    def _as_arrival(self, tuples: Bytes, *, ends: bool) -> StreamRead:
        starts = -1 if self.has_begun else 0
        if len(tuples) and not self.has_begun:
            first = head(self.log.time(self.tick.number), self.tick.taken_at, self.tick.number)
            tuples = np.concatenate([np.frombuffer(first, np.uint8), tuples])
            self.has_begun = True
        behind = self.tick.position(self.log)
        ended = np.zeros(1 if ends and self.has_begun else 0, TRANSACTION)
        ended["time"], ended["end"] = self.log.time(self.tick.number), behind.time
        ended["commit_ts"], ended["number"] = self.tick.taken_at, self.tick.number
        ended["changes"], ended["truncates"] = self.changes, self.truncates
        ended["start"], ended["stop"] = starts, len(tuples)
        is_open = self.has_begun and not ends
        return StreamRead(
            size=len(tuples),
            data=tuples,
            transactions=ended,
            open=Open(starts, self.log.time(self.tick.number)) if is_open else None,
            running={},
            rolled_back=(),
            aborted_parts={},
            layouts=(),
            complete=behind.time if ends else 0,
            source_end=(behind.time, self.tick.taken_at),
            amid=False,
            positions=(behind,) if ends else (),
        )


def idle(position: Position, clock: int) -> StreamRead:
    """A read that says: nothing has come behind this position, by the source's clock (µs since 1970)."""
    return StreamRead(
        size=0,
        data=_NOTHING,
        transactions=np.zeros(0, TRANSACTION),
        open=None,
        running={},
        rolled_back=(),
        aborted_parts={},
        layouts=(),
        complete=0,
        source_end=(position.time, clock),
        amid=False,
    )


AHEAD = 4  # buffers, of about a megabyte each
_AGAIN = 0.2  # seconds after which a waiting thread checks whether it is still wanted
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
        """Take the next whole tuples; None if nothing has come in time."""
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
        """Cancel the query; if the server does not answer, shut the socket under the thread.

        Closing the connection under a thread that waits for it would leak the thread and the socket.
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
    """Return the tuples without COPY's header."""
    if buffer[: len(COPY_HEADER)].tobytes() != COPY_HEADER:
        raise Transient(
            "PG_BAD_FRAME",
            "the server's answer to COPY cannot be read",
            hint="check what stands between this machine and the server",
        )
    return buffer[len(COPY_HEADER) :]


COLUMNS = "e.id, e.tx, e.relation, coalesce(e.leaf, e.relation), e.diff, e.row"
TICKS_AT_ONCE = 100
FEEDBACK_EVERY = 1.0
LOCKED_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class QueueRequest:
    """The order for a stream: of which queue, from where on, and from whom."""

    upstream: QueueUpstream
    frontier: Position  # what the lake holds
    received_until: Position  # what was ever received: the frontier, or past it
    identity: Json


@dataclass(slots=True)
class _UnderWay:
    """A batch that is being read."""

    copy: BatchCopy
    events: TickEvents


class QueueStream:
    """An open stream. Made by `open`; of one thread."""

    pause = FEEDBACK_EVERY

    def __init__(self, control: Session, data: pq.abc.PGconn, upstream: QueueUpstream, start: Tick) -> None:
        self._control = control
        self._data = data
        self._upstream = upstream
        self._objects = upstream.objects
        self._newest = start  # the last one that was read to its end
        self._ahead: list[Tick] = []
        self._under_way: _UnderWay | None = None
        self._next_look = 0.0
        self._wait = upstream.pause
        self._let_go = -1  # the tick that the queue was told
        self._forgotten = 0  # ticks below are gone
        self._clock: int | None = None  # the source's, of a look that found nothing
        self._locked_since: float | None = None  # somebody holds the queue's row
        self.start = start.position(upstream.log)

    @classmethod
    def open(cls, address: PostgresAddress, request: QueueRequest) -> QueueStream:
        """Connect, prove who answers, see that nothing is missing."""
        control = connect(address, role=f"receiver {request.upstream.lake}")
        try:
            identity = identify(control)
            prove(identity, request.identity)
            proof.confirm(control, identity, request.upstream, request.received_until)
            start = proof.confirm(control, identity, request.upstream, request.frontier)
            data = plain(address, role=f"receiver {request.upstream.lake} batches")
            try:
                verify(identify(data), identity)
                return cls(control, data, request.upstream, start)
            except BaseException:
                data.finish()
                raise
        except BaseException:
            control.close()
            raise

    def close(self) -> None:
        if self._under_way is not None:
            self._under_way.copy.close()
        self._data.finish()
        self._control.close()

    # --- reading

    def read(self, timeout: float) -> StreamRead | None:
        """Take what has come; None if nothing came in time."""
        with proof.translate_missing_queue(self._control, self._upstream):
            return self._read(timeout)

    def _read(self, timeout: float) -> StreamRead | None:
        deadline = time.monotonic() + timeout
        if self._under_way is None and (tick := self._next_tick(deadline)) is not None:
            batch = TickBatch.between(self._newest.snapshot, tick.snapshot)
            events = TickEvents(tick, self._upstream.log)
            if batch.is_empty:
                self._newest = tick
                return events.end()
            self._under_way = _UnderWay(BatchCopy(self._data, batch.query(self._objects, COLUMNS)), events)
        if self._under_way is None:
            return self._idle()
        return self._more(self._under_way, deadline)

    def _more(self, batch: _UnderWay, deadline: float) -> StreamRead | None:
        buffer = batch.copy.take(deadline - time.monotonic())
        if buffer is None:
            return None
        received = batch.events.take(buffer)
        if received.complete:
            # If events were gone before all were read, this raises, and the tick is not passed on.
            proof.prove_still(self._control, self._upstream, batch.events.tick)
            self._under_way = None
            self._newest = batch.events.tick
        return received

    def _next_tick(self, deadline: float) -> Tick | None:
        """Find the tick behind the last one; if there is none, take one, if anything may have come."""
        if self._ahead:
            return self._ahead.pop(0)
        left = min(self._next_look, deadline) - time.monotonic()
        if left > 0:
            time.sleep(left)
        now = time.monotonic()
        if now < self._next_look:
            return None
        found = self._look()
        self._wait = self._upstream.pause if found else min(2 * self._wait, self._upstream.idle_pause)
        self._next_look = now + self._wait
        self._ahead = found[1:]
        return found[0] if found else None

    def _look(self) -> list[Tick]:
        newest = ticks.newest(self._control, self._objects)
        if newest.tick is None or newest.tick.number <= self._newest.number:
            self._clock = newest.clock
            proof.prove_still(self._control, self._upstream, self._newest)
            if not newest.has_more:
                return []
            taken = self._take()
            if taken is None:
                return []
            if taken.number == self._newest.number + 1:
                return [taken]
        return ticks.after(self._control, self._objects, self._newest.number, TICKS_AT_ONCE)

    def _take(self) -> Tick | None:
        """Take a tick; None while another session holds the queue's row."""
        try:
            taken = ticks.take(self._control, self._objects)
        except QueueLocked:
            self._clock = None  # something has come
            now = time.monotonic()
            self._locked_since = now if self._locked_since is None else self._locked_since
            if now - self._locked_since >= LOCKED_SECONDS:
                raise
            return None
        self._locked_since = None
        return taken

    def _idle(self) -> StreamRead | None:
        """Say, once a look, that nothing has come."""
        clock, self._clock = self._clock, None
        return None if clock is None else idle(self._newest.position(self._upstream.log), clock)

    # --- what was let go

    def feedback(self, durable: Position) -> None:
        """Say how far the lake is, and delete what every reader has passed."""
        if not durable.text:
            return
        place = TickPlace.parse(durable.text)
        if place.tick <= self._let_go:
            return
        with proof.translate_missing_queue(self._control, self._upstream):
            readers.advance(self._control, self._upstream, place)
            self._let_go = place.tick
            self._forgotten = retention.tend(self._control, self._objects, self._forgotten)
