"""The 64 bits of a transaction are told from 32 and a number near by."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.postgres.writers import widen


@given(st.integers(2**31, 2**40), st.integers(-(2**31), 2**31 - 1))
def test_an_xid_widens_to_the_one_next_to_the_reference(near: int, distance: int) -> None:
    wide = near + distance
    assert widen(wide & 0xFFFF_FFFF, near) == wide
