"""Streams that a server ends, or that cannot be begun at one: each has its code, and says what to do."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.core.errors import Definite, HeadraceError, Misconfigured, PositionLost, Transient
from headrace.sources.mysql.session import connection
from headrace.sources.mysql.stream import dump, events
from headrace_testing.mysql import Database, Server, mariadb, mysql
from headrace_testing.mysql.event_faults import altered
from headrace_testing.postmaster import wait_for
from headrace_testing.proxy import Proxy
from tests.integration.mysql.mirrors.judging import kinds
from tests.integration.mysql.stream.reading import Reader, position, reading
from tests.integration.mysql.stream.test_dump import names, rows, run
from tests.unit.sources.mysql.stream import logged

pytestmark = pytest.mark.server


@pytest.fixture(params=["mysql", "mariadb"])
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(f"{request.param}_database")
    return found


@pytest.fixture(scope="module")
def own_mysql() -> Iterator[Server]:
    """A server whose log may be spoilt."""
    with mysql() as server:
        yield server


@pytest.fixture(scope="module")
def own_mariadb() -> Iterator[Server]:
    """A server whose log may be spoilt."""
    with mariadb() as server:
        yield server


@contextmanager
def table_of(server: Server) -> Iterator[tuple[Database, list[tuple[str, str]]]]:
    with server.database() as database:
        run(database, "CREATE TABLE t (id int PRIMARY KEY, v text)")
        yield database, [(database.name, "t")]


def ended(reader: Reader) -> HeadraceError:
    """Read until the stream ends with an error, and return it."""
    with pytest.raises(HeadraceError) as caught:
        reader.until_cut()
    assert caught.value.hint
    return caught.value


def refused(server: Server, tables: list[tuple[str, str]], start: str) -> HeadraceError:
    """Return the error that keeps a stream from beginning, or ends it."""
    with pytest.raises(HeadraceError) as caught, reading(server, tables, start) as reader:
        reader.until_cut()
    assert caught.value.hint
    return caught.value


def test_a_transaction_without_a_gtid_ends_the_stream_and_the_mode_is_named(own_mysql: Server) -> None:
    with table_of(own_mysql) as (database, tables):
        with reading(own_mysql, tables) as reader:
            run(database, "INSERT INTO t VALUES (1, 'a')")
            assert names(reader.catch_up()) == ["BEGIN", "map", "rows 30"]
            own_mysql.execute("SET GLOBAL gtid_mode = ON_PERMISSIVE")
            run(database, "SET gtid_next = 'ANONYMOUS'", "INSERT INTO t VALUES (2, 'b')")
            error = ended(reader)
            assert (error.code, type(error).__bases__) == (
                "MY_TRANSACTION_ANONYMOUS",
                (Definite, PositionLost),
            )
            reached = reader.position.text
        error = refused(own_mysql, tables, reached)
        assert (error.code, isinstance(error, Misconfigured)) == ("MY_GTID_MODE_OFF", True)
        assert error.detail == "gtid_mode is ON_PERMISSIVE"
        own_mysql.execute("SET GLOBAL gtid_mode = ON")
        run(database, "INSERT INTO t VALUES (3, 'c')")
        # A server asked for what follows a set begins with the next file, and says nothing of that one.
        assert refused(own_mysql, tables, reached).code == "MY_TRANSACTION_ANONYMOUS"
        nameless = own_mysql.execute("SHOW BINARY LOGS")[-2][0]
        own_mysql.execute(f"PURGE BINARY LOGS TO '{nameless}'")
        assert nameless not in reached
        assert refused(own_mysql, tables, reached).code == "MY_TRANSACTION_ANONYMOUS"
        with reading(own_mysql, tables) as reader:
            run(database, "INSERT INTO t VALUES (4, 'd')")
            assert names(reader.catch_up()) == ["BEGIN", "map", "rows 30"]


def test_numbers_that_fall_within_a_domain_end_the_stream(own_mariadb: Server) -> None:
    own_mariadb.execute("SET GLOBAL gtid_strict_mode = OFF")
    with table_of(own_mariadb) as (database, tables), reading(own_mariadb, tables) as reader:
        run(database, "SET gtid_domain_id = 12, gtid_seq_no = 50", "INSERT INTO t VALUES (1, 'a')")
        assert names(reader.catch_up()) == ["BEGIN", "map", "rows 23"]
        reached = reader.position.text
        run(database, "SET gtid_domain_id = 12, gtid_seq_no = 20", "INSERT INTO t VALUES (2, 'b')")
        error = ended(reader)
        assert (error.code, isinstance(error, PositionLost)) == ("MY_GTID_DISORDERED", True)
        assert "-20 came behind 12-" in (error.detail or "")
        assert len(reader.ended) == 1
        assert refused(own_mariadb, tables, reached).code == "MY_SERVER_BEHIND"
    own_mariadb.execute("SET GLOBAL gtid_strict_mode = ON")
    forget(own_mariadb, 12)


def test_a_number_that_no_time_follows_from_ends_the_stream(own_mariadb: Server) -> None:
    with table_of(own_mariadb) as (database, tables), reading(own_mariadb, tables) as reader:
        run(database, f"SET gtid_domain_id = 13, gtid_seq_no = {1 << 61}", "INSERT INTO t VALUES (1, 'a')")
        error = ended(reader)
        assert error.code == "MY_GTID_DISORDERED"
        assert "no time" in (error.detail or "")
        # Nor is it a place to begin at.
        with pytest.raises(HeadraceError) as nowhere, reading(own_mariadb, tables):
            pass
        assert nowhere.value.code == "POSITION_MALFORMED"
    forget(own_mariadb, 13)


def forget(server: Server, domain: int) -> None:
    """Have MariaDB forget a domain of its log."""
    server.purge()
    server.execute(f"FLUSH BINARY LOGS DELETE_DOMAIN_ID = ({domain})")


def test_a_domain_that_was_forgotten_ends_no_stream_and_is_no_place_to_go_on(own_mariadb: Server) -> None:
    with table_of(own_mariadb) as (database, tables):
        with reading(own_mariadb, tables) as reader:
            run(database, "SET gtid_domain_id = 77", "INSERT INTO t VALUES (1, 'a')")
            assert names(reader.catch_up()) == ["BEGIN", "map", "rows 23"]
            reached = reader.position.text
        forget(own_mariadb, 77)
        error = refused(own_mariadb, tables, reached)
        assert (error.code, type(error).__bases__) == ("MY_SERVER_BEHIND", (Definite, PositionLost))
        assert "77-" in (error.detail or "")


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_a_log_that_cannot_be_read_is_told_from_one_that_is_damaged(
    request: pytest.FixtureRequest, kind: str
) -> None:
    server: Server = request.getfixturevalue(f"own_{kind}")
    with table_of(server) as (database, tables):
        server.execute("FLUSH BINARY LOGS")
        start = position(server)
        run(database, "INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'needle')")
        file = server.process.data / str(server.execute("SHOW BINARY LOGS")[-1][0])
        server.execute("FLUSH BINARY LOGS")
        sound = file.read_bytes()
        file.write_bytes(sound.replace(b"needle", b"beetle"))
        with reading(server, tables, start) as reader:
            error = ended(reader)
            assert (error.code, isinstance(error, Transient)) == ("MY_EVENT_DAMAGED", True)
            assert len(reader.ended) == 1
            reached = reader.position.text
        file.unlink()
        for place in (start, reached):  # where nothing was read yet, and behind what was
            error = refused(server, tables, place)
            assert (error.code, isinstance(error, Transient)) == ("MY_BINLOG_UNREADABLE", True)
            assert "its error log says why" in error.hint
        for garbage in (sound[:-60], sound.replace(sound[-120:-60], b"\xff" * 60)):
            file.write_bytes(garbage)
            assert refused(server, tables, start).code == "MY_EVENT_DAMAGED"
        file.write_bytes(sound)
        with reading(server, tables, reached) as reader:
            assert names(reader.catch_up()) == ["BEGIN", "map", rows(server, "insert")]


def test_a_large_event_on_a_slow_line_is_no_silence(mysql_database: Database) -> None:
    server, tables = mysql_database.server, [(mysql_database.name, "t")]
    run(mysql_database, "CREATE TABLE t (id int PRIMARY KEY, v longtext)")
    with (
        Proxy(server.host, server.port) as proxy,
        reading(server, tables, port=proxy.port, silence=1.2) as reader,
    ):
        proxy.throttle(1_000_000)
        run(mysql_database, "INSERT INTO t VALUES (1, REPEAT('x', 3000000))")
        assert names(reader.catch_up()) == ["BEGIN", "map", "rows 30"]


@kinds("mysql")
def test_a_server_that_falls_silent_is_left(database: Database) -> None:
    server = database.server
    run(database, "CREATE TABLE t (id int PRIMARY KEY)")
    with Proxy(server.host, server.port) as proxy:
        with reading(server, [(database.name, "t")], port=proxy.port, silence=1.5) as reader:
            begun = time.monotonic()
            reader.until_heard()  # an idle one says so every second
            reader.heard = None
            reader.until_heard()
            proxy.stall()
            error = ended(reader)
        assert (error.code, isinstance(error, Transient)) == ("MY_SILENT", True)
        assert "check the network" in error.hint
        assert 1.5 <= time.monotonic() - begun < 20


def test_a_dump_whose_reader_vanished_ends_after_our_write_timeout_and_holds_the_log_until_then(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader's machine is gone without a word: nothing takes what the server sends, or refuses it.

    While the server has room in its buffers it notices nothing. Then it waits for as long as the session's
    `net_write_timeout` says: ours, not the server's own.
    """
    server, tables = database.server, [(database.name, "t")]
    run(database, "CREATE TABLE t (id int PRIMARY KEY AUTO_INCREMENT, v longtext)")
    assert connection.PINS["net_write_timeout"] == "600"
    monkeypatch.setitem(connection.PINS, "net_write_timeout", "8")
    [(own,)] = server.execute("SELECT @@global.net_write_timeout")
    assert int(own) > 30

    def dumps() -> int:
        asked = "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
        [(count,)] = server.execute(asked)
        return int(count)

    def holds(log: str) -> bool:
        server.execute("FLUSH BINARY LOGS")
        last = server.execute("SHOW BINARY LOGS")[-1][0]
        server.execute(f"PURGE BINARY LOGS TO '{last}'")
        return log in [row[0] for row in server.execute("SHOW BINARY LOGS")]

    before = dumps()
    with Proxy(server.host, server.port) as proxy, reading(server, tables, port=proxy.port) as reader:
        reader.until_heard()
        log = server.execute("SHOW BINARY LOGS")[-1][0]
        proxy.stall()
        # More than the buffers between a server and nobody.
        run(database, *["INSERT INTO t (v) VALUES (REPEAT('x', 8000000))"] * 3)
        begun = time.monotonic()
        assert holds(log)
        wait_for(lambda: dumps() == before, "the end of the dump", deadline=40)
        assert time.monotonic() - begun < 30
        assert not holds(log)


def test_a_dump_that_another_takes_the_place_of_is_begun_anew(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, tables = database.server, [(database.name, "t")]
    run(database, "CREATE TABLE t (id int PRIMARY KEY)")
    with monkeypatch.context() as same:
        fixed = uuid.uuid4()
        same.setattr(uuid, "uuid4", lambda: fixed)
        same.setattr(dump, "_server_id", lambda _: 4_000_000_001)
        with reading(server, tables) as first:
            first.until_heard()
            with reading(server, tables) as second:
                error = ended(first)
                run(database, "INSERT INTO t VALUES (1)")
                assert names(second.catch_up()) == ["BEGIN", "map", rows(server, "insert")]
    assert (error.code, isinstance(error, Transient)) == ("MY_REPLICA_ID_TAKEN", True)
    assert "another id" in error.hint


def test_the_last_word_of_a_server_that_goes_is_no_riddle(database: Database) -> None:
    """It numbers that word from the beginning, since it answers nothing."""
    server, tables = database.server, [(database.name, "t")]
    run(database, "CREATE TABLE t (id int PRIMARY KEY)")
    word = b"\xff\x1d\x04#08S01Server shutdown in progress"
    with Proxy(server.host, server.port) as proxy:

        def going(chunks: Iterator[bytes]) -> Iterator[bytes]:
            yield from altered(events.XID, 2, ends=0)(chunks)
            yield len(word).to_bytes(3, "little") + b"\0" + word

        proxy.alter(going)
        with reading(server, tables, port=proxy.port) as reader:
            run(database, "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)")
            assert ended(reader).code == "MY_CONNECTION_LOST"
            assert len(reader.ended) == 1
        proxy.heal()
        with reading(server, tables, reader.position.text, port=proxy.port) as again:
            assert names(again.catch_up()) == ["BEGIN", "map", rows(server, "insert")]


def test_clocks_that_jump_change_no_order(database: Database) -> None:
    server = database.server
    run(database, "CREATE TABLE t (id int PRIMARY KEY)")
    with reading(server, [(database.name, "t")]) as reader:
        stamps = (2_000_000_000, 1, 1_000_000_000)
        for number, stamp in enumerate(stamps):
            run(database, *clock(server, stamp), f"INSERT INTO t VALUES ({number})")
        reader.catch_up()
        times = [at for at, _, _ in reader.ended]
        assert times == sorted(set(times))
        assert [each // 1_000_000 for each in reader.committed] == list(stamps)


def clock(server: Server, stamp: int) -> list[str]:
    """Have a session's commits bear another time; MySQL notes that beside its own."""
    if server.flavour.is_mariadb:
        return [f"SET SESSION timestamp = {stamp}"]
    return [f"SET SESSION original_commit_timestamp = {stamp}000000"]


@pytest.mark.parametrize("kind", [events.PAYLOAD, events.ROTATE, events.FORMAT])
def test_a_compressed_transaction_holds_nothing_but_a_transaction(
    mysql_database: Database, kind: int
) -> None:
    """A payload within a payload would be passed over with all its rows."""
    server, tables = mysql_database.server, [(mysql_database.name, "t")]
    run(mysql_database, "CREATE TABLE t (id int PRIMARY KEY)")
    whole = {
        events.PAYLOAD: logged.payload([], logged.xid(checksum=False), 255),
        events.ROTATE: logged.event(events.ROTATE, bytes(8) + b"binlog.999999"),
        events.FORMAT: logged.description(),
    }[kind]
    inner = logged.event(kind, whole[19:-4], checksum=False)
    with Proxy(server.host, server.port) as proxy:
        proxy.alter(altered(events.XID, 2, lambda event: [logged.payload([inner], inner, 255), event]))
        with reading(server, tables, port=proxy.port) as reader:
            run(mysql_database, "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)")
            assert ended(reader).code == "MY_STREAM_DISORDERED"
            assert len(reader.ended) == 1
