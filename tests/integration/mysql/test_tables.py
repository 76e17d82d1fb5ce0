"""The contract's tables over real servers: what is captured and noticed, and that no DDL slips through."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from headrace.core.names import TableName
from headrace.core.position import STEP
from headrace.core.transaction_id import TransactionId
from headrace.sources.contract.values import SchemaCheck, TableDef
from headrace.sources.mysql.mirror import MysqlMirror
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.statements import query
from headrace.sources.mysql.upstream import MysqlUpstream, plan
from headrace_testing.mysql import Database
from headrace_testing.postmaster import wait_for
from tests.bound import mysql_mirror

pytestmark = pytest.mark.server

UPSTREAM = MysqlUpstream(base=1 << 33)
ENOUGH = 8  # ends that differ
AHEAD = 50  # changes between two of them


@dataclass(frozen=True, slots=True)
class Scene:
    """A database with two tables, and the tables of a mirror of them."""

    db: Database
    tables: MysqlMirror

    def name(self, table: str) -> TableName:
        return TableName(self.db.name, table)

    def known(self, *names: str) -> dict[str, TableDef]:
        found = self.tables.examine([self.name(each) for each in names])
        assert not found.errors
        return {name: found.defs[self.name(name)] for name in names}

    def execute(self, *statements: str) -> None:
        with self.db.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


@pytest.fixture(params=["mysql", "mariadb"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    db: Database = request.getfixturevalue(f"{request.param}_database")
    db.execute("CREATE TABLE a (id int PRIMARY KEY, v varchar(10), w int NOT NULL, UNIQUE (w))")
    db.execute("CREATE TABLE b (id int PRIMARY KEY)")
    with connect(MysqlAddress.parse(db.url(user="mirror")), role="test") as session:
        yield Scene(db, mysql_mirror(session, UPSTREAM))


def test_tables_are_captured_by_being_there(scene: Scene) -> None:
    scene.execute(
        "CREATE TABLE child (id int PRIMARY KEY, FOREIGN KEY (id) REFERENCES a (id) ON DELETE CASCADE)",
        "CREATE TABLE m (id int) ENGINE = MyISAM",
    )
    asked = [scene.name(each) for each in ("a", "m", "gone")]
    found = scene.tables.examine(asked)
    assert found.fit == [scene.name("a")]
    assert {str(name): error.code for name, error in found.errors.items()} == {
        str(scene.name("m")): "MY_NOT_STREAMED"
    }
    assert found.defs[scene.name("a")].schema.transaction is TransactionId.GTID
    assert scene.tables.captures is None
    assert scene.tables.find_unmirrored([f"{scene.db.name}.b", f"{scene.db.name}.a"], [scene.name("a")]) == {
        scene.name("b"): None
    }


def test_an_unfit_table_is_there_with_its_error(scene: Scene) -> None:
    """Whoever asks for a new copy of it hears why not, and not that it was gone."""
    if not scene.db.server.flavour.is_mariadb:
        scene.execute("CREATE TABLE v (id int PRIMARY KEY, t timestamp, u time AS (time(t)) VIRTUAL)")
        unfit, code = "v", "MY_COLUMN_VOLATILE"
    else:
        scene.execute(
            "CREATE TABLE c (id int PRIMARY KEY, FOREIGN KEY (id) REFERENCES a (id) ON DELETE CASCADE)"
        )
        unfit, code = "c", "MY_CASCADES_UNLOGGED"
        accepting = mysql_mirror(scene.tables.session, plan({"unlogged_cascades": "accept"}))
        assert accepting.examine([scene.name("c")]).fit == [scene.name("c")]
    found = scene.tables.examine([scene.name(unfit)])
    assert found.errors[scene.name(unfit)].code == code
    assert scene.name(unfit) in found.defs


CHANGES = [
    ("ALTER TABLE {t} ADD x int", 'column "x" was added'),
    ("ALTER TABLE {t} DROP v", 'column "v" was dropped'),
    ("ALTER TABLE {t} RENAME COLUMN v TO z", 'column "v" was dropped or renamed'),
    ("ALTER TABLE {t} MODIFY v varchar(20)", "varchar(10) to varchar(20)"),
    ("ALTER TABLE {t} MODIFY v varchar(10) AFTER w", "was altered"),
    ("ALTER TABLE {t} DROP PRIMARY KEY", "the key that its rows are known by is gone"),
    ("ALTER TABLE {t} ENGINE = MyISAM", "its engine changed"),
    ("DROP TABLE {t}", "it was dropped"),
    ("RENAME TABLE {t} TO {t}_z", "it was dropped or renamed"),
    ("RENAME TABLE {t} TO {t}_z, b TO {t}", "was dropped or renamed"),
]
NEWS = ["ALTER TABLE {t} ADD UNIQUE u (id, w)", "ALTER TABLE {t} DROP INDEX w"]
NOTHING = [
    "ALTER TABLE {t} ADD INDEX i (v)",
    "ALTER TABLE {t} COMMENT = 'x', AUTO_INCREMENT = 7",
    "ALTER TABLE {t} RENAME INDEX w TO u",
    "TRUNCATE {t}",
    "ALTER TABLE {t} ENGINE = InnoDB",
]


def test_what_matters_to_rows_is_a_change_and_nothing_else(scene: Scene) -> None:
    """Kept out of the log, so that nothing but this look could notice it."""
    cases = {f"t{at}": case for at, case in enumerate([*(each for each, _ in CHANGES), *NEWS, *NOTHING])}
    with scene.db.server.connect(scene.db.name) as quiet, quiet.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        for table in cases:
            cursor.execute(f"CREATE TABLE {table} LIKE a")
        known = scene.known(*cases)
        before = scene.tables.check(known)
        assert not before.changes.keys() | before.news.keys() | before.locked_tables
        for table, statement in cases.items():
            cursor.execute(statement.format(t=table))
    found = scene.tables.check(known)
    assert found.end == before.end
    assert found.upstream_error is None
    assert not found.locked_tables
    expected = [what for _, what in CHANGES]
    assert list(found.changes) == list(cases)[: len(expected)]
    for what, change in zip(expected, found.changes.values(), strict=True):
        assert what in change.what
    gone = [table for table, change in found.changes.items() if change.now is None]
    assert gone == ["t7", "t8"]
    assert all(change.now is None or change.now.name == scene.name(t) for t, change in found.changes.items())
    assert list(found.news) == list(cases)[len(expected) : len(expected) + len(NEWS)]
    for table, news in found.news.items():
        assert (news.schema, news.number) == (known[table].schema, known[table].number)
    assert not scene.tables.check(found.news).news


def columns(found: SchemaCheck, known: TableDef) -> int | None:
    """Number of columns that the table has by now; None if the table is gone."""
    change = found.changes.get("a")
    if change is None:
        return len(known.schema.columns)
    return None if change.now is None else len(change.now.schema.columns)


def test_no_ddl_lies_before_the_end_and_is_not_seen(scene: Scene) -> None:
    """The only DDL of the server adds a column with each step: so many as lie before the end are seen."""
    known = scene.known("a")
    begun = scene.tables.check(known).end.time
    seen = _watched(scene, known, lambda number: [f"ALTER TABLE a ADD x{number} int, ALGORITHM = INPLACE"])
    for end, there in seen:
        assert there is not None
        assert there - 3 >= (end - begun) // STEP


def test_no_table_that_was_made_again_before_the_end_is_not_seen(scene: Scene) -> None:
    known = scene.known("a")
    begun = scene.tables.check(known).end.time

    def renewal(number: int) -> list[str]:
        more = "".join(f", x{each} int" for each in range(number))
        return ["DROP TABLE a", f"CREATE TABLE a (id int PRIMARY KEY, v int, w int{more})"]

    for end, there in _watched(scene, known, renewal):
        # The n-th CREATE is the 2n-th DDL.
        assert there is None or there - 3 >= (end - begun) // STEP // 2


def _watched(
    scene: Scene, known: dict[str, TableDef], ddl: Callable[[int], list[str]]
) -> list[tuple[int, int | None]]:
    """The ends of looks with what was seen, while somebody changes the table: until enough differ.

    A table has room for some 1,000 columns: no more changes than `AHEAD` lie between two ends.
    """
    stop, permits = threading.Event(), threading.Semaphore(AHEAD)

    def change() -> None:
        with scene.db.connect() as connection, connection.cursor() as cursor:
            for number in itertools.count(1):
                permits.acquire()
                if stop.is_set():
                    return
                for statement in ddl(number):
                    cursor.execute(statement)

    thread = threading.Thread(target=change)
    thread.start()
    seen: list[tuple[int, int | None]] = []
    ends = set[int]()

    def enough() -> bool:
        found = scene.tables.check(known)
        if not found.locked_tables:
            seen.append((found.end.time, columns(found, known["a"])))
            if found.end.time not in ends:
                ends.add(found.end.time)
                permits.release(AHEAD)
        return len(ends) >= ENOUGH

    try:
        wait_for(enough, f"{ENOUGH} ends that differ")
    finally:
        stop.set()
        permits.release()
        thread.join()
    return seen


def test_a_table_that_the_server_does_not_show_sits_out_alone(scene: Scene) -> None:
    scene.execute("CREATE TABLE held (id int PRIMARY KEY)")
    known = scene.known("a", "b", "held")
    with (
        scene.db.connect() as writer,
        scene.db.connect() as renamer,
        writer.cursor() as cursor,
    ):
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO held VALUES (1)")
        # It holds the first for itself alone while it waits for the second.
        renaming = threading.Thread(
            target=lambda: renamer.cursor().execute("RENAME TABLE a TO gone, held TO kept")
        )
        renaming.start()
        waits = "SELECT count(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%'"
        try:
            wait_for(lambda: scene.db.server.execute(waits)[0][0] == 1, "the RENAME waits")
            found = scene.tables.check(known)
            assert not found.changes
            assert found.locked_tables == (
                frozenset("a") if scene.db.server.flavour.is_mariadb else frozenset()
            )
            captured = scene.tables.examine([scene.name(each) for each in ("a", "b", "held")])
            hidden = {name.name: error.code for name, error in captured.errors.items()}
            assert hidden == dict.fromkeys(found.locked_tables, "MY_TABLE_BUSY")
            assert {name.name for name in captured.fit} == {"a", "b", "held"} - found.locked_tables
        finally:
            cursor.execute("ROLLBACK")
            renaming.join()
    found = scene.tables.check(known)
    assert sorted(found.changes) == ["a", "held"]
    assert not found.locked_tables
    assert query(scene.tables.session, "SELECT 1") == [(1,)]
