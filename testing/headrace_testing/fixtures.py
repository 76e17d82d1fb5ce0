"""The pytest plugin of real servers: `pytest_plugins = ["headrace_testing.fixtures"]`.

    postgres_server   PostgreSQL 18 for the whole session; tests may crash and restart it, but a test
                      that changes its settings wants a server of its own: `with postgres(...)`
    queue_server      the same without logical replication, where `app` may not replicate either
    database          a fresh database on it, owned by `app`; its slots, sessions and prepared
                      transactions are removed after the test
    any_postgres      a server of each version in turn, 15 to 18, for tests marked `full`
    any_database      a fresh database on that

A server that cannot be had fails the test: see `headrace_testing`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace_testing.binaries import VERSIONS
from headrace_testing.postgres import Database, Server, postgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """PostgreSQL 18 for the whole session."""
    with postgres() as server:
        yield server


@pytest.fixture(scope="session")
def queue_server() -> Iterator[Server]:
    """PostgreSQL 18 that gives no logical replication to anybody, and none at all to `app`."""
    with postgres(settings={"wal_level": "replica"}) as server:
        server.execute("ALTER ROLE app NOREPLICATION")
        yield server


@pytest.fixture
def database(postgres_server: Server) -> Iterator[Database]:
    """A fresh database on the session's server, which is started if a test left it down."""
    postgres_server.start()
    with postgres_server.database() as made:
        yield made


@pytest.fixture(scope="session", params=VERSIONS)
def any_postgres(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of each version in turn."""
    with postgres(request.param) as server:
        yield server


@pytest.fixture
def any_database(any_postgres: Server) -> Iterator[Database]:
    """A fresh database on each version in turn."""
    any_postgres.start()
    with any_postgres.database() as made:
        yield made
