"""DDL that is followed while something goes wrong: kills, a second writer, maintenance, a full disk.

a    gets columns that are NULL in all rows         evolve.add.before · after
t    is written again in the lake, in portions      evolve.rewrite.before · between · after,
                                                    evolve.join.before
"""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headrace.core.errors import HeadraceError
from headrace.lake.format import column_chunks, layout
from headrace.lake.format.status import TableStatus
from headrace.lake.log.marks import Mark
from headrace.lake.read.lake import Lake
from headrace.lake.store.contract import refusals
from headrace.pipeline import loop
from headrace.pipeline.commands import ask
from headrace.pipeline.copy import copied_parts, from_lake
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import tables_of
from headrace.pipeline.tasks import convert, files
from headrace.status.picture import pictures
from headrace_testing import validators
from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.evolve.three_tables import TABLES
from tests.integration.pipeline.holding import held_up
from tests.integration.pipeline.serving import serving
from tests.integration.pipeline.verifying import outcomes, verified
from tests.places import place_at

pytestmark = pytest.mark.server

POINTS = (
    "evolve.add.before",
    "evolve.add.after",
    "evolve.rewrite.before",
    "evolve.rewrite.between",
    "evolve.rewrite.after",
    "evolve.join.before",
)
points = pytest.mark.parametrize(
    "points", [POINTS[1::2], pytest.param(POINTS[::2], marks=pytest.mark.full)], ids=["after", "before"]
)


def alter(database: Database, number: int) -> None:
    """Rows change before it, in it, and after it."""
    database.execute(f"UPDATE t SET n{number} = 0 WHERE id = {number + 1}", user="app")
    database.execute(
        f"ALTER TABLE a ADD COLUMN c{number} int; ALTER TABLE t RENAME COLUMN n{number} TO n{number + 1};"
        f"UPDATE a SET c{number} = 1 WHERE id < 9; DELETE FROM t WHERE id = {number + 20};"
        f"INSERT INTO other VALUES ({number})",
        user="app",
    )
    database.execute(f"UPDATE t SET n{number + 1} = 7 WHERE id = {number + 10}", user="app")


def _exact(lake: Lake, database: Database) -> None:
    assert validators.exact(lake, database.url(), values=True) == []
    assert validators.consistent(lake) == []


@points
def test_killed_at_any_step_it_goes_on(
    database: Database, tmp_path: Path, program: Program, points: tuple[str, ...]
) -> None:
    database.execute(TABLES, user="app")
    mirror = Mirrored(tmp_path / "lake", database.url(user="app"), "public.*", program=program)
    try:
        assert mirror.once() == 0, mirror.log()
        for number, where in enumerate(points):
            alter(database, number)
            mirror.start("--once", environment={"HEADRACE_FAILPOINT": f"{where}=kill"})
            assert (where, mirror.wait()) == (where, -9), mirror.log()
            database.execute(f"UPDATE t SET n{number + 1} = -1 WHERE id > 40", user="app")
            assert mirror.once() == 0, mirror.log()
            _exact(mirror.lake, database)
        records = tables_of(mirror.lake.catalog())
        ways = {name.name: record.alteration and record.alteration.way for name, record in records.items()}
        assert ways == {"a": "added", "t": "rewritten", "other": None}
    finally:
        mirror.close()


def _takes_over(mirrors: Mirrors, where: str, successors: list[Ledger], name: str, table: str = "") -> None:
    """Act as a fail point: another process takes the source over at `where`."""
    if name == where and not successors:
        successors.append(Ledger(mirrors.lake.store, "main"))


@points
def test_a_second_writer_at_any_step_fences_the_first_off(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch, points: tuple[str, ...]
) -> None:
    mirrors.database.execute(TABLES, user="app")
    mirrors.once()
    for number, where in enumerate(points):
        successors: list[Ledger] = []
        takes_over = partial(_takes_over, mirrors, where, successors)
        with monkeypatch.context() as patch:
            for module in (loop, copied_parts, from_lake):
                patch.setattr(module, "failpoint", takes_over)
            with serving(mirrors, ends_with="LAKE_FENCED") as served:
                alter(mirrors.database, number)
                wait_for(partial(bool, served.ended), where)
        assert [mirrors.lake.marks()[-1]] == [each.mark for each in successors], where
        mirrors.once()
        _exact(mirrors.lake, mirrors.database)


# --- portions -------------------------------------------------------------------------------------


@pytest.fixture
def portioned(mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch) -> Mirrors:
    """Five files of `t`, each a portion of its own."""
    monkeypatch.setattr(files, "ROWS_PER_FILE", 10)
    monkeypatch.setattr(from_lake, "BUNDLE_BYTES", 1)
    monkeypatch.setattr(from_lake, "ROUND_TASKS", 1)
    mirrors.database.execute(TABLES, user="app")
    mirrors.once()
    return mirrors


@pytest.fixture
def converted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The files that were read to be written again, in order."""
    read: list[tuple[str, ...]] = []

    def _converted(task: Any, before: Any = convert._convert) -> Any:
        read.append(tuple(file.path for file in task.live))
        return before(task)

    monkeypatch.setattr(convert, "_convert", _converted)
    return read


def test_a_run_goes_on_with_the_files_that_are_not_done(
    portioned: Mirrors, converted: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of what is in the lake is done again, whatever else happens there in between."""
    alter(portioned.database, 0)
    failing: list[int] = []

    def fails(name: str, table: str = "") -> None:
        if name == "evolve.rewrite.between" and len(converted) in (2, 3) and len(converted) not in failing:
            failing.append(len(converted))
            with refusals("t"):
                raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(from_lake, "failpoint", fails)
    portioned.once()
    assert failing == [2, 3]
    assert len(converted) == len(set(converted)) == 5
    _exact(portioned.lake, portioned.database)


def test_a_disk_that_is_full_ends_nothing(
    portioned: Mirrors, converted: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table sits the marks out until there is room; the others are in them."""
    alter(portioned.database, 0)
    full = [True, True]

    def write(*given: Any, before: Any = column_chunks.convert, **limits: Any) -> Any:
        if full and len(converted) == 3:
            full.pop()
            converted.pop()
            with refusals("tables/main/public/t"):
                raise OSError(errno.ENOSPC, "No space left on device")
        return before(*given, **limits)

    monkeypatch.setattr(column_chunks, "convert", write)
    portioned.once()
    assert full == []
    assert len(converted) == len(set(converted)) == 5
    _exact(portioned.lake, portioned.database)


def test_maintenance_a_look_at_the_rows_and_a_resync_beside_it(
    portioned: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maintenance leaves the files alone that are read, and those that no plan names yet."""
    before = portioned.lake.at().mark
    alter(portioned.database, 0)
    url = portioned.database.url(user="app")
    with held_up(portioned, "evolve.rewrite.between", "public.t", monkeypatch):
        # Until its first word of itself it is taken for none that is alive.
        wait_for(lambda: _told(portioned).state == "rewriting", "its word")
        told = _told(portioned)
        assert told.copy is not None
        assert (told.copy.rows_known, told.schema_version) == (50, 1)
        _is_away(portioned, before)
        portion = portioned.path / "tables/main/public/t" / layout.file_name(before.epoch + 1)
        portion.write_bytes(b"of a task that has been at work for long")
        os.utime(portion, (0, 0))
        ask.ask(str(portioned.path), "maintain", {"retention": None, "grace": 0}, url=url)
        assert portion.exists()
        with pytest.raises(Exception, match="RESYNC_TABLE_COPYING"):
            ask.ask(str(portioned.path), "resync", {"tables": ["public.t"]}, url=url)
        ask.ask(str(portioned.path), "resync", {"tables": ["public.other"]}, url=url)
    altered = portioned.record("public.t").alteration
    assert altered is not None
    assert altered.way == "rewritten"
    _exact(portioned.lake, portioned.database)
    assert set(outcomes(verified(portioned)).values()) == {"equal"}
    assert _columns_at(portioned, before.time + 1) == ["id", "n0"]
    assert _columns_at(portioned, before.time + 2) == ["id", "n1"]


def _is_away(mirrors: Mirrors, before: Mark) -> None:
    """Verify says so of the table and compares the others; the lake shows it up to the last mark it is in."""
    verdict = verified(mirrors)
    assert outcomes(verdict) == {"public.a": "equal", "public.other": "equal", "public.t": "not compared"}
    [error] = [table.error for table in verdict.tables if table.error is not None]
    assert error.code == "VERIFY_NOT_LIVE"
    assert _columns_at(mirrors, before.time + 1) == ["id", "n0"]
    with pytest.raises(HeadraceError, match="LAKE_TABLE_NOT_EXACT"):
        _columns_at(mirrors, before.time + 2)


def _columns_at(mirrors: Mirrors, position: int) -> list[str]:
    return list(mirrors.lake.at(position=place_at(position)).arrow("t").column_names)


def _told(mirrors: Mirrors) -> TableStatus:
    """Read the run's status of `t`."""
    return pictures(str(mirrors.path))[0].tables["public.t"]


def test_another_programs_commit_amid_it(portioned: Mirrors, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that nobody knows stop the table; a resync brings it back."""
    alter(portioned.database, 0)
    folder = portioned.path / "tables/main/public/t"
    where, code = "evolve.rewrite.between", "LAKE_FOREIGN_COMMIT"
    with held_up(portioned, where, "public.t", monkeypatch, ends_with=code):
        row = pa.table({"id": pa.array([99], pa.int32()), "n1": pa.array([99], pa.int32())})
        write_deltalake(str(folder), row, mode="append")
    error = portioned.record("public.t").error
    assert error is not None
    assert error.code == code
    assert "public.other" in portioned.lake.at().tables()
    ask.ask(str(portioned.path), "resync", {"tables": ["public.t"]}, url=portioned.database.url(user="app"))
    portioned.once()
    assert validators.exact(portioned.lake, portioned.database.url(), values=True) == []


def test_another_programs_compaction_amid_it_is_taken_in(
    portioned: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter(portioned.database, 0)
    with held_up(portioned, "evolve.rewrite.after", "public.t", monkeypatch):
        wait_for(lambda: _whole(portioned) == 50, "the portions")
        DeltaTable(str(portioned.path / "tables/main/public/t")).optimize.compact()
    _exact(portioned.lake, portioned.database)


def _whole(mirrors: Mirrors) -> int:
    """The rows that are committed."""
    return int(DeltaTable(str(mirrors.path / "tables/main/public/t")).count())
