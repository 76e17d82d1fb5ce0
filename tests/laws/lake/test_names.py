"""Names on disk: spelled so that they can be read back, and only with characters that every reader takes."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from headrace.lake.format import layout

NAMES = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), st.sampled_from("_x0A2 ")),
    min_size=1,
    max_size=20,
)
_SAFE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.\-]*")


@given(NAMES)
@example("_x0020_")
@example("_x0020 ")
@example("_x005F_x0020_")
@example(".")
@example("..")
def test_a_name_in_a_path_is_safe_and_read_back(name: str) -> None:
    quoted = layout.quote(name)
    assert _SAFE.fullmatch(quoted)
    assert layout.unquote(quoted) == name


@given(NAMES)
@example("_x0020=")
@example("a=b")
def test_a_column_is_free_of_what_delta_forbids_and_read_back(name: str) -> None:
    quoted = layout.lake_column(name)
    assert not set(quoted) & set(" ,;{}()\n\t=")
    assert layout.unquote(quoted) == name


@given(st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True).filter(lambda name: "_x" not in name))
def test_plain_names_stay_as_they_are(name: str) -> None:
    assert layout.quote(name) == layout.lake_column(name) == name
