"""Each change of a table's shape, one table for each: what becomes of it, and that its contents are right.

    same      it goes on: its interval is the one that it had
    widened   it goes on in the same files, NULL in the columns that were added, with an interval of its own
    rewritten it leaves the marks, its rows are written again in the lake, and it returns with an interval
    copied    it leaves the marks, is copied as it is now, and returns with an interval of its own
    stopped   it is gone, or not fit any more: older marks keep it, and its error says the way back

All of them happen beside each other, in one database and one run; the other tables are in every mark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pytest

from headrace.core.errors import HeadraceError
from headrace.lake.read.lake import Lake
from headrace.pipeline.state.records import TableRecord, tables_of
from headrace.pipeline.state.table_state import State
from headrace.status.picture import pictures
from headrace_testing import validators
from headrace_testing.postgres import Database, Server
from tests import without_spark
from tests.integration.pipeline.conftest import Mirrors
from tests.places import place_at

pytestmark = pytest.mark.server

# What is done to a table `{t} (id int PRIMARY KEY, n int, s varchar(20), e mood)`, by the case's name.
SAME = {
    "index": "CREATE INDEX ON {t} (n)",
    "checked": "ALTER TABLE {t} ADD CHECK (n < 1000000)",
    "comment": "COMMENT ON COLUMN {t}.n IS 'a number'",
    "defaulted": "ALTER TABLE {t} ALTER COLUMN n SET DEFAULT 5",
    "not_null": "ALTER TABLE {t} ALTER COLUMN n SET NOT NULL",
    "nullable_again": "ALTER TABLE {t} ALTER n SET NOT NULL; ALTER TABLE {t} ALTER n DROP NOT NULL",
    "made_unique": "ALTER TABLE {t} ADD UNIQUE (n)",
    "unique_for_a_while": "ALTER TABLE {t} ADD CONSTRAINT {t}_n UNIQUE (n);"
    " ALTER TABLE {t} DROP CONSTRAINT {t}_n",
    "statistics": "ALTER TABLE {t} ALTER COLUMN n SET STATISTICS 50",
    "label": "ALTER TYPE mood ADD VALUE 'new of {t}'",
    "longer": "ALTER TABLE {t} ALTER COLUMN s TYPE varchar(50)",
    "unbounded": "ALTER TABLE {t} ALTER COLUMN s TYPE text",
    "vacuumed": "VACUUM FULL {t}",
    "clustered": "CLUSTER {t} USING {t}_pkey",
    "truncated": "TRUNCATE {t}",
    "finer": "ALTER TABLE {t} ALTER COLUMN at TYPE timestamp(6)",
    "owned": "ALTER TABLE {t} OWNER TO pg_database_owner",
    "policed": "ALTER TABLE {t} ENABLE ROW LEVEL SECURITY",
    "virtual": "ALTER TABLE {t} ADD COLUMN more int GENERATED ALWAYS AS (n * 2) VIRTUAL",
    "virtual_gone": "ALTER TABLE {t} DROP COLUMN more",
}
WIDENED = {
    "added": "ALTER TABLE {t} ADD COLUMN more int",
    "added_several": "UPDATE {t} SET n = 1 WHERE id = 5;"
    " ALTER TABLE {t} ADD COLUMN a text, ADD COLUMN b mood; ALTER TABLE {t} ADD COLUMN c int[]",
    "added_and_filled": "DELETE FROM {t} WHERE id = 4; ALTER TABLE {t} ADD COLUMN more text;"
    " UPDATE {t} SET more = 'x' WHERE id > 9",
    "added_under_our_name": 'ALTER TABLE {t} ADD COLUMN "_time" text;'
    ' UPDATE {t} SET "_time" = 9 WHERE id = 9',
    "added_as_text": "ALTER TABLE {t} ADD COLUMN more point; UPDATE {t} SET more = '(1,2)' WHERE id = 9",
    "added_then_default": "ALTER TABLE {t} ADD COLUMN more int; ALTER TABLE {t} ALTER more SET DEFAULT 7;"
    " INSERT INTO {t} VALUES (100, 1)",
    "added_with_types": "CREATE TYPE {t}_e AS ENUM ('a', 'b'); CREATE TYPE {t}_c AS (x int, y {t}_e);"
    " ALTER TABLE {t} ADD COLUMN more {t}_c[]; UPDATE {t} SET more = '{{\"(1,a)\"}}' WHERE id = 9",
    "added_within": "BEGIN; UPDATE {t} SET n = 0 WHERE id > 9; ALTER TABLE {t} ADD COLUMN more int;"
    " UPDATE {t} SET more = id WHERE id < 12; INSERT INTO {t} VALUES (100, 1, 's', 'bad', 5); COMMIT",
    "added_whole": "UPDATE {t} SET id = 200 WHERE id = 5; ALTER TABLE {t} ADD COLUMN more int;"
    " DELETE FROM {t} WHERE id > 15",
    "added_taken_back": "BEGIN; ALTER TABLE {t} ADD COLUMN even text; SAVEPOINT s;"
    " ALTER TABLE {t} ADD COLUMN never int; INSERT INTO {t} VALUES (100, 1, 's', 'bad', 'e', 1);"
    " ROLLBACK TO s; INSERT INTO {t} VALUES (101, 1, 's', 'bad', 'e'); COMMIT",
}
REWRITTEN = {
    "added_constant": "ALTER TABLE {t} ADD COLUMN more text NOT NULL DEFAULT 'x'",
    "added_default_gone": "ALTER TABLE {t} ADD COLUMN more int DEFAULT 5;"
    " ALTER TABLE {t} ALTER more DROP DEFAULT",
    "added_constants": "ALTER TABLE {t} ADD COLUMN a int[] DEFAULT '{{1,NULL}}',"
    " ADD COLUMN b mood DEFAULT 'bad';"
    " INSERT INTO {t} (id) VALUES (100);"
    " ALTER TABLE {t} ADD COLUMN c timestamptz DEFAULT '2026-01-01 00:00+02'",
    "added_constant_within": "UPDATE {t} SET n = 3 WHERE id < 3; BEGIN; DELETE FROM {t} WHERE id = 7;"
    " UPDATE {t} SET n = 0 WHERE id > 15; ALTER TABLE {t} ADD COLUMN more numeric(10, 2) DEFAULT 7.5;"
    " UPDATE {t} SET more = id WHERE id < 12; INSERT INTO {t} (id, n) VALUES (100, 1); COMMIT;"
    " UPDATE {t} SET s = 'later' WHERE id = 100",
    "dropped_column": "UPDATE {t} SET n = 7 WHERE id = 5; ALTER TABLE {t} DROP COLUMN n;"
    " UPDATE {t} SET s = 'x' WHERE id = 5",
    "added_ancient": "ALTER TABLE {t} ADD COLUMN a date DEFAULT '4713-01-01 BC',"
    " ADD COLUMN b timestamptz DEFAULT '20000-01-01'",
    "dropped_all": "ALTER TABLE {t} DROP COLUMN n, DROP COLUMN s, DROP COLUMN e;"
    " DELETE FROM {t} WHERE id = 5",
    "renamed_column": "UPDATE {t} SET n = 7 WHERE id = 5; ALTER TABLE {t} RENAME COLUMN n TO number;"
    " UPDATE {t} SET number = 8 WHERE id = 6",
    "renamed_key": "UPDATE {t} SET id = 50 WHERE id = 5; ALTER TABLE {t} RENAME COLUMN id TO number;"
    " UPDATE {t} SET number = 60 WHERE number = 6; DELETE FROM {t} WHERE number = 7",
    "renamed_and_added": "ALTER TABLE {t} RENAME COLUMN s TO t;"
    " ALTER TABLE {t} ADD COLUMN s text DEFAULT 'new'",
    "renamed_to_our_name": 'ALTER TABLE {t} RENAME COLUMN s TO "_diff";'
    ' UPDATE {t} SET "_diff" = 7 WHERE id = 9',
    "swapped": "ALTER TABLE {t} RENAME COLUMN n TO x; ALTER TABLE {t} RENAME COLUMN id TO n;"
    " ALTER TABLE {t} RENAME COLUMN x TO id",
    # In the lake both are text.
    "swapped_alike": "ALTER TABLE {t} RENAME COLUMN s TO x; ALTER TABLE {t} RENAME COLUMN e TO s;"
    " ALTER TABLE {t} RENAME COLUMN x TO e; UPDATE {t} SET e = 'x' WHERE id = 9",
    "dropped_within": "BEGIN; UPDATE {t} SET n = 9 WHERE id = 9; ALTER TABLE {t} DROP COLUMN s;"
    " DELETE FROM {t} WHERE id = 8; INSERT INTO {t} VALUES (100, 5, 'bad'); COMMIT",
}
COPIED = {
    "added_boxes": "ALTER TABLE {t} ADD COLUMN more box DEFAULT '(1,1),(0,0)'",
    "added_twice": "ALTER TABLE {t} ADD COLUMN more int; UPDATE {t} SET more = 5 WHERE id > 9;"
    " ALTER TABLE {t} DROP COLUMN more; ALTER TABLE {t} ADD COLUMN more int",
    "added_and_moved": "ALTER TABLE {t} ADD COLUMN more int; VACUUM FULL {t}",
    "added_and_gone": "ALTER TABLE {t} ADD COLUMN more int; ALTER TABLE {t} DROP COLUMN s",
    "added_volatile": "ALTER TABLE {t} ADD COLUMN more uuid DEFAULT gen_random_uuid()",
    "added_identity": "ALTER TABLE {t} ADD COLUMN more int GENERATED ALWAYS AS IDENTITY",
    "added_for_a_while": "ALTER TABLE {t} ADD COLUMN more int;"
    " INSERT INTO {t} VALUES (100, 1, 's', 'bad', 7); ALTER TABLE {t} DROP COLUMN more",
    # Rows of the stream are as their types printed them then.
    "added_and_wider": "CREATE TYPE {t}_c AS (x int); ALTER TABLE {t} ADD COLUMN more {t}_c;"
    " UPDATE {t} SET more = '(1)' WHERE id = 9; ALTER TYPE {t}_c ADD ATTRIBUTE y int",
    "added_and_swapped": "CREATE TYPE {t}_e AS ENUM ('a', 'b'); ALTER TABLE {t} ADD COLUMN more {t}_e;"
    " UPDATE {t} SET more = 'a' WHERE id = 9; ALTER TYPE {t}_e RENAME VALUE 'a' TO 'c';"
    " ALTER TYPE {t}_e RENAME VALUE 'b' TO 'a'; ALTER TYPE {t}_e RENAME VALUE 'c' TO 'b'",
    "padded": "ALTER TABLE {t} ALTER COLUMN s TYPE char(20)",
    "shorter": "ALTER TABLE {t} ALTER COLUMN s TYPE varchar(9)",
    "added_serial": "ALTER TABLE {t} ADD COLUMN more serial",
    "added_stored": "ALTER TABLE {t} ADD COLUMN more int GENERATED ALWAYS AS (n * 2) STORED",
    "domain": "CREATE DOMAIN {t}_d AS int; ALTER TABLE {t} ALTER COLUMN n TYPE {t}_d",
    "again": "ALTER TABLE {t} DROP COLUMN n; ALTER TABLE {t} ADD COLUMN n int",
    "widened": "ALTER TABLE {t} ALTER COLUMN n TYPE bigint",
    "negated": "ALTER TABLE {t} ALTER COLUMN n TYPE bigint USING -n",
    "key": "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey; ALTER TABLE {t} ADD PRIMARY KEY (n, id)",
    "key_again": "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey; INSERT INTO {t} VALUES (100, 1);"
    " ALTER TABLE {t} ADD PRIMARY KEY (id)",
    "identity": "ALTER TABLE {t} REPLICA IDENTITY FULL",
    "made_again": "DROP TABLE {t}; CREATE TABLE {t} (id int PRIMARY KEY, other text);"
    " INSERT INTO {t} VALUES (5, 'five')",
    "several": "ALTER TABLE {t} ADD COLUMN a int; ALTER TABLE {t} DROP COLUMN s;"
    " ALTER TABLE {t} RENAME COLUMN a TO s; ALTER TABLE {t} ADD COLUMN z text DEFAULT 'z'",
}
STOPPED = {
    "gone": "DROP TABLE {t}",
    "moved": "ALTER TABLE {t} RENAME TO moved_away",
    "moved_schema": "CREATE SCHEMA elsewhere; ALTER TABLE {t} SET SCHEMA elsewhere",
    "alike": 'ALTER TABLE {t} RENAME COLUMN s TO "N"',
    "added_alike": 'ALTER TABLE {t} ADD COLUMN "ID" int',
    "columnless": "ALTER TABLE {t} DROP COLUMN id, DROP COLUMN n, DROP COLUMN s, DROP COLUMN e",
    "keyless": "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey",
}
UNFIT = {
    "alike": "PG_COLUMNS_ALIKE",
    "added_alike": "PG_COLUMNS_ALIKE",
    "columnless": "PG_COLUMNS_NONE",
    "keyless": "PG_IDENTITY_MISSING",
}
CASES = {**SAME, **WIDENED, **REWRITTEN, **COPIED, **STOPPED}


KEYS = {"swapped": "n", "renamed_key": "number"}  # as they are called in the end
FURTHER = {
    "finer": "at timestamp(3) DEFAULT now()",
    "virtual_gone": "more int GENERATED ALWAYS AS (n * 2) VIRTUAL",
}  # columns that only this one has
BEFORE = 20  # rows of each table


@dataclass
class Scene:
    """The lake before anything changed, and the outcome of the changes."""

    mirrors: Mirrors
    epoch: int
    before: Mapping[str, pa.Table]
    since: Mapping[str, int | None]
    records: Mapping[str, TableRecord]
    files: tuple[Mapping[str, list[str]], Mapping[str, list[str]]]  # of WIDENED, before and after

    @property
    def lake(self) -> Lake:
        return self.mirrors.lake

    def name(self, case: str) -> str:
        return f"public.{case}"

    def having(self, case: str) -> list[int]:
        """The epochs of the marks that have the table."""
        return [mark.epoch for mark in self.lake.marks() if self.name(case) in mark.versions]


def _records(mirrors: Mirrors) -> dict[str, TableRecord]:
    return {name.name: record for name, record in tables_of(mirrors.lake.catalog()).items()}


def _make(database: Database) -> None:
    rows = f"SELECT i, i * 10, 'row ' || i, 'good' FROM generate_series(1, {BEFORE}) i"
    statements = ["CREATE TYPE mood AS ENUM ('good', 'bad')"]
    for name in [*CASES, "sound"]:
        statements.append(f"CREATE TABLE {name} (id int PRIMARY KEY, n int, s varchar(20), e mood)")
        if name in FURTHER:
            statements.append(f"ALTER TABLE {name} ADD COLUMN {FURTHER[name]}")
        statements.append(f"INSERT INTO {name} {rows}")
    _run(database, *statements, "ALTER TABLE added_whole REPLICA IDENTITY FULL")


def _run(database: Database, *statements: str) -> None:
    """Statements of one session, each a transaction of its own."""
    with database.connect(user="app") as connection:
        for statement in statements:
            connection.execute(statement.encode())


def _change(database: Database, number: int, keys: Mapping[str, str]) -> None:
    """Changes of rows of each table, whatever its columns are by now."""
    there = {
        name for (name,) in database.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    }
    statements: list[str] = []
    for name in sorted(there & {*CASES, "sound"} - {"columnless"}):
        column = keys.get(name, "id")
        statements.append(f"DELETE FROM {name} WHERE {column} = {number}")
        statements.append(f"UPDATE {name} SET {column} = {column} WHERE {column} % 7 = {number}")
    _run(database, *statements)


def _files(mirrors: Mirrors) -> dict[str, list[str]]:
    cut = mirrors.lake.at()
    return {name: cut.files(name, with_deleted=True) for name in map("public.{}".format, WIDENED)}


@pytest.fixture(scope="module")
def scene(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with pytest.MonkeyPatch.context() as patch, postgres_server.database() as database:
        without_spark.jobs_in_process(patch)
        mirrors = Mirrors(database, tmp_path_factory.mktemp("evolve") / "lake", None)
        _make(mirrors.database)
        mirrors.once()
        _change(mirrors.database, 1, {})
        mark = mirrors.once().marks()[-1]
        before = {name: mirrors.lake.at().arrow(name) for name in mark.versions}
        since = {name: record.since for name, record in _records(mirrors).items()}
        files = _files(mirrors)
        for case, statements in CASES.items():
            each = [statements] if "BEGIN" in statements else statements.split("; ")
            _run(mirrors.database, *(statement.format(t=case) for statement in each))
        with pytest.raises(HeadraceError) as stopped:
            mirrors.once()
        assert stopped.value.code in ("TABLE_CHANGED", "TABLE_ALTERED")
        widened = files, _files(mirrors)
        _change(mirrors.database, 2, KEYS)
        with pytest.raises(HeadraceError):
            mirrors.once()
        yield Scene(mirrors, mark.epoch, before, since, _records(mirrors), widened)


def test_every_table_that_can_be_followed_equals_its_source(scene: Scene) -> None:
    followed = {scene.name(case) for case in (*SAME, *WIDENED, *REWRITTEN, *COPIED, "sound")}
    assert set(scene.lake.at().mark.versions) == followed
    assert validators.exact(scene.lake, scene.mirrors.database.url(), values=True) == []
    # The validators see by the names that an interval ends; `swapped` has the same ones.
    told = [scene.name(case) for case in (*SAME, *WIDENED, *REWRITTEN, "sound") if case != "swapped"]
    assert validators.consistent(scene.lake, tables=told, sample=2) == []


def test_other_tables_are_in_every_mark(scene: Scene) -> None:
    epochs = [mark.epoch for mark in scene.lake.marks() if mark.epoch >= scene.epoch]
    for case in ("sound", *SAME, *WIDENED):
        assert set(epochs) <= set(scene.having(case))


@pytest.mark.parametrize("case", CASES)
def test_the_marks_from_before_show_what_was_there(scene: Scene, case: str) -> None:
    cut = scene.lake.at(epoch=scene.epoch)
    assert cut.arrow(scene.name(case)) == scene.before[scene.name(case)]


@pytest.mark.parametrize("case", SAME)
def test_what_means_nothing_to_rows_leaves_the_interval_as_it_was(scene: Scene, case: str) -> None:
    assert (scene.records[case].state, scene.records[case].since) == (State.LIVE, scene.since[case])


@pytest.mark.parametrize("case", WIDENED)
def test_a_column_that_is_null_in_old_rows_is_added_without_a_copy(scene: Scene, case: str) -> None:
    record, before = scene.records[case], scene.before[scene.name(case)]
    assert (record.state, record.error, record.late) == (State.LIVE, None, False)
    assert record.schema.earlier[0].names == tuple(before.column_names)
    assert record.since == scene.lake.at(epoch=scene.epoch).mark.time + 1


def test_a_column_is_added_without_a_file_being_written(scene: Scene) -> None:
    """The run changed no row of `added`; the other tables have files for their changes."""
    before, after = scene.files
    assert after[scene.name("added")] == before[scene.name("added")]


@pytest.mark.parametrize("case", REWRITTEN)
def test_rows_that_become_others_by_themselves_are_made_of_those_in_the_lake(scene: Scene, case: str) -> None:
    """Its interval goes on where the one before ended: a copy of the source begins after the DDL."""
    record = scene.records[case]
    assert (record.state, record.error, record.old_rows) == (State.LIVE, None, None)
    assert record.since == scene.lake.at(epoch=scene.epoch).mark.time + 1
    assert scene.lake.at().arrow(scene.name(case)).column_names == list(record.schema.names)


@pytest.mark.parametrize("case", COPIED)
def test_another_shape_begins_an_interval_of_its_own(scene: Scene, case: str) -> None:
    record = scene.records[case]
    assert (record.state, record.error) == (State.LIVE, None)
    assert record.since is not None
    assert record.since > scene.lake.at(epoch=scene.epoch).mark.time
    now = scene.lake.at(position=place_at(record.since)).arrow(scene.name(case))
    assert sorted(now.column_names) == sorted(record.schema.names)


@pytest.mark.parametrize("case", STOPPED)
def test_a_table_that_is_gone_or_unfit_says_the_way_back(scene: Scene, case: str) -> None:
    record = scene.records[case]
    assert record.state is State.STOPPED
    assert record.error is not None
    assert record.error.hint
    last = scene.lake.at(epoch=max(scene.having(case))).mark
    assert last.time == scene.lake.at(epoch=scene.epoch).mark.time


@pytest.mark.parametrize("case", STOPPED)
def test_the_status_of_such_a_table_says_why_it_cannot_be_taken_up_now(scene: Scene, case: str) -> None:
    [source] = pictures(str(scene.mirrors.path))
    shown, record = source.tables[scene.name(case)], scene.records[case]
    assert shown.error is not None
    assert record.error is not None
    assert shown.error["code"] == UNFIT.get(case, "RESYNC_TABLE_GONE")
    assert record.error.code in str(shown.error["detail"])
