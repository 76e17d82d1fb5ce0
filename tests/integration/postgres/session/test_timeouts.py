"""A server that is there and never answers: every wait for it ends."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial

import pytest

from headrace.core.errors import Transient
from headrace.sources.postgres.session import statements, timeouts
from headrace.sources.postgres.session.address import Address
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.statements import ask, query
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
