"""Names of what we make upstream fit a slot, and no two sources share one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.postgres.objects import object_name


@given(st.text(min_size=1, max_size=80))
def test_a_name_made_upstream_is_one_that_a_slot_may_have(source: str) -> None:
    assert re.fullmatch(r"headrace_1a2b3c4d_[a-z0-9_]+", object_name("1A2B3C4D-rest", source))
    assert len(object_name("1A2B3C4D-rest", source)) <= 63


@pytest.mark.parametrize(("one", "other"), [("a-b", "a_b"), ("A", "a"), ("x" * 70, "x" * 71), ("ä", "ö")])
def test_two_sources_never_share_a_name_upstream(one: str, other: str) -> None:
    assert object_name("1a2b3c4d", one) != object_name("1a2b3c4d", other)
