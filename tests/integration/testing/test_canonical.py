"""The text of a value is the same from the server and from a lake that holds it, and tells values apart."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.names import TableName
from headrace_testing.canonical import difference, lake_rows
from headrace_testing.oracle.postgres_rows import source_rows
from headrace_testing.postgres import Database
from tests.cases.types.cases import column
from tests.integration.pipeline import everytype

pytestmark = pytest.mark.server

MICROS = pa.timestamp("us")
INSTANT = pa.timestamp("us", tz="UTC")

# type of the source, its literals, type of the lake, the lake's values
VALUES: list[tuple[str, list[str], pa.DataType, list[Any]]] = [
    ("bool", ["true", "false"], pa.bool_(), [True, False]),
    ("smallint", ["-32768", "32767"], pa.int16(), [-32768, 32767]),
    ("bigint", ["-9223372036854775808", "0"], pa.int64(), [-(2**63), 0]),
    ("oid", ["4294967295"], pa.int64(), [4294967295]),
    (
        "real",
        ["3.3", "-0", "NaN", "Infinity", "1e-45"],
        pa.float32(),
        [3.3, -0.0, float("nan"), float("inf"), 1e-45],
    ),
    ("float8", ["0.1", "-0", "NaN", "-Infinity"], pa.float64(), [0.1, -0.0, float("nan"), float("-inf")]),
    (
        "numeric(38,10)",
        ["0.0000000001", "-9999999999999999999999999999.0123456789", "12"],
        pa.decimal128(38, 10),
        [Decimal("0.0000000001"), Decimal("-9999999999999999999999999999.0123456789"), Decimal(12)],
    ),
    ("numeric(5,2)", ["NaN", "1.5"], pa.decimal128(5, 2), [None, Decimal("1.5")]),
    ("numeric", ["1.10", "NaN", "1e40"], pa.string(), ["1.10", "NaN", "1" + "0" * 40]),
    ("numeric(3,-2)", ["12345"], pa.string(), ["12300"]),
    ("text", ["", 'a,"b"\nc', "\\N", "日本語"], pa.string(), ["", 'a,"b"\nc', "\\N", "日本語"]),
    ("char(4)", ["ab"], pa.string(), ["ab  "]),
    ("bytea", ["\\x00ff", ""], pa.binary(), [b"\x00\xff", b""]),
    (
        "date",
        ["1969-12-31", "0044-03-15 BC", "infinity"],
        pa.date32(),
        [-1, -735160, None],
    ),
    (
        "timestamp",
        ["1969-12-31 23:59:59.999999", "infinity"],
        MICROS,
        [datetime.datetime(1969, 12, 31, 23, 59, 59, 999999), None],
    ),
    (
        "timestamptz",
        ["2011-11-11 11:11:11.123456-09"],
        INSTANT,
        [datetime.datetime(2011, 11, 11, 20, 11, 11, 123456, tzinfo=datetime.UTC)],
    ),
    ("interval", ["1 year 2 mons -3 days 04:05:06.7"], pa.string(), ["1 year 2 mons -3 days +04:05:06.7"]),
    ("jsonb", ['{"b": 1, "a": null}'], pa.string(), ['{"a": null, "b": 1}']),
    ("uuid", ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"], pa.string(), ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    (
        "int[]",
        ["{1,NULL,3}", "{}", "{{1,2},{3,4}}", "[0:1]={1,2}"],
        pa.list_(pa.int32()),
        [[1, None, 3], [], None, None],
    ),
    ("text[]", ['{"NULL",NULL,"","a,b"}'], pa.list_(pa.string()), [["NULL", None, "", "a,b"]]),
    ("float8[]", ["{0.1,NaN}"], pa.list_(pa.float64()), [[0.1, float("nan")]]),
    ("small_bytes", ["\\x01"], pa.binary(), [b"\x01"]),
    ("mood", ["so so"], pa.string(), ["so so"]),
]


@pytest.mark.parametrize(("kind", "literals", "lake_type", "values"), VALUES, ids=[row[0] for row in VALUES])
def test_a_value_has_one_text(
    database: Database, kind: str, literals: list[str], lake_type: pa.DataType, values: list[Any]
) -> None:
    database.execute("CREATE DOMAIN small_bytes AS bytea CHECK (length(value) < 9)")
    database.execute("CREATE TYPE mood AS ENUM ('so so', 'good')")
    database.execute(f'CREATE TABLE "Odd ""Name" (id int, "the value" {kind})')
    for number, literal in enumerate([*literals, None]):
        database.execute('INSERT INTO "Odd ""Name" VALUES (%s, %s)', [number, literal])
    held = pa.array([*values, None], lake_type)
    lake = lake_rows(pa.table({"id": pa.array(range(len(literals) + 1), pa.int32()), "the value": held}))
    with database.connect() as connection:
        source = source_rows(connection, TableName("public", 'Odd "Name'))
    assert source.names == lake.names == ("id", "the value")
    assert difference(lake.frame, source.frame).rows() == []


def test_every_value_of_every_type_has_one_text(database: Database) -> None:
    """Also where the lake's type cannot hold it, and where the type only looks like an array."""
    types = everytype.create_types(database)
    everytype.create(database, "t", types, key=None, full=False)
    turns = {number: number for number in range(max(len(each.values) for each in types) + 1)}
    with database.connect() as connection:
        everytype.insert(connection, "t", types, turns)
        source = source_rows(connection, TableName("public", "t"))
    columns = [column(each, map(each.turn, turns.values())) for each in types]
    held = pa.table([pa.array(turns, pa.int32()), *columns], names=["id", *(each.name for each in types)])
    lake = lake_rows(held)
    assert source.names == lake.names
    differing = {
        name: rows
        for name in source.names
        if (rows := difference(lake.select(["id", name]).frame, source.select(["id", name]).frame).rows())
    }
    assert differing == {}


def test_hostile_settings_change_nothing(database: Database) -> None:
    database.execute("CREATE TABLE t (a timestamptz, b interval, c float8, d bytea, e money, f regclass)")
    database.execute(
        "INSERT INTO t VALUES"
        " ('2024-02-01 03:04:05.678+00', '1 day', 0.1 + 0.2, '\\x00ff', '1.5', 'pg_class')"
    )
    with database.connect() as connection:
        before = source_rows(connection, TableName("public", "t")).frame
    name = database.name
    for setting in (
        "timezone = 'Asia/Kolkata'",
        "datestyle = 'SQL, DMY'",
        "intervalstyle = 'iso_8601'",
        "extra_float_digits = -5",
        "bytea_output = 'escape'",
        "quote_all_identifiers = on",
    ):
        database.execute(f"ALTER DATABASE {name} SET {setting}")
    with database.connect() as connection:
        after = source_rows(connection, TableName("public", "t")).frame
    assert difference(after, before).rows() == []


def test_rows_are_a_multiset_of_the_columns_that_are_asked_for(database: Database) -> None:
    database.execute("CREATE TABLE t (a int, dropped int, b text, c int GENERATED ALWAYS AS (a + 1) STORED)")
    database.execute("ALTER TABLE t DROP dropped")
    database.execute("INSERT INTO t VALUES (1, 'x'), (1, 'y'), (2, NULL), (2, NULL)")
    with database.connect() as connection:
        rows = source_rows(connection, TableName("public", "t"))
    assert rows.names == ("a", "b")
    assert sorted(rows.frame.rows(), key=str) == [("1", "x", 1), ("1", "y", 1), ("2", None, 2)]
    assert sorted(rows.select(["a"]).frame.rows()) == [("1", 2), ("2", 2)]
    lake = lake_rows(pa.table({"a": pa.array([1, 2, 3], pa.int32())}))
    surplus = difference(lake.frame, rows.select(["a"]).frame)
    assert sorted(surplus.rows()) == [("1", -1), ("2", -1), ("3", 1)]


def test_an_empty_array_is_not_an_array_of_an_empty_text(database: Database) -> None:
    database.execute("CREATE TABLE t (a text[])")
    database.execute("INSERT INTO t VALUES ('{}')")
    with database.connect() as connection:
        source = source_rows(connection, TableName("public", "t"))
    lake = lake_rows(pa.table({"a": pa.array([[""]], pa.list_(pa.string()))}))
    assert sorted(n for _, n in difference(lake.frame, source.frame).rows()) == [-1, 1]


def test_an_empty_table_has_no_rows(database: Database) -> None:
    database.execute("CREATE TABLE t (a int)")
    with database.connect() as connection:
        rows = source_rows(connection, TableName("public", "t"))
    assert rows.frame.height == 0
    lake = lake_rows(pa.table({"a": pa.array([], pa.int32())}))
    assert difference(lake.frame, rows.frame).height == 0
