"""People name tables by wildcards, by quotes, and by a bare name that is unique or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import Misconfigured
from headrace.core.names import TableName
from headrace.sources.shared.patterns import Pattern, select

NAMES = [
    TableName("public", "orders"),
    TableName("public", "order_items"),
    TableName("public", "Orders"),
    TableName("sales", "orders"),
    TableName("Odd * Schema", 'a"b.c'),
    TableName("sales", "naïve\nname"),
]


def named(text: str) -> list[str]:
    return [f"{name.schema}/{name.name}" for name in Pattern.parse(text).of(NAMES)]


def test_a_star_is_any_characters_within_its_part() -> None:
    assert named("public.order*") == ["public/order_items", "public/orders"]
    assert named("*.orders") == ["public/orders", "sales/orders"]
    assert len(named("*.*")) == len(NAMES)


def test_a_question_mark_is_one_character() -> None:
    assert named("public.?rders") == ["public/Orders", "public/orders"]
    assert named("public.orders?") == []


def test_names_keep_their_case() -> None:
    assert named("public.Orders") == ["public/Orders"]


def test_quoted_parts_mean_themselves() -> None:
    assert named('"Odd * Schema"."a""b.c"') == ['Odd * Schema/a"b.c']
    assert named('"*".*') == []


def test_other_characters_of_a_pattern_are_not_special() -> None:
    assert named("public.orde+s") == []
    assert named("sales.na?ve*") == ["sales/naïve\nname"]


def test_a_bare_name_is_looked_for_in_every_schema() -> None:
    assert named("order_items") == ["public/order_items"]


def test_a_bare_name_in_two_schemas_is_refused() -> None:
    with pytest.raises(Misconfigured) as caught:
        named("orders")
    assert caught.value.code == "TABLE_AMBIGUOUS"
    assert "sales.orders" in str(caught.value.detail)


def selected(*texts: str) -> list[str]:
    return [f"{name.schema}/{name.name}" for name in select(texts, NAMES).check().names]


def test_an_exclusion_leaves_out_what_others_match_wherever_it_stands() -> None:
    for texts in (("public.*", "!public.order*"), ("!public.order*", "public.*")):
        assert selected(*texts) == ["public/Orders"]
    assert selected("*.*", "!sales.*", '!"Odd * Schema".*', "!public.*", "public.Orders") == []


def test_a_bare_name_is_unique_when_the_others_are_excluded() -> None:
    assert selected("orders", "!sales.*") == ["public/orders"]


def test_exclusions_alone_take_nothing_and_are_refused() -> None:
    with pytest.raises(Misconfigured) as caught:
        selected("!public.orders")
    assert caught.value.code == "PATTERN_ONLY_EXCLUDES"


def test_a_selection_tells_what_was_meant_and_what_matched_nothing() -> None:
    selection = select(["public.*", "public.orders", "nothing.*", "!nowhere.at_all", '"!x".y'], NAMES)
    assert selection.named_tables == {TableName("public", "orders")}
    assert [pattern.text for pattern in selection.empty] == ["!nowhere.at_all", "nothing.*", '"!x".y']
    assert selection.errors == ()
    broken = select(["a.b.c", "orders", "public.*"], NAMES)
    assert [error.code for error in broken.errors] == ["PATTERN_MALFORMED", "TABLE_AMBIGUOUS"]
    assert len(broken.names) == 3


@pytest.mark.parametrize("text", ["", "!", ".", "a.", ".b", "a.b.c", '"a', 'a"b"', '"a"b.c', "a..b"])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        Pattern.parse(text)
    assert caught.value.code == "PATTERN_MALFORMED"


@given(st.builds(TableName, st.text(min_size=1), st.text(min_size=1)))
def test_every_name_is_matched_by_its_own_spelling(name: TableName) -> None:
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in (name.schema, name.name))
    pattern = Pattern.parse(quoted)
    assert pattern.exact
    assert pattern.matches(name)
    assert not pattern.matches(TableName(name.schema, name.name + "x"))


def test_a_pattern_that_names_nothing_asks_for_names_that_are_near() -> None:
    names = [TableName("public", "orders"), TableName("public", "customers"), TableName("crm", "people")]
    assert Pattern.parse("public.ordres").near(names) == 'did you mean "public.orders"?'
    assert Pattern.parse("custommers").near(names) == 'did you mean "public.customers"?'
    assert Pattern.parse("pubic.*").near(names) == 'did you mean "public.*"?'
    assert Pattern.parse("!crm.peeple").near(names) == 'did you mean "crm.people"?'
    assert Pattern.parse("sales.*").near(names) is None
