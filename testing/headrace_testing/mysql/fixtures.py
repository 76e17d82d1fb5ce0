"""The pytest plugin of MySQL and MariaDB: `pytest_plugins = ["headrace_testing.mysql.fixtures"]`.

    mysql_server       MySQL for the whole session; tests may crash and restart it, but a test that changes
                       its settings wants a server of its own: `with mysql({...})`
    mariadb_server     MariaDB, likewise
    mysql_database     a fresh database on it, `app`'s, removed after the test
    mariadb_database   likewise
    mysql_8_0_server, mariadb_11_4_server, mariadb_11_8_server    other releases, for tests marked `full`

A server that cannot be had fails the test: see `headrace_testing`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace_testing.mysql.flavours import MARIADB_11, MARIADB_11_4, MYSQL_8
from headrace_testing.mysql.server import Database, Server, mariadb, mysql, open_server

# The other releases: their servers are the fixtures "<release>_server".
RELEASES = ("mysql_8_0", "mariadb_11_4", "mariadb_11_8")


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


@pytest.fixture(scope="session")
def mysql_8_0_server() -> Iterator[Server]:
    """MySQL 8.0.15 for the whole session."""
    with open_server(MYSQL_8, {}) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_11_4_server() -> Iterator[Server]:
    """MariaDB 11.4 for the whole session."""
    with open_server(MARIADB_11_4, {}) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_11_8_server() -> Iterator[Server]:
    """MariaDB 11.8 for the whole session."""
    with open_server(MARIADB_11, {}) as server:
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
