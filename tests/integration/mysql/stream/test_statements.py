"""Statements of real servers leave traces in the log when they change rows of a table they don't name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pymysql import OperationalError, ProgrammingError

from headrace.sources.mysql.ddl.tokens import is_settled, lower
from headrace_testing.mysql import Database
from tests.integration.mysql.stream.reading import reading
from tests.integration.mysql.stream.test_dump import names, run

_NOT_WHILE_CREATED = 1746  # MySQL's: "can't update table ... while ... is being created"


@pytest.fixture(params=["mysql", "mariadb"])
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(f"{request.param}_database")
    return found


@pytest.fixture
def other(database: Database) -> Iterator[Database]:
    """A second database of that server."""
    with database.server.database() as made:
        yield made


# Statements of another database by which a row comes into {t}.
ROUTES = {
    "view": "INSERT INTO v VALUES (1)",
    "view, among others": "UPDATE v SET id = id + 1",
    "trigger": "INSERT INTO fires VALUES (1)",
    "trigger of a parent, of which MySQL names no database": "INSERT INTO parent VALUES (1)",
    "trigger of a child, likewise": "INSERT INTO child VALUES (300, 1)",
    "trigger of a table that a view shows": "REPLACE INTO shows VALUES (2)",
    "function": "INSERT INTO quiet VALUES (f(3))",
    "function of another": "UPDATE quiet SET id = {d}.f(4)",
    "function alone": "DO f(5)",
    "function, into a variable": "SET @x = f(6)",
    "function, into a table": "CREATE TABLE made SELECT f(7)",
    "function, into a table that is there": "CREATE TABLE IF NOT EXISTS made_too SELECT f(10)",
    "function, into a temporary table": "CREATE TEMPORARY TABLE passing SELECT f(8)",
    "function, into a table of values": "CREATE TABLE listed AS VALUES {row}(f(9))",
    "procedure": "CALL p()",
    "several tables": "DELETE quiet, v FROM quiet, v",
}


def _lead(other: Database, table: str) -> None:
    """Ways from another database to the table."""
    run(
        other,
        f"CREATE VIEW v AS SELECT * FROM {table}",
        *(f"CREATE TABLE {name} (id int)" for name in ("quiet", "fires")),
        f"CREATE TRIGGER fire AFTER INSERT ON fires FOR EACH ROW INSERT INTO {table} VALUES (NEW.id + 50)",
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE child (id int, parent int, FOREIGN KEY (parent) REFERENCES parent (id))",
        *(
            f"CREATE TRIGGER g_{name} AFTER INSERT ON {name} FOR EACH ROW INSERT INTO {table} VALUES (NEW.id)"
            for name in ("parent", "child")
        ),
        "CREATE VIEW shows AS SELECT * FROM fires",
        "CREATE FUNCTION f(i int) RETURNS int DETERMINISTIC MODIFIES SQL DATA"
        f" BEGIN INSERT INTO {table} VALUES (i + 100); RETURN i; END",
        f"CREATE PROCEDURE p() INSERT INTO {table} VALUES (200)",
    )


def ran(database: Database, statement: str) -> bool:
    """Run a statement in STATEMENT format; False if the server lets no function change rows meanwhile."""
    try:
        run(database, "SET SESSION binlog_format = 'STATEMENT'", statement)
    except OperationalError as error:
        if error.args[0] != _NOT_WHILE_CREATED:
            raise
        return False
    return True


def test_a_statement_that_reaches_a_table_by_any_way_is_marked(database: Database, other: Database) -> None:
    run(database, "CREATE TABLE t (id int)")
    _lead(other, f"{database.name}.t")
    row = "" if database.server.flavour.is_mariadb else "ROW"
    missed = []
    with reading(database.server, [(database.name, "t")]) as reader:
        for way, statement in ROUTES.items():
            before = database.execute("SELECT count(*), coalesce(sum(id), 0) FROM t")
            if not ran(other, statement.format(d=other.name, row=row)):
                continue
            assert database.execute("SELECT count(*), coalesce(sum(id), 0) FROM t") != before, way
            reader.data = b""
            if "t by_statement" not in names(reader.catch_up()):
                missed.append(way)
    assert missed == []


# Clauses whose lists have commas, in an order that a server can run.
LISTS = (
    "ORDER BY note, id DESC",
    "ADD KEY k (note), ORDER BY note, id",
    "PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (5), PARTITION b VALUES LESS THAN (9),"
    " PARTITION c VALUES LESS THAN (99))",
    "REORGANIZE PARTITION a, b INTO (PARTITION a VALUES LESS THAN (6), PARTITION b VALUES LESS THAN (9))",
    "REBUILD PARTITION a, b",
    "ANALYZE PARTITION a, b",
    "OPTIMIZE PARTITION b, c",
)


def test_a_list_of_partitions_or_of_columns_to_sort_by_alters_no_row(database: Database) -> None:
    run(database, "CREATE TABLE t (id int PRIMARY KEY, note int)", "INSERT INTO t VALUES (1, 2), (7, 1)")
    with reading(database.server, [(database.name, "t")]) as reader:
        run(database, *(f"ALTER TABLE t {clause}" for clause in LISTS))
        assert "t altered" not in names(reader.catch_up())
        reader.data = b""
        for clause in ("TRUNCATE PARTITION a, b", "DROP PARTITION a, b"):
            run(database, f"ALTER TABLE t {clause}")
        assert names(reader.catch_up()) == ["BEGIN", "t partitions"] * 2
        for clause in ("ORDER BY note, ADD COLUMN c int", "REBUILD PARTITION c, ADD COLUMN c int"):
            with pytest.raises(ProgrammingError):
                run(database, f"ALTER TABLE t {clause}")


def test_a_server_makes_of_a_letter_what_is_expected_of_it(database: Database) -> None:
    """Names are in a charset of three bytes at most, whose collation lowers them."""
    letters = [chr(code) for code in range(0x80, 0x10000) if not 0xD800 <= code < 0xE000]
    asked = "SELECT LOWER(CONVERT(_utf8mb4 %s USING utf8mb3) COLLATE utf8mb3_general_ci)"
    [(answer,)] = database.execute(asked, [" ".join(letters)])
    made = answer.split(" ")
    assert [
        letter for letter, low in zip(letters, made, strict=True) if low not in (letter, lower(letter))
    ] == []
    settled = [(letter, low) for letter, low in zip(letters, made, strict=True) if is_settled(letter)]
    assert [(letter, low) for letter, low in settled if low != lower(letter)] == []
