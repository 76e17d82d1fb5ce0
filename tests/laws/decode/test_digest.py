"""Digests are those of the reference, and what was published of the function."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.decode.digest import digests
from headrace_testing.reference.digest import digest


def _found(values: pa.Array) -> list[tuple[int, int]]:
    low, high = digests(values)
    return list(zip(low.tolist(), high.tolist(), strict=True))


@given(st.lists(st.binary(max_size=70)), st.integers(0, 3))
def test_digests_are_those_of_the_reference(values: list[bytes], start: int) -> None:
    for kind in (pa.binary(), pa.large_binary()):
        array = pa.array(values, kind)
        assert _found(array) == [digest(value) for value in values]
        assert _found(array[start:]) == [digest(value) for value in values[start:]]


def test_digests_are_those_of_murmurhash3() -> None:
    assert _found(pa.array([b"", b"hello"])) == [(0, 0), (0xCBD8A7B341BD9B02, 0x5B1E906A48AE1D19)]


def test_null_has_no_digest() -> None:
    with pytest.raises(ValueError, match="NULL"):
        digests(pa.array([b"a", None]))
