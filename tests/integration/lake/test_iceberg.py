"""Marks in an Iceberg catalog: each once, all tables at one cut; killed anywhere, maintained, and misused.

The lake is a household's; the catalog is the one that a lake has of its own, an SQLite file.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError

from headrace.cli import main as cli
from headrace.core.errors import HeadraceError
from headrace.core.failpoint import VARIABLE
from headrace.iceberg.catalog import SqlRows
from headrace.iceberg.export import Exporter
from headrace.iceberg.settings import DATABASE, IcebergConfig
from headrace.iceberg.watch import exporting
from headrace.lake.format import exportfile, layout
from headrace_testing.postmaster import wait_for
from tests.iceberg import ENGINES, Engines, in_order, tags
from tests.integration.lake.exported import TABLES, Exported, Killed
from tests.integration.lake.household import NAMES, Household

_ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def exported(tmp_path: Path, seed: int) -> Exported:
    household = Household(tmp_path / "lake", seed)
    household.live(2)
    return Exported(household)


def test_every_engine_reads_at_each_tag_what_the_source_had(exported: Exported) -> None:
    """And history, append-only, up to the newest mark; a mark that changes nothing is not exported."""
    epochs = [exported.live(2) for _ in range(4)]
    assert exported.exporter.export() is None, "it is there"
    assert exported.wrong() == []
    for name in TABLES:
        assert sorted(tags(exported.engines.table(name))) == epochs
        schema, table = name.split(".")
        history = exported.engines.table(f"{schema}.history.{table}_1")
        assert {
            str(each.summary and each.summary.operation.value) for each in history.metadata.snapshots
        } == {"append"}
        ours = in_order(exported.household.lake.history(name))
        for engine in ENGINES:
            newest = history.metadata.snapshots[-1].snapshot_id
            assert in_order(exported.engines.read(engine, history, newest)) == ours
    snapshot = exported.engines.table(TABLES[0]).current_snapshot()
    assert snapshot is not None
    summary: Any = snapshot.summary
    mark = next(mark for mark in exported.times if str(mark.epoch) == summary["headrace.epoch"])
    assert (summary["headrace.source"], summary["headrace.lake"]) == ("main", exported.lake_id)
    assert (summary["headrace.position"], summary["headrace.time"]) == (mark.frontier, str(mark.time))


def test_what_was_missed_is_one_snapshot_a_table(exported: Exported) -> None:
    exported.live()
    exported.household.live(20)
    exported.live()
    for name in TABLES:
        assert len(exported.engines.table(name).metadata.snapshots) == 2
    assert exported.wrong(("pyiceberg",)) == []


POINTS = [f"iceberg.{name}" for name in ("pinned", "written", "commit.before", "commit.after", "noted")]


@pytest.mark.parametrize("point", POINTS)
def test_an_export_that_is_killed_anywhere_is_done_once(
    exported: Exported, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = exported.live()
    exported.household.live(2)

    def kill(name: str, table: str | None = None) -> None:
        if name == point:
            raise Killed

    with monkeypatch.context() as patch:
        for module in ("export", "catalog"):
            patch.setattr(f"headrace.iceberg.{module}.failpoint", kill)
        with pytest.raises(Killed):
            exported.exporter.export()
    committed = point in ("iceberg.commit.after", "iceberg.noted")
    newest = exported.household.ledger.mark.epoch
    for name in TABLES:
        assert sorted(tags(exported.engines.table(name))) == ([first, newest] if committed else [first])
    assert exported.wrong(("pyiceberg",)) == []
    again = Exported(exported.household)
    assert (again.exporter.export() is None) == committed
    record = exportfile.read(exported.store, "main")
    assert record is not None
    assert record.newest is not None
    assert record.newest.epoch == newest
    assert again.wrong(("pyiceberg",)) == []
    assert [len(table.metadata.snapshots) for table in again.engines.tables("main.public.history")] == [2, 2]
    again.exporter.grace = timedelta(0)
    again.live()
    assert _stray(again) == [], "what the killed one left is gone"
    assert again.wrong(("pyiceberg",)) == []


def _stray(exported: Exported) -> list[str]:
    """Files of metadata that no table names."""
    named = set()
    for table in exported.engines.tables():
        named.add(table.metadata_location)
        named |= {entry.metadata_file for entry in table.metadata.metadata_log}
        for snapshot in table.metadata.snapshots:
            named |= {snapshot.manifest_list, *(m.manifest_path for m in snapshot.manifests(table.io))}
    root = exported.household.path.resolve()
    keys = exported.store.list(layout.iceberg_folder("main"))
    return [key for key in keys if f"{root}/{key}" not in named]


def test_the_command_that_is_killed_in_the_commit_is_begun_again(exported: Exported) -> None:
    exported.live()
    exported.household.live(2)
    words = ["iceberg", "rebuild", "--lake", str(exported.household.path)]
    command = [sys.executable, "-m", "headrace.cli.main", *words]
    environment = os.environ | {"PYTHONPATH": f"{_ROOT / 'src'}:{_ROOT}"}
    environment[VARIABLE] = "iceberg.commit.before=kill"
    killed = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert exported.wrong(("pyiceberg",)) == []
    assert cli.main(words) == 0
    assert exported.wrong() == []


def test_maintenance_deletes_no_file_that_a_listed_snapshot_names(tmp_path: Path, seed: int) -> None:
    """Marks and grace of no time at all: a mark goes as soon as it is not the newest, its files with it."""
    household = Household(tmp_path / "lake", seed)
    household.live(2)
    exported = Exported(household, tags=3, grace=timedelta(0))
    deleted = 0
    for _ in range(4):
        exported.live(3)
        report = household.maintained(marks="0s", grace="0s")
        deleted += report["deleted"]["files"]
        assert exported.unreadable() == []
        assert exported.wrong(("pyiceberg",)) == []
        assert len(tags(exported.engines.table(TABLES[0]))) <= 3
    assert deleted > 5
    assert len(household.lake.marks()) < len(exported.times)
    exported.exporter.detach()
    assert household.maintained(marks="0s", grace="0s")["deleted"]["files"] > 0, "nothing is pinned any more"
    assert household.wrong(most=3) == []


def test_maintenance_that_only_rewrites_is_a_replacement(exported: Exported) -> None:
    exported.live(8)
    exported.household.maintained(marks="0s", grace="1h")
    assert exported.exporter.export() is not None
    newest: list[Any] = [exported.engines.table(name).current_snapshot() for name in TABLES]
    assert {each.summary.operation.value for each in newest} == {"replace"}
    assert exported.wrong() == []


def test_a_table_that_leaves_the_marks_goes_with_its_last_tag(tmp_path: Path, seed: int) -> None:
    household = Household(tmp_path / "lake", seed)
    household.live(2)
    exported = Exported(household, tags=2, grace=timedelta(0))
    first = exported.live()
    gone = frozenset([NAMES[1]])
    for at in range(2):
        household.epoch(2, absent=gone)
        exported.exporter.export()
        if not at:
            assert list(tags(exported.engines.table(TABLES[1]))) == [first]
            assert exported.unreadable() == []
    with pytest.raises(NoSuchTableError):
        exported.engines.table(TABLES[1])
    last = exported.live()
    assert list(tags(exported.engines.table(TABLES[1]))) == [last]
    assert exported.wrong(("pyiceberg",)) == []


# --- misuse -------------------------------------------------------------------------------------------


def _codes(exported: Exported) -> set[str]:
    return {error.code for error in exported.exporter.left_out.values()}


def _commit_foreign(exported: Exported, name: str = TABLES[0]) -> None:
    exported.engines.table(name).append(pa.table({"id": pa.array([0], pa.int64()), "v": ["theirs"]}))


def _set_back(exported: Exported) -> None:
    path = exported.household.path / DATABASE
    before = path.read_bytes()
    exported.live()
    path.write_bytes(before)


def _lose(exported: Exported) -> None:
    location = exported.engines.table(TABLES[0]).metadata_location
    Path(location).unlink()
    exported.exporter = Exporter(exported.store, "main", exported.lake_id, exported.grace)


def _lose_manifests(exported: Exported) -> None:
    for file in Path(exported.engines.table(TABLES[0]).location(), "metadata").glob("*.avro"):
        file.unlink()
    exported.household.live(6)  # so that the table changes


def _lose_catalog(exported: Exported) -> None:
    (exported.household.path / DATABASE).unlink()


def _drop(exported: Exported) -> None:
    exported.engines.catalog.drop_table(f"main.{TABLES[0]}")


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (_commit_foreign, "ICEBERG_FOREIGN_COMMIT"),
        (_set_back, "ICEBERG_SET_BACK"),
        (_drop, "ICEBERG_SET_BACK"),
        (_lose_catalog, "ICEBERG_SET_BACK"),
        (_lose, "ICEBERG_METADATA_LOST"),
        (_lose_manifests, "ICEBERG_METADATA_LOST"),
    ],
)
def test_a_table_that_others_changed_in_the_catalog_is_left_alone_until_it_is_rebuilt(
    exported: Exported, act: Callable[[Exported], None], code: str
) -> None:
    exported.live()
    act(exported)
    exported.household.live(2)
    exported.exporter.export()
    assert _codes(exported) == {code}
    if act not in (_set_back, _lose_catalog):
        assert max(tags(exported.engines.table(TABLES[1]))) == exported.household.ledger.mark.epoch
    if act is _commit_foreign:
        assert exported.engines.table(TABLES[0]).scan().to_arrow()["v"].to_pylist().count("theirs") == 1
        exported.household.maintained(marks="0s", grace="0s")
        assert exported.unreadable() == [], "files stay that the other program's snapshot names"
    assert exported.exporter.export(rebuild=True) is not None
    assert _codes(exported) == set()
    assert exported.wrong(("pyiceberg",)) == []
    assert exported.live() == exported.household.ledger.mark.epoch


def test_a_catalog_that_changes_at_each_attempt_is_told_and_exported_to_later(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program commits to one table after another, each time between our look and our commit."""
    exported.live()
    exported.household.live(2)
    names = [*TABLES, "public.history.a_1"]
    attacked = iter(names)

    def attack(name: str) -> None:
        if name == "iceberg.written":
            _commit_foreign(exported, next(attacked))

    def owners(rows: SqlRows, namespace: str) -> dict[str, str | None]:
        attack("iceberg.written")
        return known(rows, namespace)

    with monkeypatch.context() as patch:
        patch.setattr("headrace.iceberg.export.failpoint", attack)
        with pytest.raises(HeadraceError, match="ICEBERG_CATALOG_MOVED"):
            exported.exporter.export()
    assert exported.live() == max(tags(exported.engines.table("public.history.b_1"))), "the others go on"
    assert _codes(exported) == {"ICEBERG_FOREIGN_COMMIT"}
    assert len(exported.exporter.left_out) == len(names)
    known, attacked = SqlRows.owners, iter(names)
    with monkeypatch.context() as patch:
        patch.setattr(SqlRows, "owners", owners)
        with pytest.raises(HeadraceError, match="ICEBERG_CATALOG_MOVED"):
            exported.exporter.detach()
    assert len([*exported.engines.tables()]) == len(names) + 1, "nothing was taken out"
    exported.exporter.detach()
    assert not (exported.household.path / DATABASE).exists()


def test_a_lake_that_refuses_metadata_is_no_fault_of_ours(exported: Exported) -> None:
    (exported.household.path / "iceberg").touch()
    with pytest.raises(HeadraceError, match="LAKE_STORE"):
        exported.exporter.export()
    (exported.household.path / "iceberg").unlink()
    exported.live()
    assert exported.wrong(("pyiceberg",)) == []


def test_a_table_of_others_is_not_touched_and_detach_leaves_all_as_it_was(tmp_path: Path, seed: int) -> None:
    household = Household(tmp_path / "lake", seed)
    household.live(2)
    engines = Engines(household.path)
    theirs = pa.table({"x": [1]})
    engines.catalog.create_namespace("main")
    engines.catalog.create_namespace("main.public")
    location = str(tmp_path / "theirs")
    engines.catalog.create_table(f"main.{TABLES[0]}", theirs.schema, location=location).append(theirs)
    exported = Exported(household)
    exported.live()
    assert _codes(exported) == {"ICEBERG_TABLE_TAKEN"}
    assert engines.table(TABLES[0]).scan().to_arrow() == theirs
    exported.exporter.detach()
    assert engines.catalog.list_tables("main.public") == [("main", "public", "a")]
    assert engines.catalog.list_namespaces("main") == [("main", "public")]
    assert engines.table(TABLES[0]).scan().to_arrow() == theirs
    assert household.place.store.list("iceberg") == ()


def test_detach_takes_the_catalog_with_it_that_was_made_for_the_lake(exported: Exported) -> None:
    before = set(exported.store.list("")) - {layout.export_key("main")}
    exported.live()
    made = {key for key in exported.store.list("") if key.startswith(("iceberg", "_headrace/iceberg"))}
    assert len(made) > 10
    exported.exporter.detach()
    assert made.isdisjoint(exported.store.list(""))
    assert before - {DATABASE} <= set(exported.store.list(""))


@pytest.mark.parametrize("is_rebuilt", [True, False])
def test_a_lake_that_moved_is_rebuilt_or_detached(exported: Exported, is_rebuilt: bool) -> None:
    exported.live()
    path = exported.household.path.with_name("elsewhere")
    shutil.move(exported.household.path, path)
    moved = _moved(exported, path)
    assert moved.exporter.export() is None or _codes(moved)
    assert _codes(moved) == {"ICEBERG_LAKE_MOVED"}
    if not is_rebuilt:
        moved.exporter.detach()
        assert not (path / DATABASE).exists()
        return
    assert moved.exporter.export(rebuild=True) is not None
    assert {Path(t.metadata_location).is_relative_to(path) for t in moved.engines.tables()} == {True}
    assert moved.unreadable() == []


def _moved(exported: Exported, path: Path) -> Exported:
    household = exported.household
    household.path = path
    household.place = type(household.place)(type(household.place.store)(str(path)), household.place.lake)
    household.again()
    return Exported(household)


def test_two_lakes_have_no_namespace_in_common(tmp_path: Path, seed: int) -> None:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    config = IcebergConfig(properties={"type": "sql", "uri": uri})
    one, other = (Household(tmp_path / name, seed) for name in ("one", "other"))
    Exported(one, config=config).live()
    with pytest.raises(HeadraceError, match="ICEBERG_OTHER_LAKE"):
        Exported(other, config=config)
    Exported(other, config=replace(config, namespace="further")).live()
    Exported(other, config=replace(config, namespace="further")).exporter.detach()
    long = Exported(other, config=replace(config, namespace="n" * 250))
    long.exporter.export()
    assert set(long.exporter.left_out) == set(TABLES)
    assert _codes(long) == {"ICEBERG_NAME"}
    with pytest.raises(HeadraceError, match="ICEBERG_ELSEWHERE"):
        Exported(one, config=replace(config, namespace="again"))


def test_a_catalog_that_is_away_is_told_and_caught_up_with(exported: Exported) -> None:
    exported.live()
    path = exported.household.path / DATABASE
    away = path.rename(path.with_suffix(".away"))
    path.mkdir()
    exported.household.live(3)
    with pytest.raises(HeadraceError, match="ICEBERG_CATALOG_AWAY"):
        exported.exporter.export()
    path.rmdir()
    away.rename(path)
    exported.live()
    assert {len(table.metadata.snapshots) for table in exported.engines.tables("main.public")} == {2}


def test_the_thread_of_a_run_tells_of_a_catalog_that_is_away_and_of_a_bug(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run never waits for it."""
    path = exported.household.path / DATABASE
    config = replace(exported.config, every="1s")
    with exporting(exported.store, "main", exported.lake_id, timedelta(hours=1), config) as watch:
        assert watch is not None
        wait_for(lambda: watch.status is not None and watch.status.epoch > 0, "the first export")
        away = path.rename(path.with_suffix(".away"))
        path.mkdir()
        exported.household.live(2)
        wait_for(lambda: "ICEBERG_CATALOG_AWAY" in watch.warnings, "the warning")
        assert watch.status is not None
        assert watch.status.behind_since is not None
        path.rmdir()
        away.rename(path)
        wait_for(lambda: watch.warnings == {}, "the next export")
        with monkeypatch.context() as patch:
            patch.delattr("headrace.iceberg.export.durable")
            wait_for(lambda: "ICEBERG_FAULT" in watch.warnings, "the warning")
        wait_for(lambda: watch.warnings == {}, "the next export")
        exported.household.live(2)
        watch.close()
        last = watch.status
        assert last is not None
        assert (last.epoch, last.behind_since) == (exported.household.ledger.mark.epoch, None)
    assert exported.times
    assert exported.wrong(("pyiceberg",)) == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("attach", "--uri", "postgresql://me:secret@db/x"), "ICEBERG_PASSWORD"),
        (("attach", "--uri", "nonsense"), "ICEBERG_CATALOG_URI"),
        (("attach", "--catalog", "unheard-of"), "ICEBERG_CATALOG_UNKNOWN"),
        (("attach", "--tags", "0"), "ICEBERG_TAGS"),
        (("attach", "--every", "soon"), "DURATION_MALFORMED"),
        (("status",), "ICEBERG_NOT_ATTACHED"),
        (("rebuild",), "ICEBERG_NOT_ATTACHED"),
        (("detach",), "ICEBERG_NOT_ATTACHED"),
    ],
)
def test_the_command_refuses_what_it_cannot_do(
    tmp_path: Path, arguments: tuple[str, ...], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    household = Household(tmp_path / "lake")
    assert cli.main(["iceberg", *arguments, "--lake", str(household.path)]) == 2
    said = capsys.readouterr().err
    assert code in said
    assert "secret" not in said
    assert exportfile.read(household.place.store, "main") is None


def test_the_command_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    household = Household(tmp_path / "lake")
    household.live(2)
    where = ["--lake", str(household.path)]
    assert cli.main(["iceberg", "attach", *where, "--every", "5s"]) == 0
    epoch = household.lake.at().mark.epoch
    assert cli.main(["iceberg", "status", *where]) == 0
    assert cli.main(["iceberg", "status", *where, "--json"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("mark ")
    assert "in the namespace" in said[0]
    assert 'namespace "main", 1 tags, a mark at most every 5s' in said
    assert json.loads(said[-1])["newest_epoch"] == epoch
    assert cli.main(["iceberg", "detach", *where]) == 0
    assert not (household.path / DATABASE).exists()
