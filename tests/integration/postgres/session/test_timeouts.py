"""A server that is there and never answers: every wait for it ends."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from psycopg import pq

from headrace.core.errors import Transient
from headrace.sources.postgres.session import connection as connection_module
from headrace.sources.postgres.session import statements, timeouts
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect, plain, replication
from headrace.sources.postgres.session.statements import ask, ask_within, query
from headrace.sources.postgres.session.wire import wire
from headrace_testing.postgres import Database
from headrace_testing.proxy import Proxy


@pytest.mark.parametrize("way", ["query", "ask"])
def test_a_question_to_a_half_open_connection_ends_as_a_lost_connection(
    database: Database, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    with Proxy(database.server.host, database.server.port) as proxy:
        address = PostgresAddress.parse(database.url(port=proxy.port))
        with closing(connect(address, role="test")) as connection:
            assert query(connection, "SELECT 1") == [(1,)]
            proxy.half_open()
            monkeypatch.setattr(statements, "silence", partial(timeouts.silence, seconds=0.5))
            begun = time.monotonic()
            with pytest.raises(Transient) as lost:
                query(connection, "SELECT 2") if way == "query" else ask(connection.pgconn, "SELECT 2")
            assert lost.value.code == "PG_CONNECTION_LOST"
            assert time.monotonic() - begun < timeouts.ANSWER_SECONDS / 2


def test_a_connection_that_libpq_knows_to_be_lost_says_so_in_our_words(database: Database) -> None:
    """It was lost amid a statement whose outcome nobody looks at, such as the last ones of `connect`."""
    with Proxy(database.server.host, database.server.port) as proxy:
        address = PostgresAddress.parse(database.url(port=proxy.port))
        with closing(connect(address, role="test")) as connection:
            pgconn = connection.pgconn
            proxy.cut()
            assert pgconn.exec_(b"SELECT 1").status == pq.ExecStatus.FATAL_ERROR
            for question in (
                lambda: ask(pgconn, "SELECT 2"),
                lambda: ask_within(pgconn, "SELECT 2", 1.0),
                lambda: query(connection, "SELECT 2"),
                lambda: wire(pgconn),
            ):
                with pytest.raises(Transient) as lost:
                    question()
                assert lost.value.code == "PG_CONNECTION_LOST"


@pytest.mark.parametrize("kind", [connect, plain, replication])
def test_a_connection_that_is_lost_amid_its_last_settings_says_so_in_our_words(
    database: Database, monkeypatch: pytest.MonkeyPatch, kind: Callable[..., object]
) -> None:
    with Proxy(database.server.host, database.server.port) as proxy:

        class Wishes(dict[str, str]):
            def items(self) -> Any:
                proxy.cut()
                return super().items()

        monkeypatch.setattr(connection_module, "WISHES", Wishes(connection_module.WISHES))
        with pytest.raises(Transient) as lost:
            kind(PostgresAddress.parse(database.url(port=proxy.port)), role="test")
        assert lost.value.code == "PG_CONNECTION_LOST"


def _full(proxy: Proxy, clients: ExitStack) -> None:
    """Have the kernel drop all that asks for a connection from now on, as a host does that is gone."""
    proxy.refuse()
    listener = clients.enter_context(socket.socket())
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((proxy.host, proxy.port))
    listener.listen(0)
    for _ in range(3):
        client = clients.enter_context(socket.socket())
        client.setblocking(False)
        client.connect_ex((proxy.host, proxy.port))


@pytest.mark.parametrize("new_connections", ["are open and silent", "are never open"])
def test_a_server_that_does_not_hear_a_cancellation_holds_nobody_up(
    database: Database, monkeypatch: pytest.MonkeyPatch, new_connections: str
) -> None:
    """Neither who waits for it, nor any other thread of the process."""
    beats, over = [time.monotonic()], threading.Event()

    def beat() -> None:
        while not over.wait(0.05):
            beats.append(time.monotonic())

    monkeypatch.setattr(statements, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(timeouts, "REQUEST_SECONDS", 0.5)
    with Proxy(database.server.host, database.server.port) as proxy, ExitStack() as clients:
        pgconn = plain(PostgresAddress.parse(database.url(port=proxy.port)), role="test")
        proxy.stall()
        if new_connections == "are never open":
            _full(proxy, clients)
        begun = time.monotonic()
        heart = threading.Thread(target=beat)
        heart.start()
        with pytest.raises(Transient) as lost:
            ask_within(pgconn, "SELECT pg_sleep(60)", 0.2)
        over.set()
        heart.join()
        pgconn.finish()
    assert lost.value.code == "PG_CONNECTION_LOST"
    assert len(beats) > 10
    assert max(after - before for before, after in pairwise(beats)) < 2.0
    assert time.monotonic() - begun < 10.0


def test_a_watch_that_could_not_be_started_is_started_for_the_next_wait(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with Proxy(database.server.host, database.server.port) as proxy:
        address = PostgresAddress.parse(database.url(port=proxy.port))
        with closing(connect(address, role="test")) as connection:
            watch = timeouts._Watch()
            monkeypatch.setattr(timeouts, "_watch", watch)
            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", exhausted)
                with pytest.raises(Transient) as caught:
                    query(connection, "SELECT 1")
            assert caught.value.code == "THREADS_EXHAUSTED"
            proxy.half_open()
            monkeypatch.setattr(statements, "silence", partial(timeouts.silence, seconds=0.5))
            with pytest.raises(Transient) as lost:
                query(connection, "SELECT 2")
            assert lost.value.code == "PG_CONNECTION_LOST"
    assert watch._thread is not None
    watch._thread.name = "over"  # nobody else's waits are its own


def test_a_long_answer_may_take_its_time_while_something_is_heard(database: Database) -> None:
    address = PostgresAddress.parse(database.url())
    with (
        closing(connect(address, role="test")) as connection,
        timeouts.silence(connection.pgconn, 2.0) as heard,
    ):
        for _ in range(5):
            query(connection, "SELECT pg_sleep(0.5)")
            heard()
        assert query(connection, "SELECT 1") == [(1,)]


def test_one_thread_watches_all_waits_of_a_process(database: Database) -> None:
    address = PostgresAddress.parse(database.url())
    with closing(connect(address, role="test")) as one, closing(connect(address, role="test")) as other:
        seen = set()
        for connection in (one, other) * 3:
            with timeouts.silence(connection.pgconn):
                seen.add(tuple(each.ident for each in threading.enumerate() if "silence" in each.name))
        assert len(seen) == 1
        assert [len(watching) for watching in seen] == [1]


def test_a_shorter_wait_ends_before_those_that_began_earlier(database: Database) -> None:
    address = PostgresAddress.parse(database.url())
    with (
        closing(connect(address, role="test")) as patient,
        closing(connect(address, role="test")) as hasty,
        timeouts.silence(patient.pgconn, 600),
        timeouts.silence(patient.pgconn, 30),
    ):
        begun = time.monotonic()
        with timeouts.silence(hasty.pgconn, 0.3), pytest.raises(psycopg.OperationalError):
            hasty.execute("SELECT pg_sleep(20)")
        assert time.monotonic() - begun < 10
        assert query(patient, "SELECT 1") == [(1,)]


def test_a_wait_that_is_over_is_never_hung_up(database: Database) -> None:
    with closing(connect(PostgresAddress.parse(database.url()), role="test")) as connection:
        with timeouts.silence(connection.pgconn, 0.05):
            pass
        assert query(connection, "SELECT 1 FROM pg_sleep(0.3)") == [(1,)]


def test_a_connection_that_was_closed_in_its_wait_costs_nobody_the_watch(database: Database) -> None:
    address = PostgresAddress.parse(database.url())
    with closing(connect(address, role="test")) as gone, timeouts.silence(gone.pgconn, 0.1):
        gone.close()
        # It has the number of the socket that is gone.
        with closing(connect(address, role="test")) as other:
            assert query(other, "SELECT 1 FROM pg_sleep(0.4)") == [(1,)]
            with timeouts.silence(other.pgconn, 0.2), pytest.raises(psycopg.OperationalError):
                other.execute("SELECT pg_sleep(20)")


def test_a_process_that_was_forked_watches_its_own_waits(database: Database) -> None:
    address = PostgresAddress.parse(database.url())
    with closing(connect(address, role="test")) as connection:
        assert query(connection, "SELECT 1") == [(1,)]  # its thread runs
        child = os.fork()
        if child == 0:
            code = 2
            try:
                code = 0 if _is_hung_up(address) else 1
            finally:
                os._exit(code)
        deadline = time.monotonic() + 20
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
            query(connection, "SELECT pg_sleep(0.05)")
        if ended[0] == 0:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        assert ended == (child, 0)


def _is_hung_up(address: PostgresAddress) -> bool:
    """Wait for what does not come."""
    try:
        with closing(connect(address, role="test")) as ours, timeouts.silence(ours.pgconn, 0.2):
            ours.execute("SELECT pg_sleep(60)")
    except psycopg.OperationalError:
        return True
    return False
