"""Waiting for the locks of a copy where the wait cannot simply be cancelled: nobody waits long behind it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pymysql
import pytest
from pymysql.constants import ER

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.sources.contract.values import Waiting
from headrace.sources.mysql.copy import locks
from headrace.sources.mysql.copy.locks import TablesHeld
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.statements import MysqlConnection
from headrace_testing.mysql import Database
from headrace_testing.mysql.server import run
from headrace_testing.proxy import Proxy

pytestmark = pytest.mark.server

TABLES = 4
HELD_SECONDS = 0.8  # each a moment longer than the one before: no wait is as long as the server allows


@contextmanager
def staggered(database: Database) -> Iterator[None]:
    """Tables t0, t1, ... that writers let go of one after the other."""
    with ExitStack() as stack:
        holders = [stack.enter_context(database.connect()) for _ in range(TABLES)]
        for number, holder in enumerate(holders):
            database.execute(f"CREATE TABLE t{number} (id int PRIMARY KEY)")
            holder.begin()
            holder.cursor().execute(f"INSERT INTO t{number} VALUES (1)")
        timers = [
            threading.Timer(HELD_SECONDS * (number + 1), holder.commit)
            for number, holder in enumerate(holders)
        ]
        for timer in timers:
            timer.start()
        try:
            yield
        finally:
            for timer in timers:
                timer.join()


def _lock(session: MysqlConnection, database: Database) -> TablesHeld:
    """An attempt to lock the tables, which is in vain."""
    names = [TableName(database.name, f"t{number}") for number in range(TABLES)]
    with pytest.raises(TablesHeld) as held, locks.lock_tables(session, names, Waiting(), 0.0):
        raise AssertionError("the tables were locked")
    return held.value


def test_a_wait_is_cancelled_though_nobody_can_log_in_any_more(database: Database) -> None:
    """The proxy refuses new connections: others took the last one, or the way to the server is closed."""
    server = database.server
    with Proxy(server.host, server.port) as proxy, ExitStack() as stack:
        address = MysqlAddress.parse(database.url(user="mirror", port=proxy.port))
        session = stack.enter_context(connect(address, role="test"))
        stack.enter_context(staggered(database))
        closing = threading.Timer(HELD_SECONDS / 2, proxy.refuse)
        closing.start()
        begun = time.monotonic()
        assert _lock(session, database).code == "MY_TABLES_HELD"
        assert time.monotonic() - begun < locks.ATTEMPT_SECONDS + 1.0
        closing.join()


def test_nothing_is_locked_where_no_wait_could_be_cancelled(database: Database) -> None:
    with ExitStack() as stack:
        session = stack.enter_context(connect(MysqlAddress.parse(database.url(user="mirror")), role="test"))
        for number in range(TABLES):
            database.execute(f"CREATE TABLE t{number} (id int PRIMARY KEY)")
        root = stack.enter_context(database.connect())
        stack.enter_context(full(database, root))
        asked = "SHOW GLOBAL STATUS LIKE 'Com_lock_tables'"
        before = run(root, asked)
        assert _lock(session, database).code == "MY_SERVER_FULL"
        assert run(root, asked) == before


@contextmanager
def full(database: Database, root: pymysql.Connection[Any]) -> Iterator[None]:
    """A server without a free connection; who is there may do anything."""
    [(most,)] = run(root, "SELECT @@global.max_connections")
    taken: list[pymysql.Connection[Any]] = []
    try:
        [(_, there)] = run(root, "SHOW GLOBAL STATUS LIKE 'Threads_connected'")
        run(root, f"SET GLOBAL max_connections = {max(10, int(there))}")
        with suppress(pymysql.err.OperationalError):
            while True:
                taken.append(database.connect(user="app"))
        with pytest.raises(pymysql.err.OperationalError, match=str(ER.CON_COUNT_ERROR)):
            database.connect(user="app")
        yield
    finally:
        for each in taken:
            each.close()
        run(root, f"SET GLOBAL max_connections = {most}")


MANY = 40
XA_WRITERS = 8


@contextmanager
def busy_elsewhere(database: Database) -> Iterator[None]:
    """Sessions that prepare and commit short XA transactions on a table that nobody copies."""
    database.execute("CREATE TABLE elsewhere (id int AUTO_INCREMENT PRIMARY KEY)")
    over = threading.Event()

    def write(number: int) -> None:
        with database.connect(user="app") as connection:
            while not over.is_set():
                for verb in ("START", "END", "PREPARE", "COMMIT"):
                    run(connection, f"XA {verb} 'elsewhere {number}'")
                    if verb == "START":
                        run(connection, "INSERT INTO elsewhere VALUES ()")

    writers = [threading.Thread(target=write, args=(number,)) for number in range(XA_WRITERS)]
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        over.set()
        for writer in writers:
            writer.join()


def test_tables_are_locked_beside_a_steady_flow_of_xa_transactions_on_others(
    mariadb_database: Database,
) -> None:
    """MySQL tells by its locks which tables a prepared transaction wrote."""
    database = mariadb_database
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    name = TableName(database.name, "t")
    with (
        busy_elsewhere(database),
        connect(MysqlAddress.parse(database.url(user="mirror")), role="test") as session,
    ):
        for _ in range(5):
            with locks.lock_tables(session, [name], Waiting(), 0.0) as locked:
                locked.release(session)
            assert locked.held_seconds is not None
            assert locked.held_seconds < locks.ATTEMPT_SECONDS


def test_a_prepared_transaction_that_lost_its_session_keeps_the_tables_from_being_locked(
    mariadb_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "PAUSE_SECONDS", 0.2)
    mariadb_database.execute("CREATE TABLE t0 (id int PRIMARY KEY)")
    with mariadb_database.connect(user="app") as connection:
        for verb in ("START", "END", "PREPARE"):
            run(connection, f"XA {verb} 'hidden'")
            if verb == "START":
                run(connection, "INSERT INTO t0 VALUES (1)")
    address = MysqlAddress.parse(mariadb_database.url(user="mirror"))
    locked_before: list[int] = []

    def commit_after_two(error: HeadraceError) -> None:
        """Count the statements that locked. An attempt that never saw the transaction says nothing of it."""
        if isinstance(error, TablesHeld) and error.hidden_xa:
            assert error.code == "MY_TABLES_HELD"
            [(_, count)] = mariadb_database.execute("SHOW GLOBAL STATUS LIKE 'Com_lock_tables'")
            locked_before.append(int(str(count)))
        if len(locked_before) == 2:
            mariadb_database.execute("XA COMMIT 'hidden'")

    waiting = Waiting(tell=commit_after_two)
    with (
        connect(address, role="test") as session,
        locks.lock_tables(session, [TableName(mariadb_database.name, "t0")], waiting, 30.0) as locked,
    ):
        locked.release(session)
    first, second = locked_before
    assert second == first, "the second attempt locked"


@pytest.mark.full  # it races the server, and loses where other tests keep the processors busy
def test_tables_are_opened_before_anybody_waits_and_locked_in_groups_where_that_takes_long(
    mysql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB opens as many in a few milliseconds."""
    database = mysql_database
    with database.connect() as root:
        for number in range(MANY):
            run(root, f"CREATE TABLE t{number} (id int PRIMARY KEY) STATS_PERSISTENT = 0")
        names = [TableName(database.name, f"t{number}") for number in range(MANY)]
        together = ", ".join(f"t{number} READ" for number in range(MANY))

        def cold() -> float:
            run(root, "FLUSH TABLES")
            begun = time.monotonic()
            run(root, f"LOCK TABLES {together}")
            took = time.monotonic() - begun
            run(root, "UNLOCK TABLES")
            run(root, "FLUSH TABLES")
            return took

        def are_locked(session: MysqlConnection) -> bool:
            """Tell whether one attempt is enough for all that are not open."""
            run(root, "FLUSH TABLES")
            try:
                with locks.lock_tables(session, names, Waiting(), 0.0) as locked:
                    locked.release(session)
            except TablesHeld:
                return False
            return locked.missing == ()

        with connect(MysqlAddress.parse(database.url(user="mirror")), role="test") as session:
            monkeypatch.setattr(locks, "ATTEMPT_SECONDS", min(cold() for _ in range(3)) / 2)
            assert any(are_locked(session) for _ in range(30))  # other work here takes its time, too
            told: list[HeadraceError] = []
            monkeypatch.setattr(locks, "_open", lambda *_: run(root, "FLUSH TABLES"))
            with locks.lock_tables(session, names, Waiting(tell=told.append), 60.0) as locked:
                locked.release(session)
    assert 0 < len(locked.missing) < MANY
    assert {error.code for error in told} == {"MY_TABLES_UNOPENED"}
