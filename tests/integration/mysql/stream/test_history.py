"""A server whose history is not what its sets of GTIDs say: told by hand, reset, set back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.core.errors import HeadraceError, PositionLost
from headrace.core.names import TableName
from headrace.core.position import STEP
from headrace.sources.mysql.binlog_position import Log
from headrace.sources.mysql.session import clock
from headrace.sources.mysql.session.address import Address
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.identity import identify
from headrace.sources.mysql.session.log_end import position as executed
from headrace.sources.mysql.session.log_end import unlogged
from headrace.sources.mysql.snapshot.leader import lead
from headrace.testing.mysql import Database, Server, mysql
from tests.integration.mysql.snapshot.readers import Reader as ViewReader
from tests.integration.mysql.stream.reading import LOG, position, reading
from tests.integration.mysql.stream.test_dump import run

pytestmark = pytest.mark.server

ELSEWHERE = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.fixture
def database() -> Iterator[Database]:
    """A table on a server of its own, of which logs were purged."""
    with mysql() as server, server.database() as made:
        run(made, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        server.execute("GRANT PROCESS ON *.* TO app")
        _purge(server)
        yield made


def _purge(server: Server) -> None:
    server.execute("FLUSH BINARY LOGS")
    [*files] = server.execute("SHOW BINARY LOGS")
    server.execute(f"PURGE BINARY LOGS TO '{files[-1][0]}'")


def test_transactions_that_were_never_logged_are_counted_by_nobody(database: Database) -> None:
    server, address = database.server, Address.parse(database.url(user="app"))
    with connect(address, role="test") as session, reading(server, [(database.name, "t")]) as reader:
        identity, reached = identify(session), executed(session, LOG)
        assert reached == LOG.position(position(server))
        leader = lead(address, identity, 1)
        with ViewReader(database.url(), identity, leader.ticket, "SELECT 1") as view:
            server.execute(f"SET GLOBAL gtid_purged = '+{ELSEWHERE}:1-5'")
            with pytest.raises(PositionLost) as refused, leader:
                leader.take([TableName(database.name, "t")], LOG, 60.0)
            assert view.state() == "MY_SNAPSHOT_GONE"
        assert refused.value.code == "MY_GTIDS_UNLOGGED"
        run(database, "INSERT INTO t VALUES (2)")
        assert reader.dump.read(60.0) is not None  # the stream itself counts what it brings
        assert reader.position.time == reached.time + STEP
        for ask in (executed, clock.read):
            with pytest.raises(PositionLost) as told:
                ask(session, LOG)
            assert told.value.code == "MY_GTIDS_UNLOGGED"
        with pytest.raises(HeadraceError) as opened, reading(server, [], reader.position.text):
            pass
        assert opened.value.code == "MY_GTIDS_UNLOGGED"


def test_what_was_unlogged_at_the_beginning_stays_so_over_purges_and_restarts(database: Database) -> None:
    server, address = database.server, Address.parse(database.url(user="app"))
    server.execute(f"SET GLOBAL gtid_purged = '+{ELSEWHERE}:1-5'")
    with connect(address, role="test") as session:
        log = Log(0, str(unlogged(session)))
        assert log.unlogged == f"{ELSEWHERE}:1-5"
        before = executed(session, log)
        run(database, "INSERT INTO t VALUES (2)")
        _purge(server)
        assert executed(session, log).time == before.time + STEP
    server.restart()
    _purge(server)
    with connect(address, role="test") as session:
        assert executed(session, log).time == before.time + STEP
        server.execute(f"SET GLOBAL gtid_purged = '+{ELSEWHERE}:6'")
        with pytest.raises(PositionLost):
            executed(session, log)
