"""A stream misses no row from its beginning on, and times grow over a lost position."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.sources.contract.mirror import StreamOrder, StreamOrigin
from headrace.sources.contract.values import ALONE
from headrace.sources.mysql.origin import confirm, establish
from headrace.sources.mysql.position import MysqlTimeline
from headrace.sources.mysql.preflight.binlog import health
from headrace.sources.mysql.session import log_end
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.identity import identify
from headrace.sources.mysql.session.statements import MysqlConnection
from headrace.sources.mysql.upstream import MysqlUpstream, options, plan
from headrace_testing.mysql import Database
from tests.bound import named_only
from tests.integration.mysql.stream.reading import position, reading

pytestmark = pytest.mark.server


@pytest.fixture(params=["mysql", "mariadb"])
def db(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(f"{request.param}_database")
    found.execute("CREATE TABLE t (id int PRIMARY KEY)")
    return found


@pytest.fixture
def session(db: Database) -> Iterator[MysqlConnection]:
    with connect(MysqlAddress.parse(db.url(user="mirror")), role="test") as made:
        yield made


def begin(session: MysqlConnection, db: Database, reached: Position | None = None) -> StreamOrigin:
    order = StreamOrder(named_only(TableName(db.name, "t")), received_until=reached)
    return establish(session.address, identify(session), MysqlUpstream(), order, ALONE)


@contextmanager
def prepared(db: Database, name: str) -> Iterator[None]:
    """An XA transaction that has written the table, and that nobody ends in the block."""
    with db.connect() as connection, connection.cursor() as cursor:
        for step in (
            f"XA START '{name}'",
            "INSERT INTO t VALUES (7)",
            f"XA END '{name}'",
            f"XA PREPARE '{name}'",
        ):
            cursor.execute(step)
    yield


def test_a_stream_begins_at_the_end_of_the_log_and_leaves_no_lock(
    db: Database, session: MysqlConnection
) -> None:
    origin = begin(session, db)
    assert origin.fresh
    assert not origin.another_life
    assert (
        origin.start
        == MysqlTimeline().position(position(db.server))
        == log_end.position(session, MysqlTimeline())
    )
    assert origin.identity == identify(session).lasting_part()
    assert MysqlUpstream.of(origin.upstream) == MysqlUpstream()
    assert origin.begun_at is not None
    db.execute("INSERT INTO t VALUES (1)")
    assert log_end.position(session, MysqlTimeline()).time == origin.start.time + 8
    assert not log_end.is_quiet(origin.start, log_end.position(session, MysqlTimeline()))
    assert log_end.is_quiet(origin.start, origin.start)


def test_a_transaction_that_is_open_at_the_start_comes_whole(db: Database, session: MysqlConnection) -> None:
    with db.connect(autocommit=False) as writer, writer.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1)")
        origin = begin(session, db)
        assert not origin.fresh  # it has written the table, which cannot be locked
        with reading(db.server, [(db.name, "t")], origin.start.text) as reader:
            cursor.execute("INSERT INTO t VALUES (2)")
            writer.commit()
            reader.catch_up()
            assert [changes for _, changes, _ in reader.ended] == [2]


def test_a_stream_that_begins_at_a_prepared_transaction_is_not_fresh(
    db: Database, session: MysqlConnection
) -> None:
    """Its rows are before the start, its end behind it: the stream passes over that."""
    with prepared(db, "x"):
        origin = begin(session, db)
        assert not origin.fresh
        with reading(db.server, [(db.name, "t")], origin.start.text) as reader:
            db.server.execute("XA COMMIT 'x'")
            db.execute("INSERT INTO t VALUES (8)")
            reader.catch_up()
            assert [changes for _, changes, _ in reader.ended] == [1]
    assert begin(session, db).fresh


def test_times_go_on_behind_what_was_reached_whoever_answers(db: Database, session: MysqlConnection) -> None:
    reached = begin(session, db).start
    db.execute("INSERT INTO t VALUES (1)")
    purged = begin(session, db, reached)  # the same history, of which a part is lost
    assert purged.start.time == reached.time + 8
    assert not purged.another_life
    names = {False: "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9", True: "99-1-9"}
    foreign = names[db.server.flavour.is_mariadb]
    for far in (Position(8, foreign), Position(1 << 40, foreign)):
        again = begin(session, db, far)
        assert again.another_life
        assert again.start.time > far.time
        assert MysqlUpstream.of(again.upstream).log.position(position(db.server)) == again.start


def test_a_server_that_writes_another_log_than_before_is_refused(
    db: Database, session: MysqlConnection
) -> None:
    confirm(session)
    kept = db.server.execute("SELECT @@global.binlog_row_image")[0][0]
    db.server.execute("SET GLOBAL binlog_row_image = 'MINIMAL'")
    try:
        with pytest.raises(HeadraceError) as caught:
            confirm(session)
        assert caught.value.code == "MY_ROW_IMAGE"
    finally:
        db.server.execute(f"SET GLOBAL binlog_row_image = '{kept}'")
    confirm(session)


def test_status_tells_how_long_the_log_lasts(db: Database, session: MysqlConnection) -> None:
    found = health(session, is_hosted=False)
    assert found.excess is None
    assert found.figures is not None
    kept = found.figures["keeps_seconds"]
    assert (kept is None) == db.server.flavour.is_mariadb  # which by itself never removes any of it
    assert position(db.server).replace("\n", "") in found.figures.values()
    [line] = found.lines
    assert ("keeps its log for" in line) == (kept is not None)
    assert "as its cloud decides" in health(session, is_hosted=True).lines[0]


def test_the_option_of_a_mirror_lasts_with_its_record() -> None:
    accepting = plan({"unlogged_cascades": "accept"})
    assert options(MysqlUpstream.of(to_record(accepting))) == {"unlogged_cascades": "accept"}
    refused = {"unlogged_cascades": "refuse"}
    assert options(plan({})) == options(plan(refused)) == refused
