"""Each change of a table's shape, one table for each: what becomes of it, and that its contents are right.

    same      it goes on: its interval is the one that it had
    widened   it goes on in the same files, NULL in the columns that were added, with an interval of its own
    rewritten it leaves the marks, its rows are written again in the lake, and it returns with an interval
    copied    it leaves the marks, is copied as it is now, and returns with an interval of its own

All of them happen beside each other, in one database and one run. In the full run on MariaDB and older
releases, too, at a replica, which has the statements from its source's log, and where names are known in any
case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

import pyarrow as pa
import pytest

from headrace.lake.read.lake import Lake
from headrace.pipeline.state.records import TableRecord, tables_of
from headrace.pipeline.state.table_state import State
from headrace_testing import validators
from headrace_testing.mysql import Database, Server, mariadb, mysql, replica
from headrace_testing.mysql.fixtures import RELEASES
from tests.conformance.conftest import Mirror
from tests.conformance.sources import MysqlPlace

pytestmark = pytest.mark.server

BEFORE = 20  # rows of each table
MADE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, n int, s varchar(20), e enum('good','bad'), f float,"
    " p decimal(8,2), u int unsigned, x text CHARACTER SET utf8mb3, at datetime,"
    " old varchar(9) CHARACTER SET latin1)"
)
ROW = (
    "({i}, {i} * 10, 'row {i}', 'good', {i} / 3, {i} / 4, 4294967295 - {i}, 'é{i}',"
    " '2026-01-01 00:00:{i:02}', 'ü{i}')"
)

# What is done to a table, by the case's name; statements of one session, split at the semicolons.
SAME = {
    "indexed": "CREATE INDEX i ON {t} (n)",
    "comment": "ALTER TABLE {t} MODIFY n int COMMENT 'it''s a number;or not'",
    "commented": "/* why;*/ ALTER /*!50000 TABLE */ {t} -- it\n COMMENT 'x', MODIFY COLUMN `n` int DEFAULT 5",
    "counted_on": "ALTER TABLE {t} AUTO_INCREMENT = 1000, MODIFY s varchar(20) DEFAULT 'x'",
    "defaulted": "ALTER TABLE {t} ALTER COLUMN n SET DEFAULT 5",
    "not_null": "ALTER TABLE {t} MODIFY n int NOT NULL",
    "nullable": "ALTER TABLE {t} MODIFY u int unsigned NULL, MODIFY s varchar(20) NOT NULL DEFAULT ''",
    "labelled": "ALTER TABLE {t} MODIFY e enum('good','bad','new'); UPDATE {t} SET e = 'new' WHERE id = 9",
    "longer": "ALTER TABLE {t} MODIFY s varchar(300); UPDATE {t} SET s = repeat('x', 299) WHERE id = 9",
    "unbounded": "ALTER TABLE {t} MODIFY s mediumtext; UPDATE {t} SET s = repeat('x', 70000) WHERE id = 9",
    "finer": "ALTER TABLE {t} MODIFY at datetime(3); UPDATE {t} SET at = '2026-01-01 "
    "00:00:00.123' WHERE id = 9",
    "recoded": "ALTER TABLE {t} MODIFY x text CHARACTER SET utf8mb4; UPDATE {t} SET x = '𝄞' WHERE id = 9",
    "collated": "ALTER TABLE {t} MODIFY s varchar(20) COLLATE utf8mb4_bin",
    "rebuilt": "ALTER TABLE {t} FORCE, ALGORITHM = COPY, MODIFY s varchar(21)",
    "came_and_went": "ALTER TABLE {t} ADD more int; UPDATE {t} SET more = id; ALTER TABLE {t} DROP more",
    "renamed_back": "ALTER TABLE {t} RENAME COLUMN n TO m; UPDATE {t} SET m = 4 WHERE id < 5; "
    "ALTER TABLE {t} RENAME COLUMN m TO n",
    "wider_signed": "ALTER TABLE {t} MODIFY u bigint; UPDATE {t} SET u = -1 WHERE id = 5",
    "truncated": "TRUNCATE {t}",
    # What texts get by default is the table's affair, neither its database's nor the server's.
    "other_default": "ALTER TABLE {t} DEFAULT CHARACTER SET latin1; UPDATE {t} SET s = '𝄞' WHERE id = 9",
    "defaults_around": "ALTER TABLE {t} COLLATE latin1_bin; ALTER TABLE {t} MODIFY n int COMMENT 'x'; "
    "ALTER TABLE {t} CHARSET = utf8mb4; ALTER TABLE {t} MODIFY s varchar(40)",
    "database_default": "ALTER DATABASE `{d}` CHARACTER SET latin1; ALTER TABLE {t} MODIFY s varchar(40); "
    "UPDATE {t} SET s = '𝄞' WHERE id = 9; ALTER DATABASE `{d}` CHARACTER SET utf8mb4",
}
WIDENED = {
    "added": "ALTER TABLE {t} ADD COLUMN more int",
    "added_several": "UPDATE {t} SET n = 1 WHERE id = 5; ALTER TABLE {t} ADD a text, ADD b json, "
    "ADD KEY (n); ALTER TABLE {t} ADD c timestamp NULL DEFAULT NULL UNIQUE",
    "added_and_filled": "DELETE FROM {t} WHERE id = 4; ALTER TABLE {t} ADD COLUMN more varchar(9) "
    "AFTER old; UPDATE {t} SET more = 'x' WHERE id > 9",
    "added_then_default": "ALTER TABLE {t} ADD more int NULL; ALTER TABLE {t} ALTER more SET DEFAULT 7; "
    "INSERT INTO {t} (id) VALUES (100)",
    "added_and_longer": "ALTER TABLE {t} ADD COLUMN more int, MODIFY s varchar(40); ALTER TABLE {t} "
    "MODIFY e enum('good','bad','so')",
    "added_by_default": "ALTER TABLE {t} CHARSET latin1; ALTER TABLE {t} ADD a varchar(9), ADD b json, ADD c "
    "enum('é'); UPDATE {t} SET a = 'ü', b = '[1]', c = 'é' WHERE id = 9",
    "added_quoted": 'SET sql_mode = \'ANSI_QUOTES\'; ALTER TABLE "{t}" ADD "mo``r\'e" int; DELETE '
    "FROM {t} WHERE id = 3",
}
REWRITTEN = {
    "added_django": "ALTER TABLE {t} ADD COLUMN more int DEFAULT 7 NOT NULL; ALTER TABLE {t} ALTER "
    "COLUMN more DROP DEFAULT; INSERT INTO {t} (id, more) VALUES (100, 8)",
    "added_first": "ALTER TABLE {t} ADD COLUMN more int FIRST; UPDATE {t} SET more = 5 WHERE id = 5",
    "added_constants": "ALTER TABLE {t} ADD a varchar(9) NOT NULL DEFAULT 'it is', ADD b "
    "enum('x','y') NOT NULL DEFAULT 'y', ADD c decimal(9,3) DEFAULT -1.5, ADD d "
    "datetime DEFAULT '2026-05-06 07:08:09', ADD g date DEFAULT '2026-05-06', ADD "
    "h double DEFAULT 0.5, ADD k bool DEFAULT true, ADD l char(5) DEFAULT 'a  ', "
    "ADD m bigint unsigned DEFAULT 18446744073709551615; INSERT INTO {t} (id) "
    "VALUES (100)",
    "added_implicit": "ALTER TABLE {t} ADD a int NOT NULL, ADD b varchar(9) NOT NULL, ADD c "
    "decimal(9,3) NOT NULL, ADD d float NOT NULL, ADD g enum('x','y') NOT NULL, "
    "ADD h text NOT NULL, ADD k blob NOT NULL, ADD l bit(3) NOT NULL, ADD m "
    "set('x','y') NOT NULL, ADD o bit(1) NOT NULL",
    "less": "UPDATE {t} SET n = 7 WHERE id = 5; ALTER TABLE {t} DROP COLUMN n; UPDATE {t} "
    "SET s = 'x' WHERE id = 5",
    "renamed": "UPDATE {t} SET n = 7 WHERE id = 5; ALTER TABLE {t} RENAME COLUMN n TO number; "
    "UPDATE {t} SET number = 8 WHERE id = 6",
    "in_capitals": "UPDATE {t} SET n = 7 WHERE id = 5; ALTER TABLE {t} RENAME COLUMN n TO N; "
    "UPDATE {t} SET n = 8 WHERE id = 6",
    "called": "ALTER TABLE {t} CHANGE N number int NULL COMMENT 'x'; UPDATE {t} SET number = 8 WHERE id = 6",
    "renamed_key": "UPDATE {t} SET id = 50 WHERE id = 5; ALTER TABLE {t} CHANGE id number int NOT "
    "NULL; UPDATE {t} SET number = 60 WHERE number = 6; DELETE FROM {t} WHERE "
    "number = 7",
    "exchanged": "ALTER TABLE {t} RENAME COLUMN n TO u, RENAME COLUMN u TO n; UPDATE {t} SET n "
    "= 1 WHERE id < 5",
    "wider": "UPDATE {t} SET n = -2147483648 WHERE id = 5; ALTER TABLE {t} MODIFY n bigint; "
    "UPDATE {t} SET n = 9223372036854775807 WHERE id = 6",
    "wider_key": "UPDATE {t} SET id = 2147483647 WHERE id = 5; ALTER TABLE {t} MODIFY id bigint "
    "NOT NULL; UPDATE {t} SET id = 2147483648 WHERE id = 2147483647; DELETE FROM "
    "{t} WHERE id = 4",
    "wider_unsigned": "ALTER TABLE {t} MODIFY u bigint unsigned; UPDATE {t} SET u = "
    "18446744073709551615 WHERE id = 5",
    "more_digits": "ALTER TABLE {t} MODIFY p decimal(20,5); UPDATE {t} SET p = "
    "123456789012345.12345 WHERE id = 5",
    "doubled": "UPDATE {t} SET f = 0.1 WHERE id = 6; ALTER TABLE {t} MODIFY f double; UPDATE "
    "{t} SET f = 0.1 WHERE id = 5",
    "counter": "ALTER TABLE {t} MODIFY id bigint NOT NULL AUTO_INCREMENT;"
    " INSERT INTO {t} (id) VALUES (5000000001)",
    "moved": "ALTER TABLE {t} MODIFY n int AFTER s; UPDATE {t} SET n = 5 WHERE id = 5",
    "once_again": "ALTER TABLE {t} DROP COLUMN n, ADD COLUMN n int; UPDATE {t} SET n = 5 WHERE id = 5",
    "again_in_two": "ALTER TABLE {t} DROP COLUMN n; UPDATE {t} SET s = 'x' WHERE id = 5; ALTER "
    "TABLE {t} ADD COLUMN n int AFTER id; UPDATE {t} SET n = 5 WHERE id = 5",
    "chained": "ALTER TABLE {t} ADD a int; UPDATE {t} SET a = 1 WHERE id = 1; ALTER TABLE {t} "
    "RENAME COLUMN s TO t, ADD s text; UPDATE {t} SET s = t WHERE id < 9; ALTER "
    "TABLE {t} DROP COLUMN n, ADD z int NOT NULL DEFAULT 5 FIRST; INSERT INTO {t} "
    "(id, a, s) VALUES (100, 1, 's'); ALTER TABLE {t} MODIFY u bigint unsigned, "
    "RENAME COLUMN a TO n; UPDATE {t} SET n = 8 WHERE id = 100; ALTER TABLE {t} "
    "MODIFY e enum('good','bad','ugly') FIRST; UPDATE {t} SET e = 'ugly', id = 101 "
    "WHERE id = 100; DELETE FROM {t} WHERE id = 2",
    "elsewhere": "USE mysql; ALTER TABLE `{d}`.{t} DROP n; UPDATE `{d}`.{t} SET s = 'x' WHERE id = 9",
    "under_lock": "LOCK TABLES {t} WRITE; UPDATE {t} SET n = 1 WHERE id = 1; ALTER TABLE {t} "
    "DROP s; UPDATE {t} SET n = 2 WHERE id = 2; UNLOCK TABLES",
}
COPIED = {
    "computed_default": "ALTER TABLE {t} ADD COLUMN more int DEFAULT (id % 7)",
    "moment_default": "ALTER TABLE {t} ADD COLUMN more datetime DEFAULT CURRENT_TIMESTAMP",
    "stamped": "ALTER TABLE {t} ADD COLUMN more timestamp DEFAULT '2026-01-01 00:00:00'",
    "numbered": "ALTER TABLE {t} DROP PRIMARY KEY, ADD COLUMN more int AUTO_INCREMENT PRIMARY KEY",
    "counting": "UPDATE {t} SET n = 0 WHERE id = 3; ALTER TABLE {t} ADD KEY (n), MODIFY n int "
    "NOT NULL AUTO_INCREMENT",
    "stored_one": "ALTER TABLE {t} ADD COLUMN more int AS (n + 1) STORED",
    "virtual_one": "ALTER TABLE {t} ADD COLUMN more int AS (n + 1)",
    "made_zero": "UPDATE {t} SET n = NULL WHERE id = 3; SET sql_mode = ''; UPDATE {t} SET s = "
    "s; ALTER IGNORE TABLE {t} MODIFY n int NOT NULL",
    "cut_off": "SET sql_mode = ''; ALTER TABLE {t} MODIFY s varchar(3)",
    "narrow": "ALTER TABLE {t} MODIFY n smallint",
    "reordered": "ALTER TABLE {t} MODIFY e enum('bad','good')",
    "labels_gone": "ALTER TABLE {t} MODIFY e enum('good')",
    "rounded": "SET sql_mode = ''; ALTER TABLE {t} MODIFY p decimal(8,1)",
    "there_and_back": "SET sql_mode = ''; ALTER TABLE {t} MODIFY n tinyint; ALTER TABLE {t} MODIFY n int",
    "twice_defined": "ALTER TABLE {t} MODIFY n int NOT NULL; ALTER TABLE {t} MODIFY n int",
    "zoned": "ALTER TABLE {t} MODIFY at timestamp NULL",
    "fixed_width": "ALTER TABLE {t} MODIFY s char(20)",
    "recoded_other": "ALTER TABLE {t} MODIFY old varchar(9) CHARACTER SET utf8mb4",
    "default_and_more": "ALTER TABLE {t} CHARSET latin1, MODIFY s varchar(40)",
    "converted_to_default": "ALTER TABLE {t} CONVERT TO CHARACTER SET DEFAULT",
    "converted": "ALTER TABLE {t} CONVERT TO CHARACTER SET utf8mb4",
    "other_key": "ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (id, u)",
    "keyless": "ALTER TABLE {t} DROP PRIMARY KEY",
    "made_again": "DROP TABLE {t}; CREATE TABLE {t} (id int PRIMARY KEY, other text); INSERT "
    "INTO {t} VALUES (5, 'five')",
    "swapped_in": "CREATE TABLE _{t}_new LIKE {t}; ALTER TABLE _{t}_new ADD COLUMN more int; "
    "INSERT INTO _{t}_new SELECT *, id FROM {t}; RENAME TABLE {t} TO _{t}_old, "
    "_{t}_new TO {t}",
    "unlogged": "SET sql_log_bin = 0; ALTER TABLE {t} ADD COLUMN more int; SET sql_log_bin = "
    "1; ALTER TABLE {t} RENAME COLUMN n TO number",
}
CASES = {**SAME, **WIDENED, **REWRITTEN, **COPIED}
KEYS = {"renamed_key": "number", "numbered": "more"}  # as they are called in the end


@dataclass(frozen=True)
class Place:
    """Databases where statements run and where the mirror reads; the two differ only with a replica."""

    writes: Database
    reads: Database
    arrive: Callable[[], None] = lambda: None  # wait until all that was done can be read
    capitals: bool = False  # names are typed in another case than the server keeps them in
    unheard: Set[str] = frozenset()  # cases of which no statement that needs a copy arrives

    def typed(self, case: str) -> str:
        return case.title() if self.capitals else case


@contextmanager
def _server(server: Server) -> Iterator[Place]:
    with server.database() as made:
        yield Place(made, made)


@contextmanager
def _replica(server: Server) -> Iterator[Place]:
    with replica(server) as other, server.database() as made:
        yield Place(made, Database(other.server, made.name), other.catch_up, unheard={"unlogged"})


@contextmanager
def _any_case(server: Server) -> Iterator[Place]:
    opened = mariadb if server.flavour.is_mariadb else mysql
    with opened({"lower_case_table_names": 1}) as other, other.database("Evolved") as made:
        yield Place(made, Database(other, "evolved"), capitals=True)


WAYS = {"": _server, "replica": _replica, "any case": _any_case}
EVERY_DAY = ("mysql", "")
PLACES = [*product(("mysql", "mariadb"), WAYS), *product(RELEASES, [""])]


@dataclass
class Scene:
    """The lake before anything changed, and the outcome of the changes."""

    mirror: Mirror
    database: Database
    epoch: int
    before: Mapping[str, pa.Table]
    since: Mapping[str, int | None]
    records: Mapping[str, TableRecord]
    files: tuple[Mapping[str, list[str]], Mapping[str, list[str]]]  # of WIDENED, before and after

    @property
    def lake(self) -> Lake:
        return self.mirror.lake

    def name(self, case: str) -> str:
        return f"{self.database.name}.{case}"

    @property
    def time(self) -> int:
        """The time of the last mark under the old columns."""
        return self.lake.at(epoch=self.epoch).mark.time


def _records(mirror: Mirror) -> dict[str, TableRecord]:
    return {name.name: record for name, record in tables_of(mirror.lake.catalog()).items()}


def _run(database: Database, *statements: str) -> None:
    """Statements of one session that is the DBA's: each commits by itself."""
    with database.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def _make(place: Place) -> None:
    rows = ", ".join(ROW.format(i=i) for i in range(1, BEFORE + 1))
    for name in [*_cases(place.writes), "sound"]:
        made = MADE.replace("PRIMARY", "AUTO_INCREMENT PRIMARY") if name == "counter" else MADE
        _run(place.writes, made.format(t=place.typed(name)), f"INSERT INTO {name} VALUES {rows}")


def _cases(database: Database) -> dict[str, str]:
    """Spell the cases for this server; one that it does not know has the statement of another.

    MySQL has no ALTER IGNORE, and 8.0.15 refuses computed defaults. MariaDB 11.8 logs no generated columns.
    """
    server, spelled = database.server, dict(CASES)
    if not server.flavour.is_mariadb:
        spelled["made_zero"] = spelled["made_zero"].replace("IGNORE ", "")
    if server.version.startswith("8."):
        spelled["computed_default"] = spelled["moment_default"]
    if server.version.startswith("11.8"):
        spelled["stored_one"] = spelled["virtual_one"] = spelled["moment_default"]
        spelled["added_by_default"] = spelled["added"]  # it is copied there
    return spelled


def _change(database: Database, number: int, keys: Mapping[str, str]) -> None:
    """Changes of rows of each table, whatever its columns are by now."""
    statements: list[str] = []
    for name in sorted([*_cases(database), "sound"]):
        column = keys.get(name, "id")
        statements.append(f"DELETE FROM {name} WHERE {column} = {number}")
        statements.append(f"UPDATE {name} SET {column} = {column} + 1000 WHERE {column} % 7 = {number}")
    _run(database, *statements)


def _files(mirror: Mirror, database: Database) -> dict[str, list[str]]:
    cut = mirror.lake.at()
    return {case: cut.files(f"{database.name}.{case}") for case in WIDENED}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(each, id=" ".join(each).strip(), marks=[] if each == EVERY_DAY else pytest.mark.full)
        for each in PLACES
    ],
)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    kind, way = request.param
    with WAYS[way](request.getfixturevalue(f"{kind}_server")) as found:
        yield found


@pytest.fixture(scope="module")
def scene(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    database = place.reads
    mirror = Mirror(MysqlPlace(database), tmp_path_factory.mktemp("evolve") / "lake")
    chosen = [*mirror.patterns, f"!{database.name}.\\_*"]

    def once() -> Lake:
        place.arrive()
        return mirror.once(tables=chosen)

    _make(place)
    once()
    _change(place.writes, 1, {})
    mark = once().marks()[-1]
    before = {name: mirror.lake.at().arrow(name) for name in mark.versions}
    since = {name: record.since for name, record in _records(mirror).items()}
    files = _files(mirror, database)
    for case, statements in _cases(place.writes).items():
        apart = statements.format(t=place.typed(case), d=place.writes.name).split("; ")
        _run(place.writes, *(statement for statement in apart))
    once()
    widened = files, _files(mirror, database)
    _change(place.writes, 2, KEYS)
    once()
    return Scene(mirror, database, mark.epoch, before, since, _records(mirror), widened)


def test_every_table_equals_its_source(scene: Scene) -> None:
    assert set(scene.lake.at().mark.versions) == {scene.name(case) for case in (*CASES, "sound")}
    assert validators.exact(scene.lake, scene.database.url(), values=True) == []
    told = [scene.name(case) for case in (*SAME, *WIDENED, *REWRITTEN, "sound")]
    assert validators.consistent(scene.lake, tables=told, sample=2) == []


def test_other_tables_are_in_every_mark(scene: Scene) -> None:
    for mark in scene.lake.marks():
        if mark.epoch >= scene.epoch:
            assert {scene.name(case) for case in ("sound", *SAME, *WIDENED)} <= set(mark.versions)


def test_as_many_tables_are_copied_as_have_to_be(scene: Scene, place: Place) -> None:
    """An interval that is made of the lake's own rows begins where the last one ended."""
    found: dict[str, set[str]] = {"same": set(), "followed": set(), "copied": set()}
    for case, record in scene.records.items():
        assert record.state is State.LIVE, (case, record.error)
        followed = record.since == scene.time + 1
        kind = "same" if record.since == scene.since[case] else "followed" if followed else "copied"
        found[kind].add(case)
    assert found["same"] == {*SAME, "sound"}
    assert found["followed"] == {*WIDENED, *REWRITTEN, *place.unheard}
    assert found["copied"] == {*COPIED} - place.unheard


@pytest.mark.parametrize("case", CASES)
def test_the_marks_from_before_show_what_was_there(scene: Scene, case: str) -> None:
    cut = scene.lake.at(epoch=scene.epoch)
    assert cut.arrow(scene.name(case)) == scene.before[scene.name(case)]


def test_a_column_is_added_without_a_file_being_written(scene: Scene) -> None:
    """The run changed no row of `added`; the other tables have files for their changes."""
    before, after = scene.files
    assert after["added"] == before["added"]
