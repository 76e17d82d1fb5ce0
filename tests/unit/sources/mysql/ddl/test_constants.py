"""Constants of columns that were added: which are proven, and which hang on a mode or a rounding."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from headrace.sources.mysql.catalog.table_def import ColumnRow
from headrace.sources.mysql.ddl.steps import Add
from headrace.sources.mysql.ddl.values import value_before


def _row(column_type: str, *, nullable: bool = True, generated: str = "") -> ColumnRow:
    base = column_type.partition("(")[0].partition(" ")[0]
    charset = "utf8mb4" if base in ("varchar", "char", "text", "enum", "set") else None
    numbers = (1, column_type, base, charset, charset, nullable, generated, "", False)
    return ColumnRow("n", *numbers, None, None, None, None)


@pytest.mark.parametrize(
    ("column_type", "said", "value"),
    [
        ("tinyint unsigned", "255", 255),
        ("decimal(5,2)", "-007.5", Decimal("-7.50")),
        ("decimal(5,2)", "999.99", Decimal("999.99")),
        ("float", "16777216", 16777216.0),
        ("bit(3)", "7", 7),
        ("char(3)", "'a  '", "a"),
        ("varchar(3)", "'a  '", "a  "),
        ("enum('a''b','c')", "'c'", "c"),
        ("date", "'2024-02-29'", date(2024, 2, 29)),
    ],
)
def test_a_constant_in_which_nothing_is_left_open_is_the_value(
    column_type: str, said: str, value: Any
) -> None:
    found = value_before(_add(said), _row(column_type))
    assert found is not None
    assert found.as_py() == value


@pytest.mark.parametrize(
    ("column_type", "said"),
    [
        ("tinyint", "128"), ("tinyint unsigned", "-1"), ("int", "1.0"), ("decimal(5,2)", "1000"),
        ("decimal(5,2)", "0.001"), ("decimal(5,2) unsigned", "-1"), ("decimal(50,2)", "1"),
        ("decimal(5,2)", "'1e2'"), ("float", "16777217"), ("float", "0.1"), ("float", "-1"),
        ("float(7,3)", "0.5"), ("float", "'1e2'"), ("bit(3)", "8"), ("bit(3)", "1.5"),
        ("bit(9)", "'1'"), ("varchar(3)", "'abcd'"), ("char(3)", "7"), ("varbinary(3)", "'a'"),
        ("enum('a','b')", "'A'"), ("enum('1','2')", "2"), ("date", "20240229"), ("date", "'2023-02-29'"),
        ("date", "'0000-00-00'"), ("date", "'2024-2-29'"), ("datetime", "'2023-02-29 00:00:00'"),
        ("datetime", "'2024-02-29'"), ("datetime", "20240229"), ("timestamp", "'2024-02-29 00:00:00'"),
        ("time", "'00:00:00'"), ("year", "24"),
    ],
)  # fmt: skip
def test_a_constant_that_the_server_may_read_otherwise_is_not_proven(column_type: str, said: str) -> None:
    assert value_before(_add(said), _row(column_type)) is None


def test_without_a_constant_it_is_null_or_what_the_type_begins_with() -> None:
    for column_type, value in (
        *(("bigint", 0), ("decimal(5,2)", 0), ("double", 0.0), ("bit(3)", 0), ("text", ""), ("blob", b"")),
        *(("set('b','a')", ""), ("enum('b','a')", "b"), ("varbinary(3)", b"")),
    ):
        plain, implicit = (value_before(Add("n"), _row(column_type, nullable=each)) for each in (True, False))
        assert plain is not None
        assert implicit is not None
        assert (plain.as_py(), implicit.as_py()) == (None, value)
        assert plain.type == implicit.type


@pytest.mark.parametrize("column_type", ["date", "datetime", "timestamp", "time", "year", "decimal(50,2)"])
def test_what_else_a_type_begins_with_is_not_proven(column_type: str) -> None:
    assert value_before(Add("n"), _row(column_type, nullable=False)) is None


def test_a_column_that_is_computed_or_was_made_otherwise_since_is_not_proven() -> None:
    assert value_before(Add("n"), _row("int", generated="v")) is None
    assert value_before(Add("n", says_null=True), _row("int", nullable=False)) is None


def _add(said: str) -> Add:
    is_text = said.startswith("'")
    return Add("n", said.strip("'"), is_text)
