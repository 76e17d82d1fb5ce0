"""Names that need quoting somewhere: in SQL, in a path, in a URL, in Delta, in Spark, in our own frames.

Tables of such names, and a table whose columns have them, go through the copy, through inserts, updates
and deletes of the stream, into history and `errors/`, and out through every reader of a cut.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from psycopg import sql

from headrace.core.errors import HeadraceError
from headrace.core.history import own_names
from headrace.core.names import TableName, quote_identifier
from headrace.lake.log import errors_table
from headrace.lake.read.cut import Cut
from headrace_testing import validators
from headrace_testing.canonical import lake_rows
from headrace_testing.postgres import Database
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.reading import readings

pytestmark = pytest.mark.server

# 63 bytes, as many as an identifier can have.
LONGEST = "é" * 31 + "x"

TABLES = [
    TableName("public", "orders"),
    TableName("Sales Data", "orders"),
    TableName("Sales Data", "Order"),
    TableName("Sales Data", "select"),
    TableName("a.b", 'c.d"e'),
    TableName("a.b", "100%41 %s {} $1"),
    TableName("a.b", "a/b\\c:d"),
    TableName("a.b", "..."),
    TableName("a.b", "_x0020_"),
    TableName("テスト", "café"),
    TableName("テスト", "𝄞"),
    TableName(LONGEST, LONGEST),
    TableName("O'Hara", "it's"),
]

COLUMNS = [
    "plain",
    "Upper",
    "select",
    "two words",
    " leading",
    'quo"te',
    "'single'",
    "back`tick",
    "back\\slash",
    "a.b",
    "a",
    "100%",
    "%s",
    "{}",
    "f(x);y,z=1",
    "tab\tnew\nline",
    "_x0020_",
    "two_x0020_words",
    "名前",
    "é",
    "𝄞",
    LONGEST,
    # What we call things ourselves.
    *("_time", "__time", "_diff", "_Ordinal", "_xid", "_commit_ts", "_op", "_image"),
    *("n0", "o0", "u0", "c0", "_key", "_event", "_from", "_home", "_net", "key", "column", "raw", "row"),
    *("time", "diff", "event", "_first", "index", "len", "literal", "__index_level_0__", "ctid_"),
]


def _as(name: TableName) -> sql.Identifier:
    return sql.Identifier(name.schema, name.name)


def _run(database: Database, statement: str, *names: TableName) -> None:
    """The statement as the application runs it, for each of the tables."""
    with database.connect(user="app") as connection, connection.transaction():
        for name in names:
            connection.execute(sql.SQL(statement.replace("<t>", "{t}")).format(t=_as(name)))


def _same(mirrors: Mirrors, count: int) -> Cut:
    schemas = dict.fromkeys(quote_identifier(name.schema) for name in TABLES)
    lake = mirrors.once(*[f"{schema}.*" for schema in schemas])
    assert len(lake.at().tables()) == count
    assert validators.exact(lake, mirrors.database.url(), values=True) == []
    return lake.at()


@pytest.mark.spark
def test_tables_and_columns_may_be_called_as_the_source_allows(
    mirrors: Mirrors, database: Database, spark: Any
) -> None:
    columns = TableName("public", "columns"), TableName("public", "columns by image")
    _create(database, *columns)
    tables = [*TABLES, *columns]
    _same(mirrors, len(tables))

    _run(database, "INSERT INTO <t> SELECT i, i, 'b' FROM generate_series(11, 20) i", *TABLES)
    _run(database, "UPDATE <t> SET n = n + 1 WHERE id % 3 = 0", *TABLES)
    _run(database, "UPDATE <t> SET id = id + 100 WHERE id % 4 = 0", *TABLES)
    _run(database, "DELETE FROM <t> WHERE id % 5 = 0", *TABLES)
    for name in columns:
        _change_columns(database, name)
    cut = _same(mirrors, len(tables))
    for name in tables:
        _reads_alike(cut, spark, name)
    assert len(cut.register(spark)) > len(tables)
    for name in columns:
        _history_keeps_its_own_names(cut, name)
        _errors_name_the_row(mirrors, name)

    _run(database, "DELETE FROM <t>", *tables)
    cut = _same(mirrors, len(tables))
    assert sum(cut.arrow(str(name)).num_rows for name in tables) == 0
    assert validators.definite(mirrors.lake) == []


def _create(database: Database, *columns: TableName) -> None:
    for schema in dict.fromkeys(name.schema for name in TABLES if name.schema != "public"):
        query = sql.SQL("CREATE SCHEMA {} AUTHORIZATION app").format(sql.Identifier(schema))
        database.execute(query.as_string())
    _run(database, "CREATE TABLE <t> (id int PRIMARY KEY, n int, s text)", *TABLES)
    _run(database, "INSERT INTO <t> SELECT i, i, 'a' FROM generate_series(1, 10) i", *TABLES)
    declared = sql.SQL(", ").join(sql.SQL("{} text").format(sql.Identifier(name)) for name in COLUMNS)
    for name in columns:
        with database.connect(user="app") as connection:
            connection.execute(
                sql.SQL('CREATE TABLE {} ("The ""Key""" int, {}, "when?" date, PRIMARY KEY ({}, {}))').format(
                    _as(name), declared, sql.Identifier('The "Key"'), sql.Identifier(COLUMNS[1])
                )
            )
        _fill(database, name, 1)
    _run(database, "ALTER TABLE <t> REPLICA IDENTITY FULL", columns[1])


def _fill(database: Database, name: TableName, number: int) -> None:
    values = sql.SQL(", ").join(sql.Literal(f"{column} {number}") for column in COLUMNS)
    with database.connect(user="app") as connection:
        query = sql.SQL("INSERT INTO {} VALUES ({}, {}, 'infinity')")
        connection.execute(query.format(_as(name), sql.Literal(number), values))


def _change_columns(database: Database, name: TableName) -> None:
    """Insert a row; change every column of the first one; give the new one another key."""
    _fill(database, name, 2)
    with database.connect(user="app") as connection, connection.transaction():
        for column in COLUMNS:
            query = sql.SQL('UPDATE {} SET {} = {} WHERE "The ""Key""" = 1')
            connection.execute(query.format(_as(name), sql.Identifier(column), sql.Literal(f"new {column}")))
        query = sql.SQL('UPDATE {} SET "The ""Key""" = 3 WHERE "The ""Key""" = 2')
        connection.execute(query.format(_as(name)))


def _reads_alike(cut: Cut, spark: Any, name: TableName) -> None:
    """Spark, Polars and delta-rs see what pyarrow sees."""
    expected = lake_rows(cut.arrow(str(name))).frame.sort("c0", "c1")
    for engine, rows in readings(cut, spark, str(name)).items():
        assert (engine, lake_rows(rows).frame.sort("c0", "c1").equals(expected)) == (engine, True)


def _history_keeps_its_own_names(cut: Cut, name: TableName) -> None:
    told = cut.history(str(name))
    own = own_names(cut.arrow(str(name)).column_names)
    assert own["_time"] == "___time"
    assert own["_ordinal"] == "__ordinal"
    assert told.column_names[-5:] == list(own.values())
    assert told.column_names[:-5] == ['The "Key"', *COLUMNS, "when?"]
    # Two rows came, one with another key, and every column was changed once.
    assert told.num_rows == 2 * len(COLUMNS) + 3


def _errors_name_the_row(mirrors: Mirrors, name: TableName) -> None:
    frame = errors_table.standing(mirrors.lake.store, "errors/main", name)
    found = sorted(
        (json.loads(key)['The "Key"'], column, raw)
        for key, column, raw in frame.select("key", "column", "raw").rows()
    )
    assert found == [(1, "when?", "infinity"), (3, "when?", "infinity")]


def test_a_name_that_is_too_long_once_spelled_out_is_refused(mirrors: Mirrors, database: Database) -> None:
    _run(database, "CREATE TABLE <t> (id int PRIMARY KEY)", TableName("public", " ".join("a" * 32)))
    _run(database, "CREATE TABLE <t> (id int PRIMARY KEY)", TableName("public", "+" * 63))
    with pytest.raises(HeadraceError) as refused:
        mirrors.once(f'public."{"+" * 63}"')  # a wildcard would leave it out
    assert refused.value.code == "LAKE_NAME_LONG"
    assert database.execute("SELECT count(*) FROM pg_publication") == [(0,)]
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    assert database.execute(slots) == [(0,)]
