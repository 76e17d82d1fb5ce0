"""The pytest plugin of MySQL and MariaDB: `pytest_plugins = ["headrace_testing.mysql.fixtures"]`.

    mysql_server       MySQL for the whole session; tests may crash and restart it, but a test that changes
                       its settings wants a server of its own: `with mysql({...})`
    mariadb_server     MariaDB, likewise
    mysql_database     a fresh database on it, `app`'s, removed after the test
    mariadb_database   likewise

A server that cannot be had fails the test: see `headrace_testing`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace_testing.mysql.server import Database, Server, mariadb, mysql


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[Server]:
    """MySQL for the whole session."""
    with mysql() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[Server]:
    """MariaDB for the whole session."""
    with mariadb() as server:
        yield server


@pytest.fixture
def mysql_database(mysql_server: Server) -> Iterator[Database]:
    """A fresh database on the session's MySQL, which is started if a test left it down."""
    mysql_server.start()
    with mysql_server.database() as made:
        yield made


@pytest.fixture
def mariadb_database(mariadb_server: Server) -> Iterator[Database]:
    """A fresh database on the session's MariaDB, which is started if a test left it down."""
    mariadb_server.start()
    with mariadb_server.database() as made:
        yield made
