"""A server of either kind for this folder, which its tests may treat badly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace_testing.mysql import Database, Server, mariadb, mysql


@pytest.fixture(scope="package", params=["mysql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with (mysql if request.param == "mysql" else mariadb)() as made:
        yield made


@pytest.fixture
def database(server: Server) -> Iterator[Database]:
    """A fresh database with an empty table `t`; the server is started if a test left it down."""
    server.start()
    with server.database() as made:
        made.execute("CREATE TABLE t (id int PRIMARY KEY)")
        yield made
