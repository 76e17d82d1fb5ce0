"""Cascades of foreign keys: what MySQL logs of them is exact, but for one statement, and that is told."""

from __future__ import annotations

import random
from contextlib import suppress

import pymysql
import pytest

from headrace.core.errors import HeadraceError
from headrace_testing import validators
from headrace_testing.mysql import Database
from tests.conformance.conftest import Mirror
from tests.integration.mysql.mirrors.judging import assert_exact

pytestmark = pytest.mark.server

PARENT = "FOREIGN KEY ({column}) REFERENCES {table} (id) ON DELETE {deleted} ON UPDATE {updated}"
BOTH = {"deleted": "CASCADE", "updated": "CASCADE"}
TABLES = (
    "CREATE TABLE a (id int PRIMARY KEY, n int)",
    "CREATE TABLE b (id int PRIMARY KEY, p int, w int AS (p + 1) VIRTUAL, "
    + PARENT.format(column="p", table="a", **BOTH)
    + ")",
    "CREATE TABLE c (id int AUTO_INCREMENT PRIMARY KEY, p int, q int, "
    + PARENT.format(column="p", table="b", deleted="SET NULL", updated="CASCADE")
    + ", "
    + PARENT.format(column="q", table="a", deleted="CASCADE", updated="SET NULL")
    + ")",
    "CREATE TABLE bag (p int, s varchar(20), " + PARENT.format(column="p", table="a", **BOTH) + ")",
    "CREATE TABLE self (id int PRIMARY KEY, p int, "
    + PARENT.format(column="p", table="self", deleted="CASCADE", updated="RESTRICT")
    + ")",
    "CREATE TABLE pair (id int, p int, PRIMARY KEY (id, p), "
    + PARENT.format(column="p", table="a", **BOTH)
    + ")",
)
STATEMENTS = (
    *["INSERT INTO a VALUES ({i}, {j})"] * 3,
    "REPLACE INTO a VALUES ({i}, {j})",
    *["INSERT INTO b (id, p) VALUES ({j}, {i})"] * 2,
    *["INSERT INTO c (p, q) VALUES ({j}, {i})", "INSERT INTO c (q) VALUES ({i})"],
    *["INSERT INTO bag VALUES ({i}, 'x'), ({i}, 'x')", "INSERT INTO pair VALUES ({j}, {i})"],
    *["INSERT INTO self VALUES ({i}, {j})", "INSERT INTO self VALUES ({i}, NULL)"],
    "DELETE FROM self WHERE id = {i}",
    "DELETE FROM a WHERE id = {i}",
    "DELETE IGNORE FROM a WHERE id BETWEEN {i} AND {i} + 2",
    "UPDATE a SET id = {j} WHERE id = {i}",
    "UPDATE a SET id = id + 100 WHERE id BETWEEN {i} AND {i} + 2",  # may fail halfway
    "UPDATE IGNORE a SET id = id - 100 WHERE id > 100",
    "UPDATE b SET id = {i} WHERE id = {j}",
    "DELETE FROM b WHERE id = {j}",
    "INSERT INTO a VALUES ({i}, 1) ON DUPLICATE KEY UPDATE id = id + 200",
    "UPDATE a JOIN b ON b.p = a.id SET a.n = a.n + 1, b.id = b.id + 50 WHERE a.id = {i}",
)


def _write(database: Database, dice: random.Random, times: int) -> None:
    """Statements at random, several a transaction; many of them fail, and some after half of their work."""
    with database.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for _ in range(times):
            statement = dice.choice(STATEMENTS).format(i=dice.randint(1, 30), j=dice.randint(1, 30))
            with suppress(pymysql.MySQLError):
                cursor.execute(statement)
            if dice.random() < 0.3:
                cursor.execute(dice.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]))
        connection.commit()


@pytest.mark.full
@pytest.mark.parametrize("database", ["mysql"], indirect=True)
def test_cascades_that_are_logged_are_exact_at_every_mark(
    mirror: Mirror, database: Database, seed: int
) -> None:
    dice = random.Random(seed)
    for statement in TABLES:
        database.execute(statement)
    for _ in range(3):
        _write(database, dice, 300)
        lake = mirror.once()
    assert_exact(lake, mirror.place.url)
    assert validators.travelled(lake) == []
    assert len(lake.at().mark.versions) == len(TABLES)


@pytest.mark.full
@pytest.mark.parametrize("database", ["mysql"], indirect=True)
def test_a_row_that_the_server_logs_as_removed_twice_stops_its_table_alone(
    mirror: Mirror, database: Database
) -> None:
    """The DELETE names both sides of a foreign key; replicas of the server stop there, too."""
    for statement in TABLES[:2]:
        database.execute(statement)
    database.execute("INSERT INTO a VALUES (1, 1), (2, 2)")
    database.execute("INSERT INTO b (id, p) VALUES (1, 1), (2, 2)")
    mirror.once()
    database.execute("DELETE a, b FROM a JOIN b ON b.p = a.id WHERE a.id = 1")
    with pytest.raises(HeadraceError) as stopped:
        mirror.once()
    assert stopped.value.code == "ROW_MISSING"
    assert set(mirror.lake.at().mark.versions) == {str(mirror.place.table("a"))}
    mirror.ask("resync", "b")
    assert_exact(mirror.once(), mirror.place.url)
