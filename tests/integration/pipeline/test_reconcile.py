"""Reconcile: a table that is copied anew is exact from one mark on, and history tells the difference."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.lake.format import layout
from headrace.lake.log.table import LakeTable
from headrace.lake.read.lake import Lake
from headrace.lake.store.contract import locate
from headrace.pipeline.commands import ask
from headrace.pipeline.resync import replacement
from headrace.pipeline.resync.comparison import NEAR_ROWS, KnownChecksums
from headrace.pipeline.resync.replacement import Workers
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import TableRecord
from headrace_testing import validators
from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.postgres import Database
from tests.integration.pipeline import everytype
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.serving import Served, serving
from tests.places import place_at

pytestmark = pytest.mark.server

TABLES = """
CREATE TABLE plain (id int PRIMARY KEY, s text, at timestamp);
CREATE TABLE whole (id int PRIMARY KEY, s text, at timestamp);
CREATE TABLE bag (id int, s text, at timestamp);
ALTER TABLE whole REPLICA IDENTITY FULL;
ALTER TABLE bag REPLICA IDENTITY FULL;
"""
NAMES = ("plain", "whole", "bag")
FILL = """
INSERT INTO {0} SELECT i, 'row ' || i, CASE i % 10 WHEN 0 THEN 'infinity' ELSE '2026-11-21' END::timestamp
  FROM generate_series(1, 100) i
"""


@pytest.fixture
def mirrors(mirrors: Mirrors) -> Mirrors:
    mirrors.database.execute(TABLES + ";".join(FILL.format(name) for name in NAMES), user="app")
    return mirrors


DAMAGED = {(50, -1): 1, (50, 1): 1, (51, 1): 1}
STEPS = ("lake.plan.after", "lake.table.after@public.whole", "lake.mark.before", "lake.mark.after")
KILLS = [*((step, "slot") for step in STEPS), ("copy.range.after", "xid"), ("copy.chunk.after", "chunks")]


def resync(mirrors: Mirrors, *tables: str) -> None:
    resync_at(mirrors.path, mirrors.database, *tables)


def resync_at(lake: Path, database: Database, *tables: str) -> None:
    ask.ask(str(lake), "resync", {"tables": list(tables)}, url=database.url(user="app"))


def difference(mirrors: Mirrors, table: str) -> dict[tuple[int, str, int], int]:
    """Count the updates in history that no transaction made."""
    told = mirrors.lake.history(table).to_pylist()
    return Counter((row["id"], row["s"], row["_diff"]) for row in told if row["_xid"] == 0)


def damage(mirrors: Mirrors, table: str) -> None:
    damage_at(mirrors.lake, table)


def damage_at(lake: Lake, table: str) -> None:
    """Another value in one row, and one row less, behind the back of the table's log."""
    folder = layout.table_folder("main", TableName("public", table))
    live = LakeTable(lake.store, folder)
    live.refresh()
    for name in live.files():
        path = Path(locate(lake.store, f"{folder}/{name}"))
        rows = pq.read_table(path)
        changed = pc.if_else(pc.equal(rows["id"], 50), "damaged", rows["s"])
        rows = rows.set_column(1, "s", changed).filter(pc.not_equal(rows["id"], 51))
        pq.write_table(rows.replace_schema_metadata(pq.read_schema(path).metadata), path)


def exact(mirrors: Mirrors) -> None:
    assert validators.exact(mirrors.lake, mirrors.database.url(), values=True) == []
    for name in NAMES:
        rows = mirrors.database.execute(f"SELECT id, at::text FROM {name} WHERE NOT isfinite(at)")
        assert everytype.standing(mirrors.lake, name) == Counter((i, "at", text) for i, text in rows)


@pytest.mark.spark
def test_what_is_damaged_in_the_lake_is_mended_in_one_mark(mirrors: Mirrors) -> None:
    mirrors.once()
    mirrors.database.execute(";".join(f"UPDATE {n} SET s = 'new' WHERE id = 7" for n in NAMES), user="app")
    before = mirrors.once().marks()[-1]
    for name in NAMES:
        damage(mirrors, name)
    resync(mirrors, *NAMES)
    mirrors.database.execute(";".join(f"UPDATE {n} SET s = 'late' WHERE id = 8" for n in NAMES), user="app")
    mirrors.once()
    exact(mirrors)
    wanted = {(50, "damaged", -1): 1, (50, "row 50", 1): 1, (51, "row 51", 1): 1}
    for name in NAMES:
        assert difference(mirrors, f"public.{name}") == wanted
        then = mirrors.lake.at(epoch=before.epoch).arrow(f"public.{name}").to_pylist()
        assert {row["id"]: row["s"] for row in then}[50] == "damaged"
    assert validators.travelled(mirrors.lake) == []


def test_what_is_sound_stays_as_it_is(mirrors: Mirrors) -> None:
    versions = mirrors.once().marks()[-1].versions
    folders = [mirrors.path / layout.table_folder("main", TableName("public", n)) for n in NAMES]
    files = [sorted(folder.glob("*.parquet")) for folder in folders]
    resync(mirrors, *NAMES)
    resync(mirrors, *NAMES)  # asked twice
    mirrors.once()
    exact(mirrors)
    assert [sorted(folder.glob("*.parquet")) for folder in folders] == files
    assert not (mirrors.path / "history").exists()
    assert list((mirrors.path / layout.staged_tables_folder("main")).rglob("*.parquet")) == []
    assert mirrors.lake.marks()[-1].versions == versions


def test_a_table_that_stopped_is_followed_again(mirrors: Mirrors) -> None:
    """Its identity was changed, so it stopped; meanwhile its rows went on."""
    database = mirrors.database
    last = mirrors.once().marks()[-1]
    database.execute("ALTER TABLE plain REPLICA IDENTITY FULL; DELETE FROM plain WHERE id > 90", user="app")
    with pytest.raises(HeadraceError) as caught:
        mirrors.once(on_ddl="stop")
    assert caught.value.code == "TABLE_CHANGED"
    published = "SELECT tablename FROM pg_publication_tables ORDER BY 1"
    assert database.execute(published) == [("bag",), ("whole",)]
    database.execute("INSERT INTO plain VALUES (1000, 'while it was stopped', 'infinity')", user="app")
    # Somebody puts it back, and not all of it.
    [(publication,)] = database.execute("SELECT pubname FROM pg_publication")
    database.execute(f"ALTER PUBLICATION {publication} ADD TABLE plain WHERE (id < 1000)", user="app")
    resync(mirrors, "public.plain")
    database.execute("UPDATE plain SET at = '-infinity' WHERE id IN (20, 1000)", user="app")
    lake = mirrors.once()
    exact(mirrors)
    told = difference(mirrors, "public.plain")
    assert told[1000, "while it was stopped", 1] == 1
    assert sum(count for (_, _, diff), count in told.items() if diff < 0) >= 10
    assert lake.at(epoch=last.epoch).arrow("public.plain").num_rows == 100
    since = mirrors.record("public.plain").since
    assert since is not None
    assert since > last.time + 2
    with pytest.raises(HeadraceError) as gap:
        lake.at(position=place_at(since - 1)).arrow("public.plain")
    assert gap.value.code == "LAKE_TABLE_NOT_EXACT"
    assert validators.travelled(lake) == []
    database.execute("UPDATE plain SET s = 'once more' WHERE id IN (20, 1000)", user="app")
    mirrors.once()
    exact(mirrors)  # the stream brings all of it, too


def test_a_table_that_another_program_changed_is_mended(mirrors: Mirrors) -> None:
    last = mirrors.once().marks()[-1]
    folder = mirrors.path / layout.table_folder("main", TableName("public", "plain"))
    rows = mirrors.lake.at().arrow("public.plain").slice(0, 1)
    write_deltalake(str(folder), rows.set_column(0, "id", [[999]]).cast(rows.schema), mode="append")
    with pytest.raises(HeadraceError) as caught:
        mirrors.once()
    assert caught.value.code == "LAKE_FOREIGN_COMMIT"
    resync(mirrors, "plain")
    mirrors.once()
    exact(mirrors)
    assert mirrors.lake.at(epoch=last.epoch).arrow("public.plain").num_rows == 100


def test_a_table_that_was_made_again_gets_the_difference(mirrors: Mirrors) -> None:
    mirrors.once()
    mirrors.database.execute(
        "DROP TABLE bag; CREATE TABLE bag (id int, s text, at timestamp); "
        "ALTER TABLE bag REPLICA IDENTITY FULL;" + FILL.format("bag") + "; DELETE FROM bag WHERE id = 3",
        user="app",
    )
    with pytest.raises(HeadraceError):
        mirrors.once(on_ddl="stop")
    resync(mirrors, "bag")
    mirrors.once()
    exact(mirrors)
    assert difference(mirrors, "public.bag") == {(3, "row 3", -1): 1}


def test_resync_takes_patterns_and_leaves_alone_what_is_being_copied(mirrors: Mirrors) -> None:
    mirrors.once()
    tables = set(mirrors.lake.at().mark.versions)
    resync(mirrors, "public.*", "!public.bag")
    assert {key for key in mirrors.lake.catalog() if key.startswith("staged/")} == {
        f"staged/{name}" for name in tables - {"public.bag"}
    }
    resync(mirrors, "*")  # the others have begun
    assert "staged/public.bag" in mirrors.lake.catalog()
    for pattern in ("nothing.*", "public.nothing"):
        with pytest.raises(HeadraceError) as caught:
            resync(mirrors, "bag", pattern)
        assert caught.value.code == "RESYNC_TABLE_UNKNOWN"
    mirrors.once()
    exact(mirrors)


def test_what_cannot_be_copied_anew_is_refused_and_keeps_no_other_from_it(mirrors: Mirrors) -> None:
    lake = mirrors.once()
    mirrors.database.execute("DROP TABLE plain; ALTER TABLE whole DROP CONSTRAINT whole_pkey", user="app")
    mirrors.database.execute("ALTER TABLE whole REPLICA IDENTITY NOTHING", user="app")
    for tables, code in (
        (["public.unknown", "bag"], "RESYNC_TABLE_UNKNOWN"),
        (["plain"], "RESYNC_TABLE_GONE"),
        (["whole", "bag", "pla*"], "RESYNC_TABLE_GONE"),
    ):
        assert "staged/public.bag" not in mirrors.lake.catalog()
        with pytest.raises(HeadraceError) as caught:
            resync(mirrors, *tables)
        assert caught.value.code == code
        assert caught.value.hint
    assert "PG_IDENTITY_MISSING" in (caught.value.detail or "")
    assert "staged/public.bag" in mirrors.lake.catalog()
    assert mirrors.lake.at().arrow("public.plain").num_rows == lake.at().arrow("public.plain").num_rows


KEEP = "UPDATE whole SET s = s || '.' WHERE id = {0}; UPDATE plain SET s = s || '.' WHERE id = {0}"


HeldUp = Callable[[str], AbstractContextManager[tuple[Served, Callable[[], None]]]]


@pytest.fixture
def held_up(
    mirrors: Mirrors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> HeldUp:
    """A mirror that goes on while one of its threads stands at a fail point, and how that is let go."""

    @contextmanager
    def hold(where: str) -> Iterator[tuple[Served, Callable[[], None]]]:
        release = tmp_path / "release"
        monkeypatch.setenv("HEADRACE_FAILPOINT", f"{where}=pause")
        monkeypatch.setenv("HEADRACE_FAILPOINT_RELEASE", str(release))
        with serving(mirrors) as served:
            try:
                served.until(lambda: f"fail point {where}" in capfd.readouterr().err, f"stop at {where}")
                yield served, release.touch
            finally:
                release.touch()

    return hold


def _shows(mirrors: Mirrors, table: str, text: str) -> bool:
    return text in mirrors.lake.at().arrow(f"public.{table}")["s"].to_pylist()


def _replaced(mirrors: Mirrors, table: str) -> bool:
    return f"staged/public.{table}" not in mirrors.lake.catalog()


def test_beside_a_running_mirror_nothing_else_is_disturbed(mirrors: Mirrors, held_up: HeldUp) -> None:
    """While the copy is held up marks go on, with the table in them; then the new copy replaces it."""
    mirrors.options["driver_epochs"] = 0
    mirrors.once()
    resync(mirrors, "public.whole")
    with held_up("copy.range.before@public.whole") as (served, let_go):
        for number in range(3):
            mirrors.database.execute(KEEP.format(number + 1), user="app")
            served.until(partial(_shows, mirrors, "whole", f"row {number + 1}."), "the change in a mark")
        assert set(mirrors.lake.marks()[-1].versions) == {f"public.{name}" for name in NAMES}
        let_go()
        served.until(partial(_replaced, mirrors, "whole"), "new copy")
    lake = mirrors.once()
    exact(mirrors)
    assert validators.consistent(lake) == []
    assert 0 not in lake.history("public.whole")["_xid"].to_pylist()


def test_a_large_table_is_compared_while_the_marks_go_on_with_it(mirrors: Mirrors, held_up: HeldUp) -> None:
    """Reconcile compares again the rows that change meanwhile, damaged ones among them, and no others."""
    more = f"SELECT i, 'row ' || i FROM generate_series(101, {NEAR_ROWS // 2 + 50_000}) i"
    mirrors.database.execute(f"DELETE FROM whole; INSERT INTO plain {more}", user="app")
    mirrors.once()
    damage(mirrors, "plain")
    resync(mirrors, "public.plain")
    with held_up("reconcile.weigh") as (served, let_go):
        mirrors.database.execute("UPDATE plain SET s = 'mended' WHERE id IN (1, 50)", user="app")
        served.until(partial(_shows, mirrors, "plain", "mended"), "the change in a mark")
        mirrors.database.execute("INSERT INTO whole VALUES (1, 'others go on')", user="app")
        served.until(lambda: served.holds("public.whole", 1), "the other table")
        assert set(mirrors.lake.marks()[-1].versions) == {f"public.{name}" for name in NAMES}
        let_go()
        served.until(partial(_replaced, mirrors, "plain"), "new copy")
    lake = mirrors.once()
    exact(mirrors)
    assert validators.definite(lake) == []
    told = lake.history("public.plain").to_pylist()
    assert [(r["id"], r["s"], r["_diff"]) for r in told if r["_xid"] == 0] == [(51, "row 51", 1)]
    assert (50, "damaged", -1) in [(r["id"], r["s"], r["_diff"]) for r in told]


def test_a_commit_right_behind_a_replaced_table_is_not_lost(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two new copies replace their tables, one after the other, and nothing but a COMMIT follows."""
    others = threading.Event()

    def near(ledger: Ledger, runner: Workers, copy: TableRecord, checksums: KnownChecksums) -> bool:
        return copy.name.name == "whole" or others.is_set()

    monkeypatch.setattr(replacement, "near", near)
    mirrors.options["handoff"] = "chunks"  # a new slot would wait for the open transaction
    mirrors.once()
    resync(mirrors, "public.plain", "public.whole")
    with mirrors.database.connect(user="app") as connection, serving(mirrors) as served:
        connection.execute("UPDATE bag SET s = 'late' WHERE id = 7")
        served.until(partial(_replaced, mirrors, "whole"), "the first new copy")
        others.set()
        served.until(partial(_replaced, mirrors, "plain"), "the other new copy")
        connection.commit()
        served.until(partial(_shows, mirrors, "bag", "late"), "the commit in a mark")
    mirrors.once()
    exact(mirrors)


@pytest.mark.parametrize(
    ("step", "handoff"),
    [
        ("reconcile.before", "slot"),
        pytest.param("reconcile.after", "xid", marks=pytest.mark.full),
        *(pytest.param(step, how, marks=pytest.mark.full) for step, how in KILLS),
    ],
)
def test_killed_at_any_step_of_a_reconcile_it_goes_on(
    database: Database, tmp_path: Path, step: str, handoff: str, program: Program
) -> None:
    database.execute(TABLES + ";".join(FILL.format(name) for name in NAMES), user="app")
    url, options = database.url(user="app"), {"handoff": handoff}
    mirror = Mirrored(tmp_path / "lake", url, "public.*", options=options, program=program)
    try:
        assert mirror.once() == 0, mirror.log()
        for name in NAMES:
            damage_at(mirror.lake, name)
            resync_at(mirror.lake_path, database, f"public.{name}")
        database.execute(KEEP.format(60), user="app")
        mirror.start("--once", environment={"HEADRACE_FAILPOINT": f"{step}=kill"})
        assert mirror.wait() == -9, mirror.log()
        database.execute(KEEP.format(61), user="app")
        assert mirror.once() == 0, mirror.log()
        assert validators.exact(mirror.lake, database.url(), values=True) == []
        assert validators.definite(mirror.lake) == []
        for name in NAMES:
            told = mirror.lake.history(f"public.{name}").to_pylist()
            assert Counter((r["id"], r["_diff"]) for r in told if r["_xid"] == 0) == DAMAGED
        assert list((mirror.lake_path / layout.staged_tables_folder("main")).rglob("*.parquet")) == []
    finally:
        mirror.close()
