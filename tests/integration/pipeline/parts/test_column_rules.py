"""Rules of columns as a publication keeps them. `tests/conformance` tries what every source shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.core.errors import HeadraceError
from headrace.lake.read.lake import Lake
from headrace_testing.postgres import Database, Server
from headrace_testing.without_spark import jobs_in_process

pytestmark = pytest.mark.server

CANARY = "canary-77ab01"
RULE = {"public.users": {"exclude": ["ssn"]}}


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs_in_process(monkeypatch)


@pytest.fixture
def users(postgres_server: Server) -> Iterator[Database]:
    with postgres_server.database() as made:
        made.execute("CREATE TABLE users (id int PRIMARY KEY, email text, ssn text)", user="app")
        made.execute(f"INSERT INTO users SELECT n, 'a' || n, '{CANARY}' || n FROM generate_series(1, 300) n")
        yield made


def _once(database: Database, lake: Path, **more: Any) -> None:
    source = {"url": database.url(user="app"), "tables": ["public.*"], "every": "0s", "columns": RULE, **more}
    headrace.mirror({"lake": {"path": str(lake)}, "source": {"main": source}}, once=True)


def _names(lake: Path) -> list[str]:
    return Lake(lake).at().polars("public.users").collect_schema().names()


def _refused(database: Database, lake: Path, **more: Any) -> HeadraceError:
    with pytest.raises(HeadraceError) as refused:
        _once(database, lake, **more)
    assert not lake.exists()
    return refused.value


def test_a_replica_identity_or_a_publication_that_sends_all_columns_is_refused(
    users: Database, tmp_path: Path
) -> None:
    """Nothing is made, and the hints work."""
    lake = tmp_path / "lake"
    users.execute("ALTER TABLE users REPLICA IDENTITY FULL", user="app")
    assert _refused(users, lake).code == "PG_COLUMNS_FULL"
    assert users.execute("SELECT pubname FROM pg_publication") == []
    users.execute("ALTER TABLE users REPLICA IDENTITY DEFAULT", user="app")
    users.execute("CREATE PUBLICATION mine FOR TABLE users", user="app")
    assert _refused(users, lake, publication="mine").code == "PG_COLUMNS_SENT"
    users.execute("ALTER PUBLICATION mine SET TABLE users (id, email)", user="app")
    _once(users, lake, publication="mine")
    assert _names(lake) == ["id", "email"]


@pytest.mark.full
def test_an_altered_publication_lets_nothing_into_the_lake(users: Database, tmp_path: Path) -> None:
    """Somebody widens it; then a column of its list is dropped, which takes the table out of it."""
    lake = tmp_path / "lake"
    _once(users, lake)
    [(name,)] = users.execute("SELECT pubname FROM pg_publication")
    users.execute(f"ALTER PUBLICATION {name} SET TABLE users", user="app")
    users.execute("UPDATE users SET email = 'd' WHERE id < 50", user="app")
    for _ in range(2):
        _once(users, lake)
    assert _names(lake) == ["id", "email"]
    assert users.execute("SELECT attnames FROM pg_publication_tables") == [(["id", "email"],)]
    users.execute("ALTER TABLE users DROP COLUMN email CASCADE", user="app")
    assert users.execute("SELECT * FROM pg_publication_tables") == []
    for _ in range(2):
        _once(users, lake)
    assert _names(lake) == ["id"]
    assert users.execute("SELECT attnames FROM pg_publication_tables") == [(["id"],)]
    for path in lake.rglob("*"):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes()
