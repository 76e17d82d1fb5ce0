"""Rows that change their keys and leave long values out: folded where they were found, file by file."""

from __future__ import annotations

import pytest

from headrace.pipeline.stream import batches
from headrace.pipeline.tasks import files
from headrace_testing import validators
from headrace_testing.postgres import Database
from tests.integration.pipeline.conftest import Mirrors

pytestmark = pytest.mark.server

ROWS, FILES = 60, 10


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of some rows, and a task for each few transactions."""
    monkeypatch.setattr(files, "BYTES_PER_FILE", 10_000 * ROWS // FILES)
    monkeypatch.setattr(batches, "SLICE_BYTES", 256)


def _same(mirrors: Mirrors) -> None:
    assert validators.exact(mirrors.once(), mirrors.database.url(), values=True) == []


def test_every_key_of_a_table_changes_without_its_long_values(
    mirrors: Mirrors, database: Database, small_files: None
) -> None:
    database.execute("CREATE TABLE docs (id int PRIMARY KEY, n int, body text)", user="app")
    database.execute("ALTER TABLE docs ALTER body SET STORAGE EXTERNAL", user="app")
    filled = f"INSERT INTO docs SELECT i, 0, repeat(md5(i::text), 300) FROM generate_series(1, {ROWS}) i"
    database.execute(filled, user="app")
    _same(mirrors)
    database.execute("UPDATE docs SET n = n + 1", user="app")
    _same(mirrors)
    assert len(mirrors.lake.at().files("public.docs")) >= FILES, "files are bounded by what is in them"
    # Old keys are taken again by others, in one epoch and in several tasks.
    database.execute("UPDATE docs SET id = id + 1000", user="app")
    database.execute(filled.replace("md5(i::text)", "md5((-i)::text)"), user="app")
    database.execute("UPDATE docs SET id = id + 1000, n = 7 WHERE id > 1000 AND id % 2 = 0", user="app")
    database.execute("UPDATE docs SET n = n + 1 WHERE id % 3 = 0", user="app")
    # Each row takes the key of the one before it: one chain through the whole table.
    with database.connect(user="app") as connection, connection.transaction():
        for number in range(1, ROWS + 1):
            connection.execute("UPDATE docs SET id = id - 1 WHERE id = %s", [number])
    _same(mirrors)
    assert validators.definite(mirrors.lake) == []
