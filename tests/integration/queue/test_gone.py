"""Whatever is asked of a queue that is gone is answered by the queue's own code, never by a table's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import pytest

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.sources.contract.errors import TableBusy
from headrace.sources.queue import proof, readers, removal, tick
from headrace.sources.queue.creation import Schema
from headrace.sources.queue.creation import read_schema as real_schema
from headrace.sources.queue.mirror import QueueMirror
from headrace.sources.queue.source import SOURCE
from headrace.sources.queue.stream.queue_stream import QueueRequest, QueueStream
from headrace.sources.queue.tick import QueueLost
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.integration.queue.capturing import LAKE, capturing, executed, url

pytestmark = pytest.mark.server

T = TableName("public", "t")


@dataclass(frozen=True, slots=True)
class Mirrored:
    """A table that is mirrored through a queue, as a run has it."""

    mirror: QueueMirror
    stream: QueueStream
    reached: Position


@pytest.fixture
def mirrored(database: Database) -> Iterator[Mirrored]:
    executed(database, ["CREATE TABLE t (id int PRIMARY KEY)"])
    address = SOURCE.address(f"queue+{url(database, 'app')}")
    with capturing(database) as queue, closing(SOURCE.connect(address, role="test")) as session:
        mirror = session.mirror(to_record(LAKE))
        assert isinstance(mirror, QueueMirror)
        queue.capture("t")
        reached = tick.take(queue.session, LAKE.objects)
        readers.register(queue.session, LAKE, reached)
        at = reached.position(LAKE.log)
        wanted = QueueRequest(LAKE, at, at, session.identity)
        with closing(QueueStream.open(mirror.connection.address.server, wanted)) as stream:
            yield Mirrored(mirror, stream, at)


def _read(mirrored: Mirrored) -> None:
    while mirrored.stream.read(1.0) is None:
        pass


_ASKED: dict[str, Callable[[Mirrored], object]] = {
    "confirm": lambda m: m.mirror.confirm(m.mirror.connection.identity, m.reached),
    "end": lambda m: m.mirror.end(),
    "clock": lambda m: m.mirror.clock(),
    "advance_log": lambda m: m.mirror.captures.advance_log(),
    "is_quiet": lambda m: m.mirror.is_quiet(m.reached, m.reached),
    "health": lambda m: m.mirror.health(),
    "capture": lambda m: m.mirror.captures.capture([T]),
    "captured": lambda m: m.mirror.captures.captured_tables(),
    "release": lambda m: m.mirror.captures.release([T]),
    "release_now": lambda m: m.mirror.captures.release_now([1]),
    "snapshot": lambda m: m.mirror.snapshot([], 1, 5.0),
    "read": _read,
    "feedback": lambda m: m.stream.feedback(m.reached),
}


def test_a_queue_that_is_gone_is_said_to_be_gone_by_whatever_is_asked_of_it(
    database: Database, mirrored: Mirrored
) -> None:
    database.execute("DROP SCHEMA headrace CASCADE")
    said = {}
    for name, ask in _ASKED.items():
        with pytest.raises(HeadraceError) as refused:
            ask(mirrored)
        said[name] = refused.value.code
    broken = mirrored.mirror.check({}).upstream_error
    assert broken is not None
    assert {*said.values(), broken.code} == {"QUEUE_GONE"}, said


def test_a_queue_that_goes_while_it_is_looked_at_is_gone(
    database: Database, mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tables were in the catalog a moment ago; what reads them next waits for whoever drops them."""
    seen = real_schema(mirrored.mirror.session, LAKE.objects)
    database.execute("DROP SCHEMA headrace CASCADE")
    monkeypatch.setattr(proof, "read_schema", lambda connection, objects: seen)
    for name in ("confirm", "end", "health"):
        with pytest.raises(QueueLost) as refused:
            _ASKED[name](mirrored)
        assert refused.value.code == "QUEUE_GONE", name
    looks: list[Schema] = [seen]
    monkeypatch.setattr(
        removal,
        "read_schema",
        lambda connection, objects: looks.pop() if looks else real_schema(connection, objects),
    )
    assert removal.drop_reader(mirrored.mirror.session, LAKE) == [], "somebody else removed it"


def test_a_table_that_is_renamed_before_it_has_triggers_is_no_loss_of_the_queue(
    database: Database, mirrored: Mirrored
) -> None:
    executed(database, ["CREATE TABLE late (id int PRIMARY KEY)"])
    with database.connect(user="app") as holder, ThreadPoolExecutor(1) as pool:
        holder.execute("BEGIN; LOCK TABLE headrace.queue IN SHARE ROW EXCLUSIVE MODE")
        running = pool.submit(mirrored.mirror.captures.capture, [TableName("public", "late")])
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ '^LOCK TABLE'"
        wait_for(lambda: bool(database.execute(waits)), "it waits for the lock")
        database.execute("ALTER TABLE late RENAME TO later")
        holder.execute("COMMIT")
        error = running.result(20).examined_tables.errors[TableName("public", "late")]
        assert isinstance(error, TableBusy), error
        assert "is not there any more" in str(error)
