"""Statements on real servers of both kinds: each wait has an end, and nothing of ours lives on behind it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import NoReturn

import pytest

from headrace.core.errors import Definite, HeadraceError, Misconfigured, Transient
from headrace.core.records import to_record
from headrace.sources.mysql.session import statements
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.result_set import ResultRows
from headrace.sources.mysql.session.statements import MysqlConnection, Parameter, query, rows
from headrace.sources.shared.refusals import LockTimeout, StatementCancelled
from headrace_testing.mysql import Database
from headrace_testing.postmaster import wait_for
from headrace_testing.proxy import Proxy

pytestmark = pytest.mark.server

MILLIONS = "WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 1000)"
# Minutes of work: it neither sleeps nor waits.
LONG = f"SELECT count(*) FROM ({MILLIONS} SELECT n FROM s) a, ({MILLIONS} SELECT n FROM s) b,"
LONG += f" ({MILLIONS} SELECT n FROM s) c WHERE a.n * b.n * c.n = -1"


def open_session(database: Database, **options: int) -> MysqlConnection:
    return connect(MysqlAddress.parse(database.url(user="app", **options)), role="test")


def stopped() -> NoReturn:
    raise Transient("RUN_STOPPED", "the run was stopped", hint="run again to go on")


def running(database: Database, session: MysqlConnection) -> bool:
    """Tell whether the server is doing something for this session."""
    return bool(
        database.execute(
            "SELECT 1 FROM information_schema.processlist WHERE id = %s AND command <> 'Sleep'",
            [session.connection_id],
        )
    )


@pytest.mark.parametrize("statement", ["SELECT SLEEP(60)", LONG, "SELECT GET_LOCK('taken', 60)"])
def test_a_statement_that_takes_too_long_ends_at_the_server_and_the_session_lives(
    database: Database, statement: str
) -> None:
    with open_session(database) as session, open_session(database) as other:
        query(other, "SELECT GET_LOCK('taken', 0)")
        begun = time.monotonic()
        with pytest.raises(StatementCancelled):
            query(session, statement, seconds=0.3)
        assert time.monotonic() - begun < 15
        wait_for(lambda: not running(database, session), "the statement has ended")
        for number in range(5):  # a cancellation that came too late strikes none of these
            assert query(session, f"SELECT {number}") == [(number,)]


def test_a_statement_that_is_larger_than_the_server_takes_is_refused_and_a_larger_value_is_read(
    database: Database,
) -> None:
    """MySQL hangs up on whoever sends one, as if the line were lost; it would be sent again for ever."""
    database.execute("CREATE TABLE large (v longblob)")
    database.execute("INSERT INTO large VALUES (REPEAT('x', 2000000))")
    [(usual,)] = database.execute("SELECT @@global.max_allowed_packet")
    database.server.execute("SET GLOBAL max_allowed_packet = 1048576")
    try:
        with open_session(database) as session:
            assert session.largest == 1048576
            fits = 1048576 - 2 - len(f"/* headrace {session.role} */ SELECT LENGTH('')")
            assert query(session, f"SELECT LENGTH('{'x' * fits}')") == [(fits,)]
            with pytest.raises(Misconfigured) as refused:
                query(session, f"SELECT LENGTH('{'x' * (fits + 1)}')")
            assert (refused.value.code, "xxx" in str(refused.value)) == ("MY_PACKET_TOO_LARGE", False)
            assert query(session, "SELECT LENGTH(v) FROM large") == [(2000000,)]
            assert query(session, "SELECT v FROM large") == [(b"x" * 2000000,)]
    finally:
        database.server.execute(f"SET GLOBAL max_allowed_packet = {usual}")


def test_a_large_row_on_a_slow_line_is_no_silence(mariadb_database: Database) -> None:
    server = mariadb_database.server
    with (
        Proxy(server.host, server.port) as proxy,
        open_session(mariadb_database, port=proxy.port) as session,
    ):
        proxy.throttle(500_000)
        with rows(session, "SELECT REPEAT('x', 1000000)", silence=0.8) as answer:
            assert [len(row[0] or b"") for row in answer.rows()] == [1_000_000]
        assert query(session, "SELECT 1") == [(1,)]


def test_whoever_stops_a_run_is_raised_and_the_statement_ends(database: Database) -> None:
    with open_session(database) as session:
        begun = time.monotonic()
        with pytest.raises(Transient) as caught:
            query(session, LONG, check=stopped)
        assert caught.value.code == "RUN_STOPPED"
        assert time.monotonic() - begun < 15
        wait_for(lambda: not running(database, session), "the statement has ended")
        assert query(session, "SELECT 1") == [(1,)]


def test_a_cancellation_that_comes_before_its_statement_is_made_again(database: Database) -> None:
    """The server drops it; whoever stops a run would wait for as long as the statement takes."""
    process = database.server.process
    with open_session(database) as session:
        struck = []
        strike = session.interrupt
        assert strike is not None

        def counted() -> None:
            strike()
            struck.append(time.monotonic())

        session.interrupt = counted
        send = session.packets.send

        def send_late(command: int, argument: bytes = b"") -> None:
            """The request is on its way before the statement is."""
            if not struck:
                counted()
            send(command, argument)

        session.packets.send = send_late  # type: ignore[method-assign]
        with pytest.raises(Transient) as caught:
            query(session, LONG, check=stopped)
        assert caught.value.code == "RUN_STOPPED"
        assert len(struck) >= 2
        session.packets.send = send  # type: ignore[method-assign]
        assert query(session, "SELECT 1") == [(1,)]
    assert process.running


def test_a_server_that_stands_still_is_cancelled_once_it_goes_on(database: Database) -> None:
    process = database.server.process
    with open_session(database) as session:
        process.send(signal.SIGSTOP)
        timer = threading.Timer(1.0, process.send, [signal.SIGCONT])
        timer.start()
        try:
            with pytest.raises(Transient) as caught:
                query(session, LONG, check=stopped)
        finally:
            timer.join()
        assert caught.value.code == "RUN_STOPPED"
        assert query(session, "SELECT 1") == [(1,)]


def test_only_the_session_itself_is_ever_struck(database: Database) -> None:
    """Another statement of the same account goes on, and so does one after the session is gone."""
    session, other = open_session(database), open_session(database)
    worker_found: list[object] = []
    worker = threading.Thread(target=lambda: worker_found.append(query(other, "SELECT SLEEP(1), 5")))
    worker.start()
    wait_for(lambda: running(database, other), "the other statement runs")
    assert session.interrupt is not None
    session.interrupt()
    session.close()
    wait_for(lambda: _is_gone(database, session), "the session is gone")
    with pytest.raises(HeadraceError):
        session.interrupt()
    worker.join()
    assert worker_found == [[(0, 5)]]
    other.close()


def _is_gone(database: Database, session: MysqlConnection) -> bool:
    return not database.execute(
        "SELECT 1 FROM information_schema.processlist WHERE id = %s", [session.connection_id]
    )


def test_whatever_waits_for_a_lock_is_ended_by_the_server(database: Database) -> None:
    with open_session(database) as holder, open_session(database) as session:
        query(holder, "LOCK TABLES t READ")
        mode = "tx_read_only" if session.release.is_mariadb else "transaction_read_only"
        query(session, f"SET SESSION {mode} = 0, SESSION lock_wait_timeout = 1")
        with pytest.raises(LockTimeout):
            query(session, "ALTER TABLE t ADD COLUMN a int")


@pytest.mark.parametrize(
    "way",
    ["kill", pytest.param("crash", marks=pytest.mark.full), pytest.param("stop", marks=pytest.mark.full)],
)
def test_a_session_that_the_server_ends_is_a_lost_connection(database: Database, way: str) -> None:
    with open_session(database) as session:
        result: list[HeadraceError] = []

        def ask() -> None:
            try:
                query(session, LONG)
            except HeadraceError as error:
                result.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        wait_for(lambda: running(database, session), "the statement runs")
        match way:
            case "kill":
                database.execute(f"KILL {session.connection_id}")
            case "crash":
                database.server.crash()
            case "stop":
                database.server.stop()
        asking.join()
        assert [error.code for error in result] == ["MY_CONNECTION_LOST"]
        with pytest.raises(Transient):
            query(session, "SELECT 1")
    if way != "kill":
        with pytest.raises(Transient) as caught:
            open_session(database)
        assert caught.value.code == "MY_UNREACHABLE"
        database.server.start()
    with open_session(database) as session:
        assert query(session, "SELECT 1") == [(1,)]


def test_a_session_that_was_killed_while_it_was_idle_is_a_lost_connection(database: Database) -> None:
    with open_session(database) as session:
        database.execute(f"KILL {session.connection_id}")
        wait_for(lambda: _is_gone(database, session), "the session is gone")
        with pytest.raises(Transient) as caught:
            query(session, "SELECT 1")
        assert caught.value.code == "MY_CONNECTION_LOST"


def test_a_question_to_a_half_open_connection_ends_as_a_lost_connection(database: Database) -> None:
    with (
        Proxy(database.server.host, database.server.port) as proxy,
        open_session(database, port=proxy.port) as session,
    ):
        proxy.half_open()
        begun = time.monotonic()
        with pytest.raises(Transient) as caught:
            query(session, "SELECT 1", seconds=0.3, limit=0.4)
        assert caught.value.code == "MY_CONNECTION_LOST"
        assert time.monotonic() - begun < 15


SECRET = "hunter2"


@pytest.mark.parametrize(
    "statement",
    [
        f"SELECT '{SECRET}",
        f"SELECT * FROM nowhere WHERE '{SECRET}'",
        f"SELECT ST_GeomFromText(REPEAT('{SECRET}', 2)) FROM missing",
        f"SELECT JSON_EXTRACT('{SECRET}', '$') , no_such_function('{SECRET}')",
        f"SELECT CONVERT('{SECRET}' USING no_such_charset)",
        f"SET time_zone = '{SECRET}'",
        f"SET @@session.sql_mode = '{SECRET}'",
        f"INSERT INTO t VALUES ('{SECRET}')",
        f"SELECT UPDATEXML('<a>', '{SECRET}[', '')",
        f"SELECT '{SECRET}' COLLATE latin1_bin",
        f"SELECT ~(('{SECRET}', 1))",
        f"SELECT 1 FROM t WHERE id = (SELECT '{SECRET}' UNION SELECT 2)",
        f"SELECT '{SECRET}' REGEXP '{SECRET}('",
    ],
)
def test_an_error_shows_nothing_of_its_statement(database: Database, statement: str) -> None:
    with open_session(database) as session:
        with pytest.raises(HeadraceError) as caught:
            query(session, statement)
        error = caught.value
        assert SECRET not in f"{error}{error!r}{to_record(error)}"
        assert error.__suppress_context__
        assert query(session, "SELECT 1") == [(1,)]


def test_a_table_that_is_gone_is_named(database: Database) -> None:
    with open_session(database) as session, pytest.raises(Definite) as caught:
        query(session, "SELECT * FROM lost")
    assert caught.value.code == "MY_TABLE_GONE"
    assert "lost" in str(caught.value.detail)


PARAMETERS: list[Parameter] = [
    "",
    "a",
    'it\'s \\ "quoted" `%s` \0\n',
    "ünïcødé ☃ \U0001f600",
    b"",
    b"\x00\xff'\\",
    -1,
    2**63,
    1.5,
]


@pytest.mark.parametrize("mode", ["", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES", "PIPES_AS_CONCAT"])
def test_parameters_arrive_as_they_are_in_every_mode(database: Database, mode: str) -> None:
    with open_session(database) as session:
        query(session, f"SET sql_mode = '{mode}'")
        places = ", ".join(["%s"] * len(PARAMETERS))
        [found] = query(session, f"SELECT {places}", PARAMETERS)
        assert list(found[:-1]) == PARAMETERS[:-1]
        assert float(str(found[-1])) == PARAMETERS[-1]
        assert query(session, "SELECT 3 -%s", [-1]) == [(4,)]


def taken(block: ResultRows) -> list[bytes]:
    return [block.data[block.starts[i] : block.starts[i + 1]].tobytes() for i in range(len(block))]


@pytest.mark.parametrize("encrypted", ["REQUIRED", pytest.param("DISABLED", marks=pytest.mark.full)])
def test_rows_of_every_size_come_as_the_server_sent_them(database: Database, encrypted: str) -> None:
    if encrypted == "REQUIRED" and database.server.flavour.is_mariadb:
        encrypted = "PREFERRED"  # it has no certificate of its own
    size = 17 << 20
    database.server.execute(f"SET GLOBAL max_allowed_packet = {64 << 20}")
    address = MysqlAddress.parse(f"{database.url(user='app')}?ssl-mode={encrypted}&get-server-public-key=1")
    with connect(address, role="test") as session:
        statement = f"{MILLIONS} SELECT n, REPEAT('x', IF(n = 500, {size}, n)) FROM s ORDER BY n"
        with rows(session, statement) as answer:
            assert answer.columns[0].name == "n"
            found = [each for block in answer.blocks() for each in taken(block)]
        assert len(found) == 1000
        assert max(map(len, found)) == size + 4 + 9
        assert found[4] == b"\x015\x05xxxxx"
        # A packet that is a few bytes more or less than the longest piece.
        for length in ((1 << 24) - 6, (1 << 24) - 5, (1 << 24) - 4, 1 << 24):
            assert query(session, f"SELECT REPEAT('y', {length})") == [("y" * length,)]
        assert query(session, "SELECT LENGTH(%s)", ["z" * size]) == [(size,)]


def test_an_error_amid_rows_leaves_a_session_that_works(database: Database) -> None:
    with open_session(database) as session:
        statement = f"{MILLIONS} SELECT REPEAT('x', 10000), IF(n = 999, (SELECT 1 UNION SELECT 2), n) FROM s"
        with pytest.raises(HeadraceError) as caught:
            _read(session, statement)
        assert caught.value.code == "MY_STATEMENT_REFUSED"
        assert query(session, "SELECT 1") == [(1,)]


def _read(session: MysqlConnection, statement: str) -> None:
    with rows(session, statement) as answer:
        for block in answer.blocks(100_000):
            assert len(block)


@pytest.mark.parametrize("reason", ["left", "stopped"])
def test_rows_that_nobody_takes_end_at_the_server(database: Database, reason: str) -> None:
    stop: list[Callable[[], None]] = [lambda: None]
    with open_session(database) as session:
        endless = f"{MILLIONS} SELECT REPEAT('x', 1000) FROM s a, s b, s c"
        with pytest.raises(HeadraceError) as caught:
            _read_until(session, endless, reason, stop)
        assert caught.value.code == "RUN_STOPPED"
        assert session.is_closed
        wait_for(lambda: not running(database, session), "the statement has ended")


def _read_until(session: MysqlConnection, endless: str, reason: str, stop: list[Callable[[], None]]) -> None:
    with rows(session, endless, check=lambda: stop[0]()) as answer:
        for _ in answer.blocks():
            if reason == "left":
                stopped()
            stop[0] = stopped


def test_nothing_is_asked_amid_an_answer(database: Database) -> None:
    """Its rows would be taken for the answer to the other statement."""
    with open_session(database) as session:
        with pytest.raises(RuntimeError):
            _ask_amid(session)
        assert session.is_closed


def _ask_amid(session: MysqlConnection) -> None:
    with rows(session, f"{MILLIONS} SELECT REPEAT('x', 1000) FROM s a, s b") as answer:
        for _ in answer.blocks(1000):
            query(session, "SELECT 1")


def test_whoever_breaks_off_otherwise_leaves_no_session_behind(database: Database) -> None:
    """An open session would take the rest of this answer for the answer to its next statement."""

    def broken() -> NoReturn:
        raise KeyboardInterrupt

    session = open_session(database)
    with pytest.raises(KeyboardInterrupt):
        query(session, LONG, check=broken)
    assert session.is_closed


def test_a_silent_server_amid_rows_is_given_up(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "CANCEL_LIMIT", 0.4)
    with (
        Proxy(database.server.host, database.server.port) as proxy,
        open_session(database, port=proxy.port) as session,
    ):
        with pytest.raises(Transient) as caught:
            _read_half_open(session, proxy)
        assert caught.value.code == "MY_CONNECTION_LOST"


def _read_half_open(session: MysqlConnection, proxy: Proxy) -> None:
    with rows(session, f"{MILLIONS} SELECT REPEAT('x', 1000) FROM s a, s b", silence=0.3) as answer:
        for _ in answer.blocks(100_000):
            proxy.half_open()
