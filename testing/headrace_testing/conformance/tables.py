"""Tables change while others go on: one comes late, one is dropped, two stop, one comes back.

t         ──────────────────────────────────────────────────────────▶
late             made, written, added, written ── copied ───────────▶
gone      ─────────── dropped
changed   ─────────────────── another column: stops ── dropped
renamed   ─────────────────── no longer there: stops ── back, resync ─▶
         first                                stopped              newest      marks
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from headrace.core.errors import Definite, HeadraceError
from headrace.lake.log.marks import Mark
from headrace_testing import validators
from headrace_testing.conformance.mirror import Mirror, mirror_of
from headrace_testing.conformance.place import Place, SourceUnderTest, execute


@dataclass(frozen=True)
class TableScene:
    """A mirror after all these changes."""

    mirror: Mirror
    error: HeadraceError  # of the run in which tables stopped
    first: Mark
    stopped: Mark

    def name(self, table: str) -> str:
        return str(self.mirror.place.table(table))

    def having(self, table: str) -> list[int]:
        """The epochs of the marks that have the table."""
        return [mark.epoch for mark in self.mirror.lake.marks() if self.name(table) in mark.versions]

    def numbers(self, mark: Mark, table: str) -> list[int]:
        rows = self.mirror.lake.at(epoch=mark.epoch).arrow(self.name(table))
        return sorted(rows["n"].to_pylist())


def _make(place: Place, *tables: str) -> None:
    for table in tables:
        execute(
            place,
            f"CREATE TABLE {table} (id int PRIMARY KEY, n int)",
            f"INSERT INTO {table} VALUES (1, 1), (2, 2), (3, 3)",
        )


def _change(place: Place, number: int, *tables: str) -> None:
    for table in tables:
        rows = f"INSERT INTO {table} VALUES ({number}0, 0)"
        execute(place, f"UPDATE {table} SET n = {number} WHERE id < 3", rows)


@pytest.fixture(scope="module")
def table_scene(
    request: pytest.FixtureRequest, source: SourceUnderTest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TableScene]:
    with mirror_of(request, source, tmp_path_factory.mktemp("tables") / "lake") as mirror:
        place = mirror.place
        _make(place, "t", "gone", "changed", "renamed")
        first = mirror.once().at().mark
        _make(place, "late")
        _change(place, 2, "t", "gone", "changed", "renamed", "late")
        mirror.ask("tables.drop", "gone")
        mirror.ask("tables.add", "late")
        _change(place, 3, "t", "gone", "late")
        execute(place, "ALTER TABLE changed DROP COLUMN n", "ALTER TABLE changed ADD COLUMN m int")
        execute(place, "INSERT INTO changed VALUES (4, 4)")
        execute(place, "ALTER TABLE renamed RENAME TO away")
        error, stopped = mirror.stops(on_ddl="stop"), mirror.lake.at().mark
        execute(place, "ALTER TABLE away RENAME TO renamed")
        _change(place, 4, "t", "late", "renamed")
        mirror.ask("tables.drop", "changed")
        mirror.ask("resync", "renamed")
        mirror.once()
        _change(place, 5, "t", "late", "renamed")
        mirror.once()
        yield TableScene(mirror, error, first, stopped)


def test_tables_that_are_followed_equal_their_source_whatever_becomes_of_others(
    table_scene: TableScene,
) -> None:
    lake, names = table_scene.mirror.lake, {table_scene.name(table) for table in ("t", "late", "renamed")}
    assert set(lake.at().mark.versions) == names
    assert validators.exact(lake, table_scene.mirror.place.url, values=True) == []
    assert validators.definite(lake, of_many=table_scene.mirror.of_many) == []
    assert validators.travelled(lake, tables=names) == []
    assert table_scene.having("t") == [mark.epoch for mark in lake.marks()][-len(table_scene.having("t")) :]


def test_a_table_that_comes_late_joins_the_marks_once_it_is_copied(table_scene: TableScene) -> None:
    """Others write to the table before it is added, before its copy, and after it."""
    assert min(table_scene.having("late")) > table_scene.first.epoch
    assert table_scene.having("late") == table_scene.having("t")[-len(table_scene.having("late")) :]


def test_a_dropped_table_stays_readable_where_it_was(table_scene: TableScene) -> None:
    assert table_scene.numbers(table_scene.first, "gone") == [1, 2, 3]
    assert max(table_scene.having("gone")) < table_scene.stopped.epoch
    with pytest.raises(HeadraceError) as caught:
        table_scene.mirror.lake.at().arrow(table_scene.name("gone"))
    assert caught.value.code == "LAKE_TABLE_NOT_EXACT"


def test_a_table_whose_columns_changed_stops_and_publishes_nothing_wrong(table_scene: TableScene) -> None:
    assert isinstance(table_scene.error, Definite)
    assert "headrace tables" in table_scene.error.hint
    assert table_scene.numbers(table_scene.first, "changed") == [1, 2, 3]
    for epoch in table_scene.having("changed"):
        assert table_scene.mirror.lake.at(epoch=epoch).arrow(table_scene.name("changed")).column_names == [
            "id",
            "n",
        ]
    assert max(table_scene.having("changed")) < table_scene.stopped.epoch


def test_a_stopped_table_is_reconciled(table_scene: TableScene) -> None:
    """The table is defined as before. The missed changes come in one mark, and change no earlier one."""
    assert table_scene.stopped.epoch not in table_scene.having("renamed")
    assert table_scene.numbers(table_scene.first, "renamed") == [1, 2, 3]
    assert table_scene.numbers(table_scene.mirror.lake.at().mark, "renamed") == [0, 0, 0, 3, 5, 5]


def test_on_an_idle_source_a_table_is_copied_anew_again_and_again(mirror: Mirror) -> None:
    """No other session commits anything meanwhile."""
    _make(mirror.place, "t")
    mirror.once()
    for _ in range(3):
        before = mirror.lake.at().mark
        mirror.ask("resync", "t")
        after = mirror.once().at().mark
        assert after.time > before.time
    assert validators.exact(mirror.lake, mirror.place.url, values=True) == []
    assert validators.definite(mirror.lake, of_many=mirror.of_many) == []


SHAPES = {
    "added": ("ALTER TABLE added ADD COLUMN more int",),
    "dropped": ("ALTER TABLE dropped DROP COLUMN n",),
    "renamed": ("ALTER TABLE renamed RENAME COLUMN n TO m",),
    "retyped": ("ALTER TABLE retyped ADD COLUMN t varchar(20)", "ALTER TABLE retyped DROP COLUMN n"),
    "again": ("DROP TABLE again", "CREATE TABLE again (id int PRIMARY KEY, s varchar(9))"),
}


def test_a_table_whose_shape_changed_is_copied_anew_by_itself(mirror: Mirror) -> None:
    """Write rows before, between and after the statements; the other table is in every mark."""
    place = mirror.place
    _make(place, "t", *SHAPES)
    first = mirror.once().at().mark
    _change(place, 2, "t", *SHAPES)
    for table, statements in SHAPES.items():
        execute(place, *statements, f"INSERT INTO {table} (id) VALUES (50)")
    second = mirror.once().at().mark
    for table in SHAPES:
        execute(place, f"INSERT INTO {table} (id) VALUES (51)", f"DELETE FROM {table} WHERE id = 2")
    lake = mirror.once()
    names = {str(place.table(table)) for table in ("t", *SHAPES)}
    assert set(second.versions) == set(lake.at().mark.versions) == names
    assert validators.exact(lake, place.url, values=True) == []
    told = {str(place.table("t"))}
    assert validators.definite(lake, tables=told, of_many=mirror.of_many) == []
    assert all(str(place.table("t")) in mark.versions for mark in lake.marks() if mark.epoch >= first.epoch)
    for table in SHAPES:
        before = lake.at(epoch=first.epoch).arrow(str(place.table(table)))
        assert (before.column_names, before.num_rows) == (["id", "n"], 3)
