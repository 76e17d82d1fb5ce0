"""Sealed secrets: either half says nothing, both together say all."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.spark.secrets import Key, SealedSecret, seal


@settings(max_examples=60)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
def test_what_is_sealed_opens_with_its_key_also_after_a_journey(text: str) -> None:
    sealed, key = pickle.loads(pickle.dumps(seal(text)))
    assert sealed.open(key) == text


def test_neither_half_holds_the_secret_nor_shows_itself() -> None:
    sealed, key = seal("hunter2-hunter2")
    for half in (sealed, key):
        assert b"hunter2" not in pickle.dumps(half)
        assert repr(half) == f"{type(half).__name__}(...)"
        assert str(half) == repr(half)


def test_two_seals_of_one_secret_have_nothing_in_common() -> None:
    (one, its_key), (other, other_key) = seal("hunter2"), seal("hunter2")
    assert one.data != other.data
    assert its_key.pad != other_key.pad


def test_the_length_of_a_secret_does_not_show() -> None:
    assert {len(seal("x" * size)[0].data) for size in range(50)} == {64}


def test_a_wrong_key_is_an_error_without_the_secret() -> None:
    sealed, _ = seal("hunter2")
    _, other = seal("hunter2")
    for key in (other, Key(b"short")):
        with pytest.raises(ValueError, match="another key") as caught:
            sealed.open(key)
        assert "hunter2" not in str(caught.value)


def test_a_changed_half_is_noticed() -> None:
    sealed, key = seal("hunter2")
    bent = bytearray(sealed.data)
    bent[14] ^= 1
    with pytest.raises(ValueError, match="another key"):
        SealedSecret(bytes(bent)).open(key)
