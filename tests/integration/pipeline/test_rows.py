"""Changes to rows of PostgreSQL, straight through: snapshot, then stream, compared with the source.

`tests/conformance` has the changes that rows of any source can see.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.errors import Definite
from headrace.lake.format import statusfile
from headrace.pipeline.commands import ask
from headrace.pipeline.stream import epoch, splits
from headrace.pipeline.tasks import row_cache
from headrace_testing import validators
from headrace_testing.postgres import Database
from tests.integration.pipeline.conftest import Mirrors

# 9,600 characters that hardly compress, and so lie out of line at the source and fill files in the lake.
BIG = "(SELECT string_agg(md5({}::text || g), '') FROM generate_series(1, 300) g)"


@pytest.fixture(autouse=True)
def _history(mirrors: Mirrors) -> Iterator[None]:
    """Judge all of history and all marks once a test has come to its end."""
    yield
    assert validators.consistent(mirrors.lake) == []


def _same(mirrors: Mirrors) -> None:
    lake = mirrors.once()
    assert validators.exact(lake, mirrors.database.url(), values=True) == []


def test_unchanged_toast_is_never_lost(mirrors: Mirrors, database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n int, big text)", user="app")
    database.execute("ALTER TABLE t ALTER big SET STORAGE EXTERNAL", user="app")
    database.execute(
        f"INSERT INTO t SELECT i, 0, {BIG.format('i')} FROM generate_series(1, 30) i", user="app"
    )
    _same(mirrors)
    database.execute("UPDATE t SET n = 1 WHERE id <= 10", user="app")
    database.execute("UPDATE t SET id = id + 100 WHERE id <= 5", user="app")
    with database.connect(user="app") as connection, connection.transaction():
        connection.execute("UPDATE t SET id = 200 WHERE id = 101")
        connection.execute("UPDATE t SET n = 7 WHERE id = 200")
        connection.execute("UPDATE t SET id = 201 WHERE id = 200")
        connection.execute(f"UPDATE t SET big = {BIG.format(99)} WHERE id = 6")
        connection.execute("UPDATE t SET n = n + 1 WHERE id = 6")
    _same(mirrors)


def test_unchanged_toast_follows_its_row_from_one_file_to_another(
    mirrors: Mirrors, database: Database
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n int, big text)", user="app")
    database.execute("ALTER TABLE t ALTER big SET STORAGE EXTERNAL", user="app")
    database.execute(
        f"INSERT INTO t SELECT i, 0, {BIG.format('i')} FROM generate_series(1, 20) i", user="app"
    )
    _same(mirrors)
    # Large enough that the next rows get a file of their own.
    database.execute(
        f"INSERT INTO t SELECT i, 0, {BIG.format('i')} FROM generate_series(1000, 2200) i", user="app"
    )
    _same(mirrors)
    database.execute(
        f"INSERT INTO t SELECT i, 0, {BIG.format('i')} FROM generate_series(5000, 5003) i", user="app"
    )
    _same(mirrors)
    assert len(mirrors.lake.at().files("public.t")) > 1
    database.execute("UPDATE t SET id = 9000 WHERE id = 3", user="app")
    database.execute("UPDATE t SET id = 4 - 20000 WHERE id = 5001", user="app")
    _same(mirrors)


def test_an_epoch_of_few_but_long_rows_is_cut_as_a_large_one(
    mirrors: Mirrors, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their keys, among several tasks, although so few changes go into vectors otherwise."""
    monkeypatch.setattr(epoch, "LARGE_BYTES", 1 << 18)
    monkeypatch.setattr(splits, "BYTES_PER_BIRTH", 1 << 18)
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n int, b text)", user="app")
    rows = "INSERT INTO t SELECT i, i, repeat(md5(i::text), 64) FROM generate_series({}, {}) i"
    database.execute(rows.format(1, 100), user="app")
    mirrors.once()
    database.execute(rows.format(101, 600) + "; UPDATE t SET n = 0 WHERE id % 7 = 1", user="app")
    mirrors.once()
    assert len(mirrors.lake.at().files("public.t")) > 2
    assert validators.exact(mirrors.lake, database.url(), values=True) == []


@pytest.mark.parametrize("up", [False, pytest.param(True, marks=pytest.mark.spark)])
def test_an_epoch_goes_to_spark_where_that_is_quicker(mirrors: Mirrors, database: Database, up: bool) -> None:
    """Else fifty times as many changes stay here: Spark is not up, or has two processors."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", user="app")
    mirrors.once()
    for first, last, jobs in ((1, 500, 0), (501, 1001, 1)):
        database.execute(f"INSERT INTO t SELECT generate_series({first}, {last})", user="app")
        status = statusfile.read(mirrors.once(driver_epochs=10).store, "main")
        assert status is not None
        assert status.record.epochs is not None
        assert status.record.epochs.spark == jobs
    assert validators.exact(mirrors.lake, database.url()) == []


def test_the_row_cache_holds_no_file_that_has_left_its_table(
    mirrors: Mirrors, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a table whose files are often written anew fills it with what no merge asks for again."""
    monkeypatch.setattr(row_cache, "_SMALL", 0)  # all entries are on the disk
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n int, b text)", user="app")
    database.execute("INSERT INTO t SELECT i, 0, md5(i::text) FROM generate_series(1, 5000) i", user="app")
    first = mirrors.once().at().files("public.t", with_deleted=True)
    database.execute("UPDATE t SET n = 1 WHERE id < 10", user="app")
    mirrors.once()
    [entry] = tmp_path.glob("headrace-rows-*/*")
    database.execute("UPDATE t SET n = 2 WHERE id % 4 = 0", user="app")
    assert not set(first) & set(mirrors.once().at().files("public.t", with_deleted=True))
    assert not entry.exists()
    for n in (3, 4):
        database.execute(f"UPDATE t SET n = {n} WHERE id < 10", user="app")
        mirrors.once()
    entries = set(tmp_path.glob("headrace-rows-*/*"))
    assert entries
    assert ask.ask(str(mirrors.path), "maintain", {})["compacted"]["before"] > 1
    assert not entries & set(tmp_path.glob("headrace-rows-*/*"))


def test_a_table_without_a_key_is_a_multiset(mirrors: Mirrors, database: Database) -> None:
    database.execute("CREATE TABLE t (a int, b text, c numeric(8,2)[])", user="app")
    database.execute("ALTER TABLE t REPLICA IDENTITY FULL", user="app")
    database.execute("INSERT INTO t VALUES (1,'x',NULL),(1,'x',NULL),(NULL,NULL,'{1.5,NULL}'),(2,'',NULL)")
    _same(mirrors)
    database.execute("DELETE FROM t WHERE ctid IN (SELECT ctid FROM t WHERE a = 1 LIMIT 1)", user="app")
    database.execute("UPDATE t SET b = 'y' WHERE a IS NULL", user="app")
    database.execute("INSERT INTO t SELECT 1, 'x', NULL FROM generate_series(1, 5)", user="app")
    _same(mirrors)
    database.execute("DELETE FROM t", user="app")
    _same(mirrors)


def test_an_index_can_be_the_identity(mirrors: Mirrors, database: Database) -> None:
    database.execute("CREATE TABLE t (id int, code text NOT NULL, n int)", user="app")
    database.execute("CREATE UNIQUE INDEX by_code ON t (code)", user="app")
    database.execute("ALTER TABLE t REPLICA IDENTITY USING INDEX by_code", user="app")
    database.execute("INSERT INTO t SELECT i, 'c' || i, 0 FROM generate_series(1, 20) i", user="app")
    _same(mirrors)
    database.execute("UPDATE t SET n = 1 WHERE id < 10", user="app")
    database.execute("UPDATE t SET code = 'new' WHERE id = 3; DELETE FROM t WHERE id = 4", user="app")
    _same(mirrors)


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        # What is left to the full run stops its table in tests/guarantees/test_g6_no_silent_damage.py too.
        pytest.param(
            "ALTER TABLE t ALTER COLUMN n TYPE int USING n * 100", "TABLE_CHANGED", marks=pytest.mark.full
        ),
        pytest.param("ALTER TABLE t ADD COLUMN extra int DEFAULT 5", "TABLE_CHANGED", marks=pytest.mark.full),
        pytest.param(
            "ALTER TABLE t ALTER COLUMN n TYPE bigint USING n * 100", "TABLE_CHANGED", marks=pytest.mark.full
        ),
        ("ALTER TABLE t DROP COLUMN n", "TABLE_CHANGED"),
        ("ALTER TABLE t RENAME TO u", "TABLE_CHANGED"),
        ("ALTER TABLE t REPLICA IDENTITY FULL", "TABLE_CHANGED"),
        pytest.param("DROP TABLE t", "TABLE_CHANGED", marks=pytest.mark.full),
    ],
)
def test_ddl_stops_its_table_although_no_row_changes_after_it(
    mirrors: Mirrors, database: Database, statement: str, code: str
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n int)", user="app")
    database.execute("CREATE TABLE other (id int PRIMARY KEY)", user="app")
    database.execute("INSERT INTO t SELECT i, i FROM generate_series(1, 10) i", user="app")
    _same(mirrors)
    last = mirrors.lake.marks()[-1]
    database.execute(statement, user="app")
    database.execute("INSERT INTO other VALUES (1)", user="app")
    with pytest.raises(Definite) as stopped:
        mirrors.once(on_ddl="stop")
    assert stopped.value.code in (code, "TABLE_CHANGED")
    newest = mirrors.lake.marks()[-1]
    assert set(newest.versions) == {"public.other"}
    assert mirrors.lake.at(epoch=last.epoch).arrow("public.t").num_rows == 10
    assert mirrors.lake.at().arrow("public.other").num_rows == 1
