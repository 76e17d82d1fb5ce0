"""Fresh databases on a server of either kind, and readers that have as long as they take."""

from __future__ import annotations

import pytest

from headrace.sources.mysql.copy import leader, reader
from headrace_testing.mysql import Database
from tests.integration.mysql.copy.moments import SECONDS


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers have as long as they take; who tries the bound sets it."""
    monkeypatch.setattr(leader, "VIEW_SECONDS", SECONDS)
    monkeypatch.setattr(reader, "TOUCH_SECONDS", SECONDS)


@pytest.fixture(params=["mysql", "mariadb"])
def database(request: pytest.FixtureRequest) -> Database:
    """A fresh database on a server of either kind."""
    made: Database = request.getfixturevalue(f"{request.param}_database")
    return made


@pytest.fixture
def bank(database: Database) -> Database:
    """Two tables of accounts, and one that counts the transfers between them."""
    for name in ("a", "b"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v int NOT NULL)")
        database.execute(f"INSERT INTO {name} VALUES " + ", ".join(f"({i}, 1000)" for i in range(10)))
    database.execute("CREATE TABLE moves (id int AUTO_INCREMENT PRIMARY KEY)")
    return database
