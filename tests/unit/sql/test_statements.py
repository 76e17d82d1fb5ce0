"""Our own statements are read, all others are left to Spark, and what is wrong is told with its place."""

from __future__ import annotations

import pytest

from headrace.core.errors import Misconfigured
from headrace.sql import statements
from headrace.sql.statements import (
    CreateSource,
    CreateView,
    CreateViews,
    DropStatement,
    Show,
    SparkQuery,
    parse,
)


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        (
            "CREATE SOURCE \"repl\"\n FROM POSTGRES CONNECTION 'host=h dbname=d'\n PUBLICATION 'mz_source'",
            CreateSource("repl", "postgres", "host=h dbname=d", {"publication": "mz_source"}, False, False),
        ),
        (
            "create materialized source if not exists s from postgres connection 'x=''y''' publication 'p'",
            CreateSource("s", "postgres", "x='y'", {"publication": "p"}, True, True),
        ),
        ('CREATE VIEWS FROM SOURCE "r" ("a", b, "S x".c)', CreateViews("r", ("a", "b", '"S x".c'), False)),
        ("CREATE MATERIALIZED VIEWS FROM SOURCE s", CreateViews("s", (), True)),
        ("CREATE VIEW v AS\n SELECT 1 ", CreateView("v", "SELECT 1", False, False)),
        ("CREATE OR REPLACE MATERIALIZED VIEW v AS WITH x AS (SELECT 1) SELECT * FROM x",
         CreateView("v", "WITH x AS (SELECT 1) SELECT * FROM x", True, True)),
        ("show sources", Show("SOURCES")),
        ("SHOW VIEWS", Show("VIEWS")),
        ("SHOW TABLES", Show("TABLES")),
        ("SHOW CREATE VIEW \"a b\"", Show("VIEW", "a b")),
        ("SHOW CREATE SOURCE s", Show("SOURCE", "s")),
        ("DROP SOURCE IF EXISTS s", DropStatement("SOURCE", "s", True)),
        ("DROP VIEW v", DropStatement("VIEW", "v", False)),
        ("SELECT 1", SparkQuery("SELECT 1")),
        ("SHOW FUNCTIONS", SparkQuery("SHOW FUNCTIONS")),
    ],
)  # fmt: skip
def test_a_statement_is_read(sql: str, wanted: statements.Statement) -> None:
    assert parse(sql) == wanted


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("CREATE SOURCE FROM POSTGRES", "line 1, column 20"),
        ("CREATE SOURCE s\nFROM ORACLE CONNECTION 'x'", "line 2, column 6"),
        ("CREATE SOURCE s FROM MYSQL PUBLICATION 'x'", "line 1, column 28"),
        ("CREATE SOURCE s FROM POSTGRES CONNECTION x PUBLICATION 'p'", "line 1, column 42"),
        ("CREATE SOURCE s FROM POSTGRES CONNECTION 'x'", "line 1, column 45"),
        ("CREATE VIEWS FROM SOURCE s (a b)", "line 1, column 31"),
        ("CREATE VIEWS FROM SOURCE s (a.b.c)", "line 1, column 34"),
        ("CREATE VIEW v AS", "line 1, column 17"),
        ("SHOW CREATE VIEW", "line 1, column 17"),
        ("DROP SOURCE s t", "line 1, column 15"),
        ("SELECT 'open", "line 1, column 8"),
        ("SELECT 1 /* open", "line 1, column 10"),
    ],
)
def test_a_malformed_statement_is_refused_with_its_place(sql: str, place: str) -> None:
    with pytest.raises(Misconfigured) as raised:
        parse(sql)
    assert raised.value.code == "SQL_MALFORMED"
    assert place in raised.value.primary


@pytest.mark.parametrize(
    "sql",
    ["INSERT INTO t VALUES (1)", "drop table t", "CREATE TABLE t (a int)", "CREATE VIEW v AS DELETE FROM t"],
)
def test_what_would_write_is_refused(sql: str) -> None:
    with pytest.raises(Misconfigured) as raised:
        parse(sql)
    assert raised.value.code == "SQL_ONLY_READS"
