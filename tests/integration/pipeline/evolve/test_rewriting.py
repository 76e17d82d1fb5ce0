"""Rows that are written again in the lake: interrupted amid it, beside writers, altered again, out of reach.

ALTER ─► epoch "rewrite" ─► files ─► joined
                 ▲            ▲
              before        after         the fail points
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from headrace.lake.format import datafile
from headrace.lake.log.table import LakeTable
from headrace_testing import validators
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.holding import Held, held_up

pytestmark = pytest.mark.server

ROWS = 300
ALTERED = (
    "ALTER TABLE t RENAME COLUMN s TO title; ALTER TABLE t DROP COLUMN gone;"
    " UPDATE t SET title = 'x' WHERE id < 9"
)
KEYLESS = "ALTER TABLE bag ADD COLUMN more int DEFAULT 7"


def _mirrored(mirrors: Mirrors) -> int:
    """Some rows of two tables, in marks; the time of the newest."""
    mirrors.database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, s text, gone int);"
        f"INSERT INTO t SELECT i, repeat('long ', 1000), i FROM generate_series(1, {ROWS}) i;"
        "CREATE TABLE bag (id int, s text); ALTER TABLE bag REPLICA IDENTITY FULL;"
        "INSERT INTO bag SELECT i % 5, NULL FROM generate_series(1, 20) i;",
        user="app",
    )
    mirrors.once()
    mirrors.database.execute("UPDATE t SET gone = 0 WHERE id = 5; DELETE FROM bag WHERE id = 1", user="app")
    return mirrors.once().at().mark.time


def _exact(mirrors: Mirrors) -> None:
    assert validators.exact(mirrors.lake, mirrors.database.url(), values=True) == []
    assert validators.consistent(mirrors.lake) == []


def _goes_on(mirrors: Mirrors, time: int) -> None:
    """The interval began where the last one ended: the rows are those of the lake."""
    assert [mirrors.record(name).since for name in ("public.t", "public.bag")] == [time + 1, time + 1]
    _exact(mirrors)


def _was_copied(mirrors: Mirrors, time: int) -> None:
    """Its interval begins behind the DDL, as that of a copy does."""
    since = mirrors.record("public.t").since
    assert since is not None
    assert since > time + 1


@contextmanager
def _standing(mirrors: Mirrors, where: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    with held_up(mirrors, where, "public.t", monkeypatch) as held:
        yield held


@pytest.mark.parametrize(
    "where",
    [
        "evolve.rewrite.after",
        *(pytest.param(w, marks=pytest.mark.full) for w in ("evolve.rewrite.before", "late.replay.before")),
    ],
)
def test_an_attempt_that_ends_amid_it_is_followed_by_one_that_goes_on(
    mirrors: Mirrors, where: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Changes come before it and after it: the stream that was kept holds those of both."""
    time = _mirrored(mirrors)
    mirrors.database.execute(f"UPDATE t SET gone = 1 WHERE id = 6; {ALTERED}; {KEYLESS}", user="app")
    mirrors.database.execute("INSERT INTO bag VALUES (1, 'a', 1); DELETE FROM bag WHERE id = 2", user="app")
    with monkeypatch.context() as patch:
        patch.setenv("HEADRACE_FAILPOINT", f"{where}=error")
        mirrors.once()
    assert f"fail point {where}" in capfd.readouterr().err
    _goes_on(mirrors, time)
    mirrors.database.execute(
        "UPDATE t SET id = 1000 + id WHERE id > 290; DELETE FROM t WHERE id = 7", user="app"
    )
    mirrors.once()
    _goes_on(mirrors, time)


def test_writers_go_on_beside_it(mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long values that an update leaves out are found in the rows that were written again."""
    time = _mirrored(mirrors)
    mirrors.database.execute(f"{ALTERED}; {KEYLESS}", user="app")
    with _standing(mirrors, "evolve.rewrite.after", monkeypatch):
        mirrors.database.execute(
            "UPDATE t SET id = -id WHERE id > 100; DELETE FROM t WHERE id = -150;"
            " INSERT INTO t VALUES (7000, 'n')",
            user="app",
        )
    _goes_on(mirrors, time)


def test_what_is_altered_again_meanwhile_is_copied(mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch) -> None:
    time = _mirrored(mirrors)
    mirrors.database.execute(ALTERED, user="app")
    with _standing(mirrors, "evolve.rewrite.after", monkeypatch):
        mirrors.database.execute(
            "ALTER TABLE t RENAME COLUMN title TO s; UPDATE t SET s = 'y' WHERE id = 3;"
            " ALTER TABLE t ADD COLUMN gone int; UPDATE t SET gone = 3 WHERE id = 3",
            user="app",
        )
    _was_copied(mirrors, time)
    _exact(mirrors)


def test_rows_that_are_out_of_reach_are_copied(mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the rows are gone, as with a retention that is shorter than the work."""
    time = _mirrored(mirrors)
    mirrors.database.execute(ALTERED, user="app")
    with _standing(mirrors, "evolve.rewrite.before", monkeypatch):
        folder = mirrors.path / "tables/main/public/t"
        for file in folder.glob("*.parquet"):
            shutil.move(file, mirrors.path / f"away-{file.name}")
    _was_copied(mirrors, time)
    assert validators.exact(mirrors.lake, mirrors.database.url(), values=True) == []


def test_a_value_without_a_lake_form_is_read_at_the_source_again(mirrors: Mirrors) -> None:
    mirrors.database.execute("CREATE TABLE t (id int PRIMARY KEY, at timestamptz, n int)", user="app")
    mirrors.database.execute("INSERT INTO t VALUES (1, 'infinity', 1), (2, now(), 2)", user="app")
    time = mirrors.once().at().mark.time
    mirrors.database.execute("ALTER TABLE t DROP COLUMN n; DELETE FROM t WHERE id = 2", user="app")
    mirrors.once()
    _was_copied(mirrors, time)
    assert validators.exact(mirrors.lake, mirrors.database.url(), values=True) == []


def test_a_first_local_timestamp_that_was_added_with_a_value_is_followed(mirrors: Mirrors) -> None:
    """Its feature of Delta is raised by the commit that replaces the columns, in the lake or by a copy."""
    mirrors.database.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)", user="app")
    mirrors.database.execute(
        "CREATE TABLE copied (id int PRIMARY KEY, x text); INSERT INTO copied VALUES (1, '2026-01-01')",
        user="app",
    )
    time = mirrors.once().at().mark.time
    mirrors.database.execute("ALTER TABLE t ADD COLUMN x timestamp DEFAULT '2026-01-01'", user="app")
    mirrors.database.execute("ALTER TABLE copied ALTER x TYPE timestamp USING x::timestamp", user="app")
    mirrors.database.execute("INSERT INTO t VALUES (2); INSERT INTO copied VALUES (2)", user="app")
    mirrors.once()
    assert mirrors.record("public.t").since == time + 1
    assert mirrors.lake.at().arrow("public.t").schema.field("x").type == pa.timestamp("us")
    _exact(mirrors)


def test_a_generated_column_may_go(mirrors: Mirrors) -> None:
    """It was never mirrored: no column of the lake is another."""
    mirrors.database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) STORED);"
        "INSERT INTO t VALUES (1)",
        user="app",
    )
    mirrors.once()
    mirrors.database.execute("ALTER TABLE t DROP COLUMN g; INSERT INTO t VALUES (2)", user="app")
    mirrors.once()
    assert validators.exact(mirrors.lake, mirrors.database.url(), values=True) == []


def test_columns_that_changed_names_stand_in_the_order_of_the_source_and_further_ones_come(
    mirrors: Mirrors,
) -> None:
    """In the lake they are alike: the columns are those that it had, in another order."""
    mirrors.database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a text, b varchar(9)); INSERT INTO t VALUES (1, 'a', 'b')",
        user="app",
    )
    mirrors.once()
    for statement in ("RENAME a TO x", "RENAME b TO a", "RENAME x TO b"):
        mirrors.database.execute(f"ALTER TABLE t {statement}", user="app")
    assert mirrors.once().at().arrow("t").column_names == ["id", "b", "a"]
    mirrors.database.execute(
        "ALTER TABLE t ADD COLUMN more int; INSERT INTO t VALUES (2, 'c', 'd', 3)", user="app"
    )
    assert mirrors.once().at().arrow("t").column_names == ["id", "b", "a", "more"]
    _exact(mirrors)


def _field_ids(mirrors: Mirrors, folder: str) -> set[tuple[tuple[str, int], ...]]:
    """The field ids in the live files of a folder."""
    store = mirrors.lake.store
    table = LakeTable(store, folder)
    table.refresh()
    return {tuple(datafile.read_ids(store, folder, path).items()) for path in table.live()}


def test_a_column_keeps_its_field_id_in_every_file_and_a_new_one_of_its_name_gets_another(
    mirrors: Mirrors,
) -> None:
    """Renamed, dropped and added again; in files that were taken over or written, and in history."""
    _mirrored(mirrors)
    rows, history = "tables/main/public/t", "history/main/public/t"
    own = tuple(
        zip(("_time", "_diff", "_ordinal", "_xid", "_commit_ts"), range(900_001, 900_006), strict=True)
    )
    old = (("id", 1), ("s", 2), ("gone", 3))
    assert _field_ids(mirrors, rows) == {old}
    assert _field_ids(mirrors, f"{history}/1") == {(*old, *own)}
    mirrors.database.execute(ALTERED, user="app")
    mirrors.once()
    assert _field_ids(mirrors, rows) == {(("id", 1), ("title", 2))}
    mirrors.database.execute(
        "ALTER TABLE t ADD COLUMN gone int; UPDATE t SET gone = 1 WHERE id = 1", user="app"
    )
    mirrors.once()
    new = (("id", 1), ("title", 2), ("gone", 4))
    assert new in _field_ids(mirrors, rows)
    assert _field_ids(mirrors, f"{history}/3") == {(*new, *own)}
    mirrors.database.execute("ALTER TABLE t ALTER COLUMN title TYPE int USING length(title)", user="app")
    mirrors.once()
    assert _field_ids(mirrors, rows) == {(("id", 5), ("title", 6), ("gone", 7))}, "it was copied"
    _exact(mirrors)
