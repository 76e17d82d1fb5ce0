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

from headrace.core.names import TableName
from headrace.sources.contract.waiting import Waiting
from headrace.sources.mysql.session.address import Address
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.statements import Session
from headrace.sources.mysql.snapshot import locks
from headrace.sources.mysql.snapshot.locks import TablesHeld
from headrace.testing.mysql import Database
from headrace.testing.mysql.server import run
from headrace.testing.proxy import Proxy

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


def _lock(session: Session, database: Database) -> TablesHeld:
    """An attempt to lock the tables, which is in vain."""
    names = [TableName(database.name, f"t{number}") for number in range(TABLES)]
    with pytest.raises(TablesHeld) as held, locks.locked(session, names, Waiting(), 0.0):
        raise AssertionError("the tables were locked")
    return held.value


def test_a_wait_is_cancelled_though_nobody_can_log_in_any_more(database: Database) -> None:
    """As where the last connection was taken meanwhile, or the way to the server was closed to new ones."""
    server = database.server
    with Proxy(server.host, server.port) as proxy, ExitStack() as stack:
        address = Address.parse(database.url(user="mirror", port=proxy.port))
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
        session = stack.enter_context(connect(Address.parse(database.url(user="mirror")), role="test"))
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
