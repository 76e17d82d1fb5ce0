"""A server whose history is not what its sets of GTIDs say: told by hand, reset, set back."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.errors import HeadraceError, PositionLost
from headrace.core.names import TableName
from headrace.core.position import STEP
from headrace.sources.contract.mirror import StreamOrder
from headrace.sources.contract.values import ALONE
from headrace.sources.mysql.copy.leader import lead
from headrace.sources.mysql.origin import establish
from headrace.sources.mysql.position import MysqlTimeline, count, parse
from headrace.sources.mysql.session import clock
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.identity import identify
from headrace.sources.mysql.session.log_end import position as executed
from headrace.sources.mysql.session.log_end import unlogged_gtids
from headrace.sources.mysql.stream.errors import EventDamaged
from headrace.sources.mysql.upstream import MysqlUpstream
from headrace_testing.mysql import Database, mariadb, mysql
from headrace_testing.postmaster import wait_for
from tests.integration.mysql.copy.readers import Reader as ViewReader
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
        server.purge()
        yield made


def test_transactions_that_were_never_logged_are_counted_by_nobody(database: Database) -> None:
    server, address = database.server, MysqlAddress.parse(database.url(user="app"))
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
        while reader.position.time == reached.time:  # the stream itself counts what it brings
            assert reader.dump.read(60.0) is not None
        assert reader.position.time == reached.time + STEP
        for ask in (executed, clock.read):
            with pytest.raises(PositionLost) as told:
                ask(session, LOG)
            assert told.value.code == "MY_GTIDS_UNLOGGED"
        with pytest.raises(HeadraceError) as opened, reading(server, [], reader.position.text):
            pass
        assert opened.value.code == "MY_GTIDS_UNLOGGED"


def test_what_was_unlogged_at_the_beginning_stays_so_over_purges_and_restarts(database: Database) -> None:
    server, address = database.server, MysqlAddress.parse(database.url(user="app"))
    server.execute(f"SET GLOBAL gtid_purged = '+{ELSEWHERE}:1-5'")
    with connect(address, role="test") as session:
        log = MysqlTimeline(0, str(unlogged_gtids(session)))
        assert log.unlogged_gtids == f"{ELSEWHERE}:1-5"
        before = executed(session, log)
        run(database, "INSERT INTO t VALUES (2)")
        server.purge()
        assert executed(session, log).time == before.time + STEP
    server.restart()
    server.purge()
    with connect(address, role="test") as session:
        assert executed(session, log).time == before.time + STEP
        server.execute(f"SET GLOBAL gtid_purged = '+{ELSEWHERE}:6'")
        with pytest.raises(PositionLost):
            executed(session, log)


@pytest.fixture(params=["mysql", "mariadb"])
def table(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A table on a server of its own."""
    with (mysql if request.param == "mysql" else mariadb)() as server, server.database() as made:
        run(made, "CREATE TABLE t (id int AUTO_INCREMENT PRIMARY KEY)")
        yield made


def _streamed(database: Database, start: str | None = None) -> str:
    """The text of the place behind some writes, as a stream says it."""
    with reading(database.server, [(database.name, "t")], start) as reader:
        for _ in range(3):
            run(database, "INSERT INTO t VALUES ()")
        reader.catch_up()
        return reader.position.text


def _begin(database: Database) -> str:
    """The text of the place where a stream begins that has brought nothing yet."""
    with connect(MysqlAddress.parse(database.server.url()), role="test") as session:
        return establish(
            session.address, identify(session), MysqlUpstream(), StreamOrder([]), ALONE
        ).start.text


def _write_past(database: Database, text: str) -> None:
    """Write until the server has executed more than that, in later seconds: MariaDB has nothing finer."""
    latest = max((place.commit_ts for place in parse(text).last), default=0)
    wait_for(lambda: time.time() >= latest / 1e6 + 1, "the next second")
    while count(position(database.server)) < count(text) + 2:
        run(database, "INSERT INTO t VALUES ()")


def _refused(database: Database, text: str) -> str:
    with pytest.raises(HeadraceError) as refused, reading(database.server, [], text):
        pass
    assert isinstance(refused.value, PositionLost)
    return refused.value.code


def test_a_server_that_was_reset_and_has_written_as_much_again_is_refused(table: Database) -> None:
    server = table.server
    began = _begin(table)
    reached = _streamed(table, began)
    reset = "RESET MASTER" if server.flavour.is_mariadb else "RESET BINARY LOGS AND GTIDS"
    server.execute(reset)
    _write_past(table, reached)
    assert [_refused(table, text) for text in (began, reached)] == ["MY_HISTORY_CHANGED"] * 2
    server.execute("FLUSH BINARY LOGS")
    server.purge()  # of what was written since, so that the file of that name is gone
    server.execute(reset)
    _write_past(table, reached)
    assert _refused(table, reached) == "MY_HISTORY_CHANGED"


def test_a_server_goes_on_whose_newest_file_was_purged_behind_us(table: Database) -> None:
    server, began = table.server, _begin(table)
    with reading(server, [(table.name, "t")], began) as reader:
        run(table, "INSERT INTO t VALUES ()")
        assert len(reader.catch_up()) == 3
    reached = _streamed(table)
    server.restart()
    server.purge()
    files = [name for name, *_ in server.execute("SHOW BINARY LOGS")]
    assert not any(name in reached for name in files)
    with reading(server, [(table.name, "t")], reached) as reader:
        run(table, "INSERT INTO t VALUES ()")
        assert len(reader.catch_up()) == 3
        again = reader.position.text
    with reading(server, [(table.name, "t")], again) as reader:
        run(table, "INSERT INTO t VALUES ()")
        assert len(reader.catch_up()) == 3


def test_the_last_event_that_was_read_is_told_as_damaged_and_not_as_another(table: Database) -> None:
    """It is asked for again before a stream goes on; a reconcile would copy everything for nothing."""
    server, reached = table.server, _streamed(table)
    [place] = parse(reached).last
    file = server.process.data / place.file
    sound = file.read_bytes()
    damaged = bytearray(sound)
    damaged[place.at + 25] ^= 1  # behind its header
    _overwrite(file, damaged)
    with pytest.raises(EventDamaged), reading(server, [], reached):
        pass
    _overwrite(file, sound)
    with reading(server, [(table.name, "t")], reached) as reader:
        run(table, "INSERT INTO t VALUES ()")
        assert len(reader.catch_up()) == 3


def _overwrite(file: Path, content: bytes | bytearray) -> None:
    """In place: the server has it open."""
    with file.open("r+b") as log:
        log.write(content)


def test_a_stream_begins_where_nothing_was_executed_since_a_reset(table: Database) -> None:
    table.server.execute("RESET MASTER" if table.server.flavour.is_mariadb else "RESET BINARY LOGS AND GTIDS")
    began = _begin(table)
    assert began.startswith("last ")
    reached = _streamed(table, began)
    with reading(table.server, [(table.name, "t")], reached) as reader:
        run(table, "INSERT INTO t VALUES ()")
        assert len(reader.catch_up()) == 3


@pytest.mark.full
def test_a_server_whose_volume_was_set_back_is_refused_once_it_has_written_as_much(
    table: Database, tmp_path: Path
) -> None:
    server = table.server
    server.stop()
    shutil.copytree(server.process.data, tmp_path / "before")
    server.start()
    reached = _streamed(table)
    server.stop()
    shutil.rmtree(server.process.data)
    shutil.copytree(tmp_path / "before", server.process.data)
    server.start()
    _write_past(table, reached)
    assert _refused(table, reached) == "MY_HISTORY_CHANGED"
