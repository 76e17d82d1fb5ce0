"""Parts of tables on every version of the server that has them: 15 to 18."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.core.errors import HeadraceError
from headrace.pipeline.state.records import Way
from headrace_testing import validators
from headrace_testing.postgres import Database
from tests import without_spark
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.parts.comparing import differing
from tests.integration.pipeline.parts.test_roots import CASES, COPIED, SAME, do, make, show, ways

pytestmark = [pytest.mark.server, pytest.mark.full]

TABLES = {
    "whole": "SELECT * FROM whole WHERE length(s) < 4 AND n > 5",
    "listed": "SELECT id, n FROM listed WHERE id % 3 <> 0",
    "plain": "SELECT * FROM plain",
}


def _make(database: Database) -> None:
    database.execute("CREATE SCHEMA oracle")
    for name, holds in TABLES.items():
        database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, n int, s text, big text);"
            f" ALTER TABLE {name} ALTER big SET STORAGE EXTERNAL; INSERT INTO {name}"
            " SELECT i, i, 's' || i, repeat(md5(i::text), 99) FROM generate_series(1, 40) i",
            user="app",
        )
        database.execute(f"CREATE VIEW oracle.{name} AS {holds}")
    database.execute(
        "ALTER TABLE whole REPLICA IDENTITY FULL; CREATE PUBLICATION p FOR TABLE"
        " whole WHERE (length(s) < 4 AND n > 5), listed (n, id) WHERE (id % 3 <> 0), plain",
        user="app",
    )


@pytest.mark.parametrize("handoff", ["slot", "chunks"])
def test_parts_are_mirrored_and_followed(
    any_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handoff: str
) -> None:
    without_spark.jobs_in_process(monkeypatch)
    database = any_database
    mirrors = Mirrors(database, tmp_path / "lake", None, {"publication": "p", "handoff": handoff})
    _make(database)
    mirrors.once()
    assert differing(mirrors, TABLES) == {}
    for name in TABLES:
        database.execute(
            f"UPDATE {name} SET n = n + 4 WHERE id < 9; UPDATE {name} SET s = s || '...' WHERE id % 5 = 0;"
            f" UPDATE {name} SET s = 's' WHERE id % 10 = 0; UPDATE {name} SET id = id + 100 WHERE id > 30;"
            f" DELETE FROM {name} WHERE id = 12; UPDATE {name} SET n = 0 WHERE id = 17",
            user="app",
        )
    mirrors.once()
    assert differing(mirrors, TABLES) == {}
    assert validators.definite(mirrors.lake, every=True) == []
    database.execute("ALTER PUBLICATION p SET TABLE whole WHERE (n > 9), listed (n, id), plain", user="app")
    for name, holds in (("whole", "* FROM whole WHERE n > 9"), ("listed", "id, n FROM listed")):
        database.execute(f"DROP VIEW oracle.{name}; CREATE VIEW oracle.{name} AS SELECT {holds}")
        database.execute(f"UPDATE {name} SET n = n + 1 WHERE id < 20", user="app")
    mirrors.once()
    assert differing(mirrors, TABLES) == {}
    database.execute("ALTER PUBLICATION p SET TABLE plain, whole, listed WHERE (n > 9)", user="app")
    with pytest.raises(HeadraceError) as refused:
        mirrors.once()
    assert "REPLICA IDENTITY FULL" in refused.value.hint


@pytest.mark.parametrize("handoff", ["slot", "chunks"])
def test_roots_are_mirrored_whatever_becomes_of_their_trees(
    any_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handoff: str
) -> None:
    without_spark.jobs_in_process(monkeypatch)
    database = any_database
    mirrors = Mirrors(database, tmp_path / "lake", None, {"handoff": handoff})
    make(database, CASES)
    mirrors.once()
    since = {name: mirrors.record(f"public.{name}").since for name in CASES}
    for name, statements in CASES.items():
        do(database, statements, name)
        database.execute(f"UPDATE {name} SET v = 'after' WHERE id % 4 = 0", user="app")
    mirrors.once()
    show(database, CASES)
    assert differing(mirrors, CASES) == {}
    now = {name: mirrors.record(f"public.{name}").since for name in CASES}
    # The interval of a column that came begins at the last mark, which may be behind the copy.
    assert {name for name in CASES if now[name] != since[name]} - {"added"} == set(COPIED)
    assert ways(mirrors, SAME) == {"added": Way.ADDED}
    assert validators.definite(mirrors.lake, tables=[f"public.{name}" for name in SAME]) == []
