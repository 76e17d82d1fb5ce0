"""The server's clock against its binlog: no commit behind a reading is as early as it."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime

import pytest

from headrace.sources.contract.mirror import ClockReading
from headrace.sources.mysql.position import MysqlTimeline
from headrace.sources.mysql.session import clock
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.statements import MysqlConnection, query
from headrace_testing.mysql import Database

pytestmark = pytest.mark.server

_MYSQL = re.compile(r"immediate_commit_timestamp=(\d+).*?SET @@SESSION.GTID_NEXT= '([^']+)'", re.DOTALL)
_MARIADB = re.compile(r"#(\d{6} [ \d]\d:\d\d:\d\d) server id .*?\tGTID (\S+)")


@contextmanager
def privileged(database: Database) -> Iterator[MysqlConnection]:
    database.server.execute("GRANT PROCESS ON *.* TO app")
    try:
        with connect(MysqlAddress.parse(database.url(user="app")), role="test") as session:
            yield session
    finally:
        database.server.execute("REVOKE PROCESS ON *.* FROM app")


def commits(database: Database) -> list[tuple[int, str]]:
    """The time and the name of every commit in the binlog, as the server's own program reads it."""
    server = database.server
    mariadb = server.flavour.is_mariadb
    program = server.tool("mariadb-binlog" if mariadb else "mysqlbinlog")
    files = sorted(map(str, server.process.data.glob("binlog.[0-9]*")))
    said = subprocess.run(
        [*program, "--no-defaults", *files], capture_output=True, check=True, env={"TZ": "UTC"}
    ).stdout.decode("utf-8", "replace")
    if not mariadb:
        return [(int(moment), name) for moment, name in _MYSQL.findall(said)]
    return [
        (round(datetime.strptime(f"{at} +0000", "%y%m%d %H:%M:%S %z").timestamp()) * 1_000_000, name)
        for at, name in _MARIADB.findall(said)
    ]


def test_no_commit_behind_a_reading_is_as_early_as_it(database: Database) -> None:
    """Short and long statements commit all the while, of which some begin before a reading and end behind."""
    stop = threading.Event()
    database.execute("CREATE TABLE c (a int AUTO_INCREMENT PRIMARY KEY, b int)")

    def write(pause: float) -> None:
        with closing(database.connect()) as connection, connection.cursor() as cursor:
            while not stop.is_set():
                cursor.execute("INSERT INTO c (b) SELECT SLEEP(%s)", [pause])

    many = "SELECT COUNT(*) > 50 FROM c"
    writers = [threading.Thread(target=write, args=(pause,)) for pause in (0.0, 0.01, 1.3)]
    readings: list[ClockReading] = []
    with privileged(database) as session:
        for writer in writers:
            writer.start()
        end = time.monotonic() + 2.5
        while time.monotonic() < end or len(readings) <= 20 or database.execute(many) == [(0,)]:
            reading = clock.read(session, MysqlTimeline())
            assert reading is not None
            readings.append(reading)
        stop.set()
        for writer in writers:
            writer.join()
        after = clock.begin(session)
        written = commits(database)
    assert len(readings) > 20
    assert len(written) > 50
    assert max(moment for moment, _ in written) <= after
    # The binlog's order is that of positions: the n-th commit is in a position of n or more.
    behind = 0
    for reading in readings:
        later = written[reading.position.time // 8 :]
        behind += bool(later)
        assert all(moment > reading.at for moment, _ in later)
    assert behind


def test_an_idle_server_tells_the_time_almost_to_the_moment(database: Database) -> None:
    with privileged(database) as session:
        before = datetime.now(UTC).timestamp()
        reading = clock.read(session, MysqlTimeline())
        assert reading is not None
        assert reading.at / 1e6 > before - 2.1


def test_who_does_not_see_what_others_do_reads_no_clock(database: Database) -> None:
    with connect(MysqlAddress.parse(database.url(user="app")), role="test") as session:
        assert clock.read(session, MysqlTimeline()) is None
        assert query(session, "SELECT 1") == [(1,)]
