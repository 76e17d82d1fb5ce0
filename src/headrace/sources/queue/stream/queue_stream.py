"""A queue as a stream: ticks in their order, each read to its end, and taken where none is there.

    read ─► the batch under way ─► its next events, or its end
         ─► the next tick, whoever took it ─► its batch
         ─► nothing there: has anything come? ─► a tick is taken

Under load that is asked every `pause` seconds, of an idle queue every `idle_pause`.

While somebody holds the queue's row no tick can be taken: that is waited for, and nothing is said of the time
until then; only after `LOCKED_SECONDS` it is an error, with the holder.

Several receivers may read one queue: each takes a tick where it finds that something came, one at a time, and
all read the same ticks. Nothing is written to a source at which nothing happens.

The queue holds what a reader has not passed: `feedback` says how far the lake is.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from psycopg import pq

from headrace.core.position import Position
from headrace.sources.contract.stream import StreamRead
from headrace.sources.contract.values import Json
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect, plain
from headrace.sources.postgres.session.identity import identify, verify
from headrace.sources.postgres.session.statements import Session
from headrace.sources.queue import readers
from headrace.sources.queue import tick as ticks
from headrace.sources.queue import upstream as upstreams
from headrace.sources.queue.batch import TickBatch
from headrace.sources.queue.objects import QueueUpstream
from headrace.sources.queue.position import TickPlace
from headrace.sources.queue.session.identity import prove
from headrace.sources.queue.stream import retention
from headrace.sources.queue.stream.copying import BatchCopy
from headrace.sources.queue.stream.events import TickEvents, idle
from headrace.sources.queue.tick import QueueLocked, Tick

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
            upstreams.confirm(control, identity, request.upstream, request.received_until)
            start = upstreams.confirm(control, identity, request.upstream, request.frontier)
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
        with upstreams.telling_loss(self._control, self._upstream):
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
            # What was gone from the queue before all of it was read is told now, and the tick not handed on.
            upstreams.prove_still(self._control, self._upstream, batch.events.tick)
            self._under_way = None
            self._newest = batch.events.tick
        return received

    def _next_tick(self, deadline: float) -> Tick | None:
        """The tick behind the last one; where there is none one is taken, if anything may have come."""
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
            upstreams.prove_still(self._control, self._upstream, self._newest)
            if not newest.has_more:
                return []
            taken = self._take()
            if taken is None:
                return []
            if taken.number == self._newest.number + 1:
                return [taken]
        return ticks.after(self._control, self._objects, self._newest.number, TICKS_AT_ONCE)

    def _take(self) -> Tick | None:
        """Take a tick; None while somebody holds the queue's row."""
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
        """Say once a look that nothing has come."""
        clock, self._clock = self._clock, None
        return None if clock is None else idle(self._newest.position(self._upstream.log), clock)

    # --- what was let go

    def feedback(self, durable: Position) -> None:
        """Say how far the lake is: what every reader has passed goes."""
        if not durable.text:
            return
        place = TickPlace.parse(durable.text)
        if place.tick <= self._let_go:
            return
        with upstreams.telling_loss(self._control, self._upstream):
            readers.advance(self._control, self._upstream, place)
            self._let_go = place.tick
            self._forgotten = retention.tend(self._control, self._objects, self._forgotten)
