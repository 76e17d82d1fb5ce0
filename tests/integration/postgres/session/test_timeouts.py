"""A server that is there and never answers: every wait for it ends."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial

import pytest
from psycopg import pq

from headrace.core.errors import Transient
from headrace.sources.postgres.protocol.wire import wire
from headrace.sources.postgres.session import statements, timeouts
from headrace.sources.postgres.session.address import Address
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.statements import ask, ask_within, query
from headrace.testing.postgres import Database
from headrace.testing.proxy import Proxy


@pytest.mark.parametrize("way", ["query", "ask"])
def test_a_question_to_a_half_open_connection_ends_as_a_lost_connection(
    database: Database, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    with Proxy(database.server.host, database.server.port) as proxy:
        address = Address.parse(database.url(port=proxy.port))
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
        address = Address.parse(database.url(port=proxy.port))
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


def test_a_long_answer_may_take_its_time_while_something_is_heard(database: Database) -> None:
    address = Address.parse(database.url())
    with (
        closing(connect(address, role="test")) as connection,
        timeouts.silence(connection.pgconn, 2.0) as heard,
    ):
        for _ in range(5):
            query(connection, "SELECT pg_sleep(0.5)")
            heard()
        assert query(connection, "SELECT 1") == [(1,)]
