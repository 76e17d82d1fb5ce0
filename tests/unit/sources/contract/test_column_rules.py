"""Rules of columns: what may leave, and which rule may follow another."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.pipeline.state.config import parse_source
from headrace.sources.contract.column_rules import ColumnRule, ColumnRules, rule_flaw, unknown_tables
from headrace.sources.contract.hash_key import VARIABLE, hash_key

USERS = TableName("public", "users")
COLUMNS = ("id", "email", "ssn")
URL = "postgresql://me@db/shop"


def _rules(rule: dict[str, Any], **more: str) -> ColumnRules:
    return ColumnRules.of({"columns": json.dumps({"public.users": rule, **more})})


def _held(rule: dict[str, Any], **more: str) -> ColumnRules:
    """The rules of a lake that has looked at the table."""
    return _rules(rule, **more).fix_columns({USERS: COLUMNS})


@pytest.mark.parametrize(
    ("rule", "out"),
    [({"exclude": ["ssn"]}, ["ssn", "more"]), ({"only": ["id"]}, ["email", "ssn", "more"])],
)
def test_a_column_that_comes_later_stays_out(rule: dict[str, Any], out: list[str]) -> None:
    held = _held(rule)
    assert held.forbidden(USERS, [*COLUMNS, "more"]) == out
    assert ColumnRules.parse(held.text) == held
    assert held.forbidden(TableName("public", "other"), COLUMNS) == []


def test_later_columns_come_in_if_they_are_included() -> None:
    held = _held({"exclude": ["ssn"]}, new_columns="include")
    assert held.forbidden(USERS, [*COLUMNS, "more", "SSN"]) == ["ssn", "SSN"]
    assert ColumnRules.parse(held.text) == held


def test_only_a_column_that_nobody_named_is_late() -> None:
    late = _held({"exclude": ["ssn"]}).late_error(USERS, [*COLUMNS, "more"])
    assert late is not None
    assert (late.code, late.detail) == ("COLUMNS_LATER", '"more"')
    assert _held({"exclude": ["ssn"]}).late_error(USERS, COLUMNS) is None
    assert _held({"only": ["id"]}).late_error(USERS, [*COLUMNS, "more"]) is None


@pytest.mark.parametrize(
    "rule",
    [None, {"exclude": ["email", "ssn"]}, {"exclude": ["email"]}, {"only": ["id"]}, {"only": [*COLUMNS]}],
)
def test_another_rule_of_a_mirrored_table_is_refused(rule: dict[str, Any] | None) -> None:
    wanted = ColumnRules() if rule is None else _rules(rule)
    with pytest.raises(HeadraceError) as refused:
        _held({"exclude": ["ssn"]}).follow(wanted, [USERS])
    assert refused.value.code == "COLUMNS_CHANGED"
    with pytest.raises(HeadraceError):
        ColumnRules().follow(_rules({"exclude": ["ssn"]}), [USERS])
    with pytest.raises(HeadraceError):
        _held({"exclude": ["ssn"]}).follow(_rules({"exclude": ["ssn"]}, new_columns="include"), [USERS])


def test_a_rule_may_name_columns_that_came_later() -> None:
    named = _rules({"only": ["id", "email", "more"]})
    followed = _held({"exclude": ["ssn"]}).follow(named, [USERS])
    assert followed.forbidden(USERS, [*COLUMNS, "more", "last"]) == ["ssn", "last"]
    assert followed.follow(named, [USERS]) == followed


def test_the_rule_of_a_table_that_is_not_mirrored_may_change_until_the_lake_holds_it() -> None:
    before, after = _rules({"exclude": ["ssn"]}), _rules({"only": ["id"]})
    assert before.follow(after, []) == after
    assert before.follow(ColumnRules(), []) == ColumnRules()
    held = _held({"exclude": ["ssn"]})
    assert held.follow(ColumnRules(), []) == held
    with pytest.raises(HeadraceError):
        held.follow(after, [])


def test_flaws_name_what_is_like_it() -> None:
    flaw = rule_flaw(_rules({"exclude": ["emial"]}), USERS, COLUMNS, ("id",))
    assert flaw is not None
    assert (flaw.code, flaw.detail) == ("COLUMNS_UNKNOWN", 'did you mean "email"?')
    [unknown] = unknown_tables(_rules({"exclude": ["ssn"]}), [TableName("public", "users_")])
    assert unknown.error.detail == 'did you mean "public.users_"?'
    # A column that was dropped since the first look is no flaw.
    gone = ColumnRules({USERS: ColumnRule(exclude=("ssn",), columns=("id", "email"))})
    assert rule_flaw(gone, USERS, ("id", "email"), ("id",)) is None


def test_a_configuration_has_rules_as_a_table() -> None:
    rule = {"public.users": {"exclude": ["ssn"]}}
    source = parse_source("main", {"url": URL, "columns": rule})
    assert ColumnRules.of(source.options) == _rules({"exclude": ["ssn"]})
    assert parse_source("main", {"url": URL, "columns": source.options["columns"]}) == source
    with pytest.raises(HeadraceError) as refused:
        parse_source("main", {"url": f"queue+{URL}", "columns": rule})
    assert refused.value.code == "CONFIG_UNKNOWN_KEY"


# --- hashes ------------------------------------------------------------------------------------------

HASHED = {"exclude": ["ssn"], "hash": ["email"]}
KEY, OTHER = {VARIABLE: "5f0c6a1d9e3b47c2" * 2}, {VARIABLE: "x" * 40}


def test_a_hashed_column_leaves_and_does_not_show() -> None:
    held = _held(HASHED)
    assert held.forbidden(USERS, COLUMNS) == ["ssn"]
    assert [held.shows(USERS, column) for column in COLUMNS] == [True, False, False]
    assert held.hashes(USERS, "EMAIL")
    assert rule_flaw(_rules({"hash": ["id"]}), USERS, COLUMNS, ["id"]) is None
    flaw = rule_flaw(_rules({"hash": ["mail"]}), USERS, COLUMNS, ["id"])
    assert flaw is not None
    assert (flaw.code, "email" in (flaw.detail or "")) == ("COLUMNS_UNKNOWN", True)


@pytest.mark.parametrize("rule", [{"exclude": ["email"]}, {"hash": ["email", "id"]}, {"exclude": ["ssn"]}])
def test_a_table_is_never_hashed_in_a_part_of_its_history(rule: dict[str, Any]) -> None:
    for before, after in ((HASHED, rule), (rule, HASHED)):
        with pytest.raises(HeadraceError) as refused:
            _held(before).follow(_rules(after), [USERS])
        assert refused.value.code == "COLUMNS_CHANGED"


def test_a_later_column_may_be_hashed_once_it_is_named() -> None:
    named = _rules({"only": ["id", "email", "more"], "hash": ["email", "more"]})
    followed = _held(HASHED).follow(named, [USERS])
    assert [followed.shows(USERS, column) for column in ("id", "email", "more", "ssn")] == [True] + [
        False
    ] * 3


def test_another_key_is_refused_as_long_as_the_lake_holds_hashes() -> None:
    key, other = hash_key(_rules(HASHED), KEY), hash_key(_rules(HASHED), OTHER)
    assert key is not None
    assert other is not None
    held = _held(HASHED).with_key(key.fingerprint)
    assert ColumnRules.parse(held.text) == held
    assert "hash_key" not in str(held.options)
    assert held.follow(_rules(HASHED), [USERS]).with_key(key.fingerprint) == held
    with pytest.raises(HeadraceError) as refused:
        hash_key(held.follow(_rules(HASHED), []), OTHER)
    assert refused.value.code == "COLUMNS_HASH_KEY_CHANGED"
    unused = _rules(HASHED).with_key(key.fingerprint)
    assert unused.follow(_rules(HASHED), []).with_key(other.fingerprint).hash_key == other.fingerprint
    included = _held(HASHED, new_columns="include").with_key(key.fingerprint)
    with pytest.raises(HeadraceError):
        hash_key(included.follow(_rules(HASHED, new_columns="include"), [USERS]), OTHER)


@pytest.mark.parametrize(
    ("environment", "code"),
    [({}, "COLUMNS_HASH_KEY_MISSING"), ({VARIABLE: "k" * 31}, "COLUMNS_HASH_KEY_SHORT")],
)
def test_a_key_that_protects_nothing_is_refused(environment: dict[str, str], code: str) -> None:
    with pytest.raises(HeadraceError) as refused:
        hash_key(_rules(HASHED), environment)
    assert (refused.value.code, VARIABLE in (refused.value.hint or "")) == (code, True)
    assert hash_key(_rules({"exclude": ["ssn"]}), environment) is None
