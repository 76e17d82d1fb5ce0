"""Streams of a queue on a real server, read to a place, and what they brought."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from headrace.core.position import Position
from headrace.decode.queue.framing import scan
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import identify
from headrace.sources.postgres.session.statements import Session
from headrace.sources.queue import readers
from headrace.sources.queue import tick as ticks
from headrace.sources.queue.session.identity import lasting_part
from headrace.sources.queue.stream.queue_stream import QueueRequest, QueueStream
from headrace.sources.queue.upstream import QueueUpstream
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.integration.queue.capturing import LAKE


@dataclass
class Reading:
    """A stream, and all that it has brought: for each event its tick's time."""

    stream: QueueStream
    times: dict[int, int] = field(default_factory=dict)  # by the event's id
    writers: dict[int, int] = field(default_factory=dict)  # by the event's id
    complete: int = 0
    clocks: list[int] = field(default_factory=list)

    def once(self) -> None:
        """Take what has come."""
        received = self.stream.read(0.05)
        if received is None:
            return
        events = scan(received.data)
        # A tick that comes in parts has its head in the first of them.
        times = np.append(events.heads.time, received.transactions["time"])
        for head, number, tx in zip(
            events.head.tolist(), events.id.tolist(), events.tx.tolist(), strict=True
        ):
            assert number not in self.times, "an event came twice"
            self.times[number], self.writers[number] = int(times[max(head, 0)]), tx
        self.complete = max(self.complete, received.complete)
        self.clocks += received.transactions["commit_ts"].tolist()

    def until(self, place: Position) -> None:
        """Read up to a place."""

        def reached() -> bool:
            self.once()
            return self.complete >= place.time

        wait_for(reached, f"the stream's {place}")

    def read_while(self, wanted: Callable[[], bool]) -> None:
        while wanted():
            self.once()


@contextmanager
def reading(database: Database, lakes: Sequence[QueueUpstream] = (LAKE,)) -> Iterator[list[Reading]]:
    """Streams from now on, one for each lake."""
    opened: list[Reading] = []
    try:
        with connect(_address(database), role="test") as session:
            for lake in lakes:
                with ticks.taking(session, lake.objects) as tick:
                    readers.register(session, lake, tick)
                opened.append(open_at(database, lake, tick.position(lake.log)))
        yield opened
    finally:
        for each in opened:
            each.stream.close()


def open_at(database: Database, lake: QueueUpstream, start: Position) -> Reading:
    """A stream from a place on."""
    with connect(_address(database), role="test") as session:
        identity = lasting_part(identify(session))
    return Reading(QueueStream.open(_address(database), QueueRequest(lake, start, start, identity)))


def _address(database: Database) -> PostgresAddress:
    return PostgresAddress.parse(database.url(user="app"))


def end_of(session: Session) -> Position:
    """A place behind all that is committed by now."""
    return ticks.take(session, LAKE.objects).position(LAKE.log)
