"""A database with a good table, for every test of the preflight."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace_testing.postgres import Database
from tests.integration.postgres.preflight.harness import GOOD


@pytest.fixture
def db(database: Database) -> Iterator[Database]:
    database.execute(GOOD, user="app")
    yield database
    database.execute("ALTER ROLE app NOBYPASSRLS REPLICATION")
