"""Ticks in a real spool, over sessions of a receiver: they come again as they came, or the queue is lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.core.errors import HeadraceError
from headrace.core.records import to_record
from headrace.ingest.replay_check import RecentTransactions
from headrace.ingest.store_stream import Intake
from headrace.sources.contract.stream import Orders
from headrace.sources.queue import readers, tick
from headrace.sources.queue.source import SOURCE
from headrace.sources.queue.stream_source import STREAM_SOURCE
from headrace.sources.queue.tick import QueueLost
from headrace.spool.reader import SpoolReader
from headrace.spool.writer import SpoolWriter
from headrace_testing.postgres import Database
from tests.integration.queue.capturing import LAKE, capturing, executed, url

pytestmark = pytest.mark.server

DEADLINE = 30.0


def receive(folder: Path, orders: Orders, until: int) -> None:
    """A session of a receiver up to a time of the stream; as `ingest.worker` does it."""
    with SpoolWriter(folder, 1 << 30, orders.frontier.time) as writer:
        writer.places.say(orders.frontier)

        def changed(sent: Sequence[int], again: Sequence[int]) -> HeadraceError:
            return STREAM_SOURCE.history_changed(orders.upstream, sent, again)

        known = RecentTransactions.of(folder, changed)
        reached = writer.places.newest
        assert reached is not None
        with closing(STREAM_SOURCE.open_stream(replace(orders, received_until=reached))) as stream:
            intake = Intake(writer, known.from_start(stream.start.time))
            deadline, complete = time.monotonic() + DEADLINE, 0
            while complete < until:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{complete} of {until} transactions came")
                if (came := stream.read(0.1)) is not None:
                    intake.take(came)
                    complete = came.complete
            intake.settle()


def test_ticks_that_hold_other_events_than_before_are_refused(database: Database, tmp_path: Path) -> None:
    executed(database, ["CREATE TABLE t (id int PRIMARY KEY)"])
    address = SOURCE.address(f"queue+{url(database, 'app')}")
    with capturing(database) as queue, closing(SOURCE.connect(address, role="test")) as session:
        queue.capture("t")
        start = tick.take(queue.session, LAKE.objects)
        readers.register(queue.session, LAKE, start)
        at = start.position(LAKE.log)
        orders = Orders(address.text, session.identity, to_record(LAKE), at, at)
        executed(database, ["INSERT INTO t VALUES (1)"])
        first = tick.take(queue.session, LAKE.objects).position(LAKE.log)
        executed(database, ["INSERT INTO t VALUES (2)"])
        last = tick.take(queue.session, LAKE.objects).position(LAKE.log)
        for _ in range(2):  # nothing was acknowledged: all of it comes again
            receive(tmp_path, orders, last.time)
        assert [int(each["changes"]) for each in SpoolReader(tmp_path).transactions(0)] == [1, 1]
        database.execute(
            "BEGIN; ALTER TABLE headrace.event_main_0 DISABLE TRIGGER USER;"
            " DELETE FROM headrace.event_main_0 WHERE row = '(1)';"
            " ALTER TABLE headrace.event_main_0 ENABLE ALWAYS TRIGGER headrace_guard; COMMIT"
        )
        with pytest.raises(QueueLost) as refused:
            receive(tmp_path, orders, last.time)
        assert refused.value.code == "QUEUE_HISTORY_CHANGED"
        assert first.time < last.time
