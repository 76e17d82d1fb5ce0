"""TRUNCATE is data: in its own transaction the whole table goes, and what comes before and after it counts.

Most cases run for tables of all kinds at once, with an identity DEFAULT and FULL and without a key, and for
epochs of the driver and of Spark. The source at rest is the oracle of every mark that is reached; history is
judged at the end of each test by `definite`, which wants a truncation to leave nothing, and row by row where
a case counts.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pytest

from headrace.core.names import TableName
from headrace.lake.format import formatfile
from headrace.lake.log import errors_table
from headrace_testing import validators
from headrace_testing.postgres import Database
from tests.integration.pipeline.conftest import Mirrors
from tests.lakes import has_vectors

pytestmark = pytest.mark.server

TABLES = """
CREATE TABLE keyed (id int PRIMARY KEY, n int, big text);
CREATE TABLE whole (id int PRIMARY KEY, n int, big text);
CREATE TABLE bag (id int, n int, big text);
CREATE TABLE other (id int PRIMARY KEY);
ALTER TABLE keyed ALTER big SET STORAGE EXTERNAL;
ALTER TABLE whole REPLICA IDENTITY FULL;
ALTER TABLE bag REPLICA IDENTITY FULL;
"""
KINDS = ("keyed", "whole", "bag")
BIG = "(SELECT string_agg(md5({}::text || g), '') FROM generate_series(1, 100) g)"


@pytest.fixture(autouse=True)
def _history(mirrors: Mirrors) -> Iterator[None]:
    """Judge all of history and all marks once a test has come to its end."""
    yield
    assert validators.consistent(mirrors.lake) == []


def _same(mirrors: Mirrors, *tables: str) -> None:
    lake = mirrors.once(*tables)
    assert validators.exact(lake, mirrors.database.url(), values=True) == []


def _filled(mirrors: Mirrors, driver_epochs: int, merge: str = "rewrite") -> None:
    """The tables with 40 rows each, mirrored and changed once; long values lie out of line."""
    mirrors.options |= {"driver_epochs": driver_epochs, "merge": merge}
    mirrors.database.execute(TABLES, user="app")
    for table in KINDS:
        _insert(mirrors.database, table, 1, 40)
    _same(mirrors)
    mirrors.database.execute("; ".join(f"UPDATE {t} SET n = 1 WHERE id <= 5" for t in KINDS), user="app")
    _same(mirrors)
    # Releases that know no vectors read a lake of format 1.
    assert formatfile.open_lake(mirrors.lake.store).number == (1 if merge == "rewrite" else 2)


def _insert(database: Database, table: str, low: int, high: int) -> None:
    rows = f"SELECT i, 0, {BIG.format('i')} FROM generate_series({low}, {high}) i"
    database.execute(f"INSERT INTO {table} {rows}", user="app")


def _told(mirrors: Mirrors, table: str) -> list[tuple[int, int, int]]:
    """The newest transaction in a table's history: (ordinal, diff, rows), in order."""
    history = pl.from_arrow(mirrors.lake.history(f"public.{table}"))
    assert isinstance(history, pl.DataFrame)
    newest = history.filter(pl.col("_time") == pl.col("_time").max())
    return sorted(newest.group_by("_ordinal", "_diff").len().rows())


# Whatever runs the functions, they are the same.
ON_SPARK_IN_FULL = [20_000, pytest.param(0, marks=pytest.mark.full)]


@pytest.mark.parametrize("merge", ["vectors", pytest.param("rewrite", marks=pytest.mark.full)])
@pytest.mark.parametrize("driver_epochs", ON_SPARK_IN_FULL)
def test_a_truncate_takes_all_rows_and_no_others(mirrors: Mirrors, driver_epochs: int, merge: str) -> None:
    _filled(mirrors, driver_epochs, merge)
    assert has_vectors(mirrors.lake) == (merge == "vectors")
    mirrors.database.execute("TRUNCATE keyed, bag RESTART IDENTITY; TRUNCATE whole CASCADE", user="app")
    _same(mirrors)
    for table in KINDS:
        assert mirrors.lake.at().arrow(f"public.{table}").num_rows == 0
        assert _told(mirrors, table) == [(0, -1, 40)]
    mirrors.database.execute("TRUNCATE keyed, whole, bag", user="app")  # empty ones
    _same(mirrors)
    for table in KINDS:
        _insert(mirrors.database, table, 20, 60)
    _same(mirrors)


@pytest.mark.parametrize("driver_epochs", ON_SPARK_IN_FULL)
def test_changes_before_and_after_a_truncate_in_one_transaction_count(
    mirrors: Mirrors, driver_epochs: int
) -> None:
    _filled(mirrors, driver_epochs)
    row = f"(%s, 7, {BIG.format(1)})"
    with mirrors.database.connect(user="app") as connection, connection.transaction():
        for t in KINDS:
            connection.execute(f"INSERT INTO {t} VALUES {row}".encode(), [100])
            connection.execute(f"UPDATE {t} SET n = n + 1 WHERE id BETWEEN 3 AND 4".encode())
            connection.execute(f"UPDATE {t} SET id = 200 WHERE id = 6".encode())
            connection.execute(f"DELETE FROM {t} WHERE id = 7".encode())
            connection.execute(f"TRUNCATE {t}".encode())
            connection.execute(f"INSERT INTO {t} VALUES {row}".encode(), [3])
            connection.execute(f"UPDATE {t} SET n = n + 1".encode())
            connection.execute(f"TRUNCATE {t}".encode())
            connection.execute(f"INSERT INTO {t} VALUES {row}, {row}".encode(), [3, 4])
            connection.execute(f"UPDATE {t} SET id = 5 WHERE id = 4".encode())
    _same(mirrors)
    moved = [(2, -1, 1), (2, 1, 1), (3, -1, 1), (3, 1, 1), (4, -1, 1)]
    after = [(6, 1, 1), (7, -1, 1), (7, 1, 1), (8, -1, 1), (9, 1, 1), (10, 1, 1), (11, -1, 1), (11, 1, 1)]
    for t in KINDS:
        # ordinals: 0 insert, 1 and 2 update, 3 change of key, 4 delete, 5 truncate of 40 + 1 - 1 rows, ...
        first = [(0, 1, 1), (1, -1, 1), (1, 1, 1), *moved]
        assert _told(mirrors, t) == sorted([*first, (5, -1, 40), *after])
    assert mirrors.lake.at().arrow("public.keyed").sort_by("id")["id"].to_pylist() == [3, 5]


def test_several_truncates_in_one_epoch_take_each_what_was_there(mirrors: Mirrors) -> None:
    _filled(mirrors, 0)
    for turn in range(4):
        for t in KINDS:
            _insert(mirrors.database, t, 50 * turn + 50, 50 * turn + 60)
            mirrors.database.execute(f"DELETE FROM {t} WHERE id % 2 = 0", user="app")
        names = KINDS if turn % 2 else KINDS[: turn + 1]
        mirrors.database.execute(f"TRUNCATE {', '.join(names)}", user="app")
    _same(mirrors)
    _insert(mirrors.database, "keyed", 1, 10)
    _same(mirrors)


def test_a_cascade_takes_every_table_that_it_emptied_and_a_root_its_partitions(
    mirrors: Mirrors, database: Database
) -> None:
    database.execute(
        "CREATE TABLE parent (id int PRIMARY KEY);"
        " CREATE TABLE child (id int PRIMARY KEY, p int REFERENCES parent);"
        " CREATE TABLE root (k int, n int, PRIMARY KEY (k)) PARTITION BY RANGE (k);"
        " CREATE TABLE low PARTITION OF root FOR VALUES FROM (0) TO (10);"
        " CREATE TABLE high PARTITION OF root FOR VALUES FROM (10) TO (99)",
        user="app",
    )
    rows = (
        "INSERT INTO parent SELECT generate_series(1, 5); INSERT INTO child SELECT i, i FROM"
        " generate_series(1, 5) i; INSERT INTO root SELECT i, i FROM generate_series(1, 20) i"
    )
    by_leaf = ("public.*", "!public.root")
    database.execute(rows, user="app")
    _same(mirrors, *by_leaf)
    database.execute("CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.unpublished (id int)", user="app")
    database.execute("TRUNCATE parent, elsewhere.unpublished CASCADE; TRUNCATE low", user="app")
    _same(mirrors, *by_leaf)
    assert [mirrors.lake.at().arrow(f"public.{t}").num_rows for t in ("child", "low", "high")] == [0, 0, 11]
    database.execute("TRUNCATE root; " + rows, user="app")
    _same(mirrors, *by_leaf)


def test_a_truncate_and_what_only_looks_like_one_are_told_apart(mirrors: Mirrors, database: Database) -> None:
    """All of these give the table a new file; none of them is DDL that the stream does not explain."""
    _filled(mirrors, 20_000)
    for statement in ("VACUUM FULL keyed", "CLUSTER keyed USING keyed_pkey", "TRUNCATE keyed"):
        database.execute(statement)
        _insert(database, "keyed", 100, 110)
        database.execute("DELETE FROM keyed WHERE id > 99; DELETE FROM keyed WHERE id = 3", user="app")
        _same(mirrors)


# --- values without a lake form -----------------------------------------------------------------


def _errors(mirrors: Mirrors) -> dict[str, int]:
    """Count the errors that stand, by table."""
    lake = mirrors.lake
    return {
        name: int(errors_table.standing(lake.store, "errors/main", TableName("public", name))["diff"].sum())
        for name in KINDS
    }


@pytest.mark.parametrize("driver_epochs", ON_SPARK_IN_FULL)
def test_a_truncate_retracts_the_errors_of_its_rows(mirrors: Mirrors, driver_epochs: int) -> None:
    mirrors.options["driver_epochs"] = driver_epochs
    database = mirrors.database
    for t in KINDS:
        database.execute(f"CREATE TABLE {t} (id int{'' if t == 'bag' else ' PRIMARY KEY'}, at timestamp)")
        database.execute(f"ALTER TABLE {t} OWNER TO app")
        if t != "keyed":
            database.execute(f"ALTER TABLE {t} REPLICA IDENTITY FULL")
        database.execute(f"INSERT INTO {t} VALUES (1, 'infinity'), (2, '-infinity'), (3, now())")
    database.execute("INSERT INTO bag VALUES (1, 'infinity')")
    _same(mirrors)
    assert _errors(mirrors) == {"keyed": 2, "whole": 2, "bag": 3}
    with database.connect(user="app") as connection, connection.transaction():
        for t in KINDS:
            connection.execute(f"INSERT INTO {t} VALUES (4, 'infinity'), (5, '-infinity')".encode())
            connection.execute(f"DELETE FROM {t} WHERE id = 1".encode())
            connection.execute(f"UPDATE {t} SET id = 6 WHERE id = 2".encode())
            connection.execute(f"TRUNCATE {t}".encode())
            connection.execute(f"INSERT INTO {t} VALUES (1, 'infinity'), (7, now())".encode())
    _same(mirrors)
    assert _errors(mirrors) == {"keyed": 1, "whole": 1, "bag": 1}
    database.execute("TRUNCATE keyed, whole, bag", user="app")
    _same(mirrors)
    assert _errors(mirrors) == {"keyed": 0, "whole": 0, "bag": 0}
