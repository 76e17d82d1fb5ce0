"""Our statements as they look before they are sent."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pytest

from headrace.sources.mysql.flavour import Flavour, Number, Release
from headrace.sources.mysql.session.connection import pins
from headrace.sources.mysql.session.statements import Parameter, bind, literal, quote


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        (None, "NULL"),
        (True, "1"),
        (7, "7"),
        (-7, "(-7)"),
        (1.5, "1.5"),
        (1e300, "1e+300"),
        (Decimal("-1E+2"), "(-100)"),
        ("shop.orders %_", "'shop.orders %_'"),
        ("", "''"),
        ("o'clock", "_utf8mb4 X'6f27636c6f636b'"),
        ("\\", "_utf8mb4 X'5c'"),
        ('"', "_utf8mb4 X'22'"),
        ("ü", "_utf8mb4 X'c3bc'"),
        (b"", "X''"),
        (b"\x00'", "X'0027'"),
        (date(2026, 11, 23), "'2026-11-23'"),
        (datetime(2026, 11, 23, 1, 2, 3), "'2026-11-23 01:02:03'"),
    ],
)
def test_a_value_is_spelled_so_that_no_mode_reads_it_otherwise(value: Parameter, spelled: str) -> None:
    assert literal(value) == spelled


@pytest.mark.parametrize("value", [float("nan"), float("inf"), Decimal("NaN"), Decimal("-Infinity")])
def test_a_number_that_no_statement_can_spell_is_a_bug(value: Parameter) -> None:
    with pytest.raises(ValueError, match="spell"):
        literal(value)


def test_parameters_take_their_places_and_no_others() -> None:
    assert bind("SELECT %s, '100%', %s", ["%s", 1]) == "SELECT '%s', '100%', 1"
    assert bind("SELECT '%s'", ()) == "SELECT '%s'"
    with pytest.raises(ValueError, match="2 places for 1"):
        bind("SELECT %s, %s", [1])


def test_a_name_is_quoted_whatever_is_in_it() -> None:
    assert quote("a`b") == "`a``b`"


def test_a_pin_of_a_newer_release_is_not_asked_of_an_older_one() -> None:
    hidden = "show_gipk_in_create_table_and_information_schema"
    assert hidden in pins(Release(Flavour.MYSQL, Number(8, 0, 30), ""))
    assert hidden not in pins(Release(Flavour.MYSQL, Number(8, 0, 29), ""))
    assert hidden not in pins(Release(Flavour.MARIADB, Number(10, 11, 18), ""))
