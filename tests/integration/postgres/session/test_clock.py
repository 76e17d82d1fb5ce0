"""A reading of the server's clock: what is committed from its position on bears a later time."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest

from headrace.sources.contract.mirror import ClockReading
from headrace.sources.postgres.position import Lsn, PostgresTimeline
from headrace.sources.postgres.session import clock
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.statements import Session, query
from headrace_testing.postgres import Database

pytestmark = pytest.mark.server

WRITERS = 4
SECONDS = 1.5
_EPOCH_2000 = 946_684_800_000_000
_COMMITS = """
SELECT data FROM pg_logical_slot_peek_binary_changes(
           'clock', NULL, NULL, 'proto_version', '1', 'publication_names', 'all')
 WHERE get_byte(data, 0) = ascii('B')
"""


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    database.execute(
        'CREATE TABLE t (id bigserial PRIMARY KEY, v int); CREATE PUBLICATION "all" FOR ALL TABLES'
    )
    database.execute("SELECT pg_create_logical_replication_slot('clock', 'pgoutput')")
    with closing(connect(PostgresAddress.parse(database.url()), role="test")) as connection:
        yield connection


def _now() -> int:
    return round(datetime.now(UTC).timestamp() * 1_000_000)


def _write(database: Database, stop: threading.Event, *, asynchronous: bool) -> None:
    with database.connect() as connection:
        connection.autocommit = True
        connection.execute(f"SET synchronous_commit = {'off' if asynchronous else 'on'}".encode())
        while not stop.is_set():
            connection.execute("INSERT INTO t (v) VALUES (1)")


def test_commits_at_the_position_or_behind_it_bear_later_times(database: Database, session: Session) -> None:
    stop = threading.Event()
    writers = [
        threading.Thread(target=_write, args=(database, stop), kwargs={"asynchronous": number % 2 == 0})
        for number in range(WRITERS)
    ]
    readings: list[ClockReading | None] = []
    for writer in writers:
        writer.start()
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline or len({each.at for each in readings if each is not None}) <= 100:
        readings.append(clock.read(session, PostgresTimeline()))
    stop.set()
    for writer in writers:
        writer.join()
    begins = [struct.unpack(">qq", bytes(data)[1:17]) for (data,) in query(session, _COMMITS)]
    commits = [(lsn, moment + _EPOCH_2000) for lsn, moment in begins]
    found = [reading for reading in readings if reading is not None]
    assert len(found) > 100
    # One of them did not wait for anybody: no transaction ran.
    assert len({reading.at for reading in found}) > 100
    late = [
        (reading, lsn, moment)
        for reading in found
        for lsn, moment in commits
        if lsn >= reading.position.time and moment <= reading.at
    ]
    assert late == []


def test_who_may_have_noted_its_time_already_is_waited_for(database: Database, session: Session) -> None:
    before = _now()
    alone = _read(session)
    assert before - clock.HESITATION // 2 < alone.at < _now() + clock.HESITATION // 2
    with database.connect() as connection, connection.transaction():
        connection.execute("INSERT INTO t (v) VALUES (1)")
        assert _read(session).at <= _now() - clock.HESITATION
    assert _read(session).at > alone.at


def test_at_a_pages_edge_the_position_is_the_one_that_a_stream_reports() -> None:
    assert clock._reachable(Lsn(8192 * 7 + 24)) == Lsn(8192 * 7)
    assert clock._reachable(Lsn(40)) == Lsn(0)
    assert clock._reachable(Lsn(8192 * 7 + 32)) == Lsn(8192 * 7 + 32)


def _read(session: Session) -> ClockReading:
    reading = clock.read(session, PostgresTimeline())
    assert reading is not None
    return reading
