"""A column that was added without a copy, seen from both sides of the border and in every way of reading.

t      ─ rows ─ m1 ─ rows ─ m2 ─ rows │ADD COLUMN│ rows ─ m3 ─ rows ─ m4
columns         id n        id n      │          │        id n more   id n more

and between n and more so many columns that Delta's readers take no statistics of those behind them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headrace.core.errors import HeadraceError
from headrace.core.records import to_record
from headrace.lake.log.marks import Mark
from headrace.lake.read.lake import Lake
from headrace.lake.store.open import open_store
from headrace.pipeline.commands import ask
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import TableRecord, Way
from headrace_testing import validators
from headrace_testing.postgres import Database
from tests.integration.pipeline.conftest import Mirrors
from tests.places import place_at

pytestmark = pytest.mark.server

BETWEEN = [f"c{number}" for number in range(32)]
NARROW = ["id", "n", *BETWEEN]
WIDE = [*NARROW, "more"]


@dataclass(frozen=True)
class Story:
    """The four marks of the picture."""

    mirrors: Mirrors
    marks: list[Mark]

    @property
    def database(self) -> Database:
        return self.mirrors.database

    @property
    def lake(self) -> Lake:
        return self.mirrors.lake

    def run(self, statements: str) -> None:
        self.database.execute(statements, user="app")


@pytest.fixture
def story(mirrors: Mirrors) -> Story:
    story = Story(mirrors, [])
    story.run(
        f"CREATE TABLE t (id int PRIMARY KEY, n int, {' int, '.join(BETWEEN)} int);"
        "INSERT INTO t SELECT i, 0 FROM generate_series(1, 9) i"
    )
    mirrors.once()
    for statements in (
        "UPDATE t SET n = 1 WHERE id < 3",
        "UPDATE t SET n = 2 WHERE id < 3; DELETE FROM t WHERE id = 9",
        "UPDATE t SET n = 3 WHERE id < 3; ALTER TABLE t ADD COLUMN more text;"
        " UPDATE t SET n = 3, more = 'x' WHERE id = 4",
        "UPDATE t SET n = 4 WHERE id < 3; INSERT INTO t (id, n, more) VALUES (10, 4, 'y')",
    ):
        for statement in statements.split("; "):
            story.run(statement)
        story.marks.append(mirrors.once().marks()[-1])
    return story


def test_each_side_keeps_its_columns_at_marks_between_them_and_in_history(story: Story) -> None:
    lake, (one, two, three, four) = story.lake, story.marks
    for mark, columns in ((one, NARROW), (two, NARROW), (three, WIDE), (four, WIDE)):
        assert lake.at(epoch=mark.epoch).arrow("t").column_names == columns
        assert lake.at(epoch=mark.epoch).polars("t").collect().columns == columns
    between = lake.at(position=place_at(one.time + 2)).arrow("t")
    assert (between.column_names, between.num_rows) == (NARROW, 9)
    later = lake.at(position=place_at(three.time + 2)).arrow("t")
    assert later.column_names == WIDE
    assert sorted(later["more"].to_pylist(), key=str) == [None] * 7 + ["x"]
    rows = pl.DataFrame(lake.at().arrow("t")).sort("id")
    assert rows["more"].to_list() == [None, None, None, "x", None, None, None, None, "y"]
    assert validators.exact(lake, story.database.url(), values=True) == []
    _has_history_of_one_side(story)


def _has_history_of_one_side(story: Story) -> None:
    lake = story.lake
    before = lake.at(epoch=story.marks[1].epoch).history("t").column_names
    assert (set(NARROW) <= set(before), "more" in before) == (True, False)
    assert "more" in lake.at().history("t").column_names


def test_what_comes_after_works_on_files_of_both_sides(story: Story) -> None:
    """Maintenance, a resync and a verify; then a column more, and one that needs a copy."""
    lake, url = story.lake, story.database.url(user="app")
    ask.ask(str(story.mirrors.path), "maintain", {}, url=url)
    assert validators.exact(lake, story.database.url(), values=True) == []
    ask.ask(str(story.mirrors.path), "resync", {"tables": ["t"]}, url=url)
    story.run("UPDATE t SET more = 'z' WHERE id = 1; ALTER TABLE t ADD COLUMN further int")
    story.mirrors.once()
    assert validators.exact(lake, story.database.url(), values=True) == []
    story.run("ALTER TABLE t DROP COLUMN more")
    story.mirrors.once()
    assert lake.at().arrow("t").column_names == [*NARROW, "further"]
    assert validators.exact(lake, story.database.url(), values=True) == []
    assert lake.at(epoch=story.marks[3].epoch).arrow("t").column_names == WIDE


def test_a_lake_that_began_later_has_the_columns_of_its_beginning(story: Story, tmp_path: Path) -> None:
    """Two lakes of one source, whose versions of its columns are others, go on with the same rows."""
    other = replace(story.mirrors, path=tmp_path / "other")
    began = other.once().marks()[-1]
    assert [len(each.record("public.t").schema.earlier) for each in (story.mirrors, other)] == [1, 0]
    story.run("ALTER TABLE t RENAME COLUMN more TO most; UPDATE t SET most = 'z' WHERE id < 4")
    rows = []
    for mirrors in (story.mirrors, other):
        mirrors.once()
        assert validators.exact(mirrors.lake, story.database.url(), values=True) == []
        assert validators.definite(mirrors.lake) == []
        rows.append(pl.DataFrame(mirrors.lake.at().arrow("t")).sort("id"))
    assert rows[0].columns == [*NARROW, "most"]
    assert rows[0].equals(rows[1])
    assert story.lake.at(epoch=story.marks[1].epoch).arrow("t").column_names == NARROW
    assert other.lake.at(epoch=began.epoch).arrow("t").column_names == WIDE


# The keys that a release before versions of columns did not write yet.
NEWER = {
    *("alteration", "old_rows", "earlier"),  # of a table and its columns
    *("width", "tree", "missing", "value", "filter_columns"),  # of a look
}


def _as_recorded_before(record: Any) -> Any:
    if not isinstance(record, TableRecord):
        return to_record(record)

    def older(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: older(each) for key, each in value.items() if key not in NEWER}
        return [older(each) for each in value] if isinstance(value, list | tuple) else value

    told = older(to_record(record))
    for membership in told["details"]["memberships"]:
        del membership["generated"]  # which a column had then, and has
    return told


def test_a_lake_of_a_release_before_versions_follows_what_is_altered(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a copy where the old look can prove nothing; by what was learned since in the run after it."""
    for name in ("early", "later"):
        mirrors.database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY); INSERT INTO {name} VALUES (1), (2)", user="app"
        )
    began = mirrors.once().marks()[-1]
    ledger = Ledger(open_store(str(mirrors.path)), "main")
    with monkeypatch.context() as patch:
        patch.setattr("headrace.pipeline.state.ledger.to_record", _as_recorded_before)
        ledger.publish(Epoch("stream", ledger.frontier, records=tuple(ledger.tables.values())))
    for name, way in (("early", Way.COPIED), ("later", Way.ADDED)):
        mirrors.database.execute(f"UPDATE {name} SET id = 3 WHERE id = 1", user="app")
        mirrors.database.execute(f"ALTER TABLE {name} ADD COLUMN more int", user="app")
        mirrors.database.execute(f"UPDATE {name} SET more = id WHERE id = 3", user="app")
        lake = mirrors.once()
        altered = mirrors.record(f"public.{name}").alteration
        assert (altered and altered.way) == way
        assert validators.exact(lake, mirrors.database.url(), values=True) == []
        assert lake.at(epoch=began.epoch).arrow(name).to_pydict() == {"id": [1, 2]}
    assert validators.definite(lake) == []


@pytest.mark.spark
def test_spark_reads_files_from_before_the_column(story: Story) -> None:
    lake, spark = story.lake, story.mirrors.spark
    rows = lake.at().table(spark, "t").orderBy("id").collect()
    assert [row["more"] for row in rows] == [None, None, None, "x", None, None, None, None, "y"]
    before = lake.at(position=place_at(story.marks[0].time + 2)).table(spark, "t")
    assert before.columns == NARROW
    later = lake.at(position=place_at(story.marks[2].time + 2)).table(spark, "t")
    assert (later.columns, later.count()) == (WIDE, 8)
    one, two, three, four = (mark.epoch for mark in story.marks)
    assert lake.changes(spark, "t", after=one, until=two).count() == 5
    assert lake.changes(spark, "t", after=three, until=four).count() == 5
    assert lake.changes_arrow("t", after=three, until=four).num_rows == 5
    assert lake.changes_polars("t", after=three, until=four).collect().height == 5
    with pytest.raises(HeadraceError) as across:
        lake.changes(spark, "t", after=one, until=four)
    assert across.value.hint
