"""Keyed hashes: what they are, and what their key shows of itself."""

from __future__ import annotations

import hashlib

from headrace.core.hashing import DIGITS, HashKey

KEY = HashKey("5f0c6a1d9e3b47c2" * 2)


def test_a_hash_is_keyed_blake2_in_hexadecimal() -> None:
    told = hashlib.blake2b(b"ada@example.com", key=KEY.text.encode(), digest_size=16).hexdigest()
    assert KEY.hash(b"ada@example.com") == told
    assert len(told) == DIGITS
    assert HashKey(KEY.text + "x").hash(b"ada@example.com") != told


def test_a_key_may_be_longer_than_blake2_takes() -> None:
    long = HashKey("k" * 65)
    assert long.hash(b"a") != HashKey("k" * 64).hash(b"a")
    assert long.hash(b"a") == long.hash(b"a")


def test_bytes_that_are_no_utf8_have_a_hash_of_their_own() -> None:
    assert KEY.hash(b"\xff") == KEY.hash(b"\\xff")


def test_a_key_shows_nothing_of_itself() -> None:
    assert KEY.text not in repr(KEY) + KEY.fingerprint + KEY.hash(KEY.text.encode())
    assert KEY.fingerprint != HashKey("x" * 32).fingerprint
