"""Hashes of values: a rule of columns may let a value leave as a keyed hash, and never as it is.

    hash(text) = BLAKE2b(text, key), 16 bytes, written as 32 hexadecimal digits

`text` is the value as the source prints it, in UTF-8. Equal texts have equal hashes, in every table and every
source with the same key, so hashed columns can be joined. Without the key nobody can find a value by trying
all values out, and the key is nowhere in a lake: only its fingerprint is, so that another key is noticed.

A receiver uses this module: it loads no Arrow.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

DIGITS = 32  # of a hash
LEAST_CHARACTERS = 32  # of a key: a shorter one could be guessed, and with it the values
_LONGEST_KEY = 64  # bytes that BLAKE2b takes
_FORM = "hashed("


@dataclass(frozen=True, slots=True, repr=False)
class HashKey:
    """The key of the hashes; never show it."""

    text: str = field(repr=False)

    def hash(self, text: bytes) -> str:
        """The hash of a value's text; bytes that are not UTF-8 count as the errors table would show them."""
        return hashlib.blake2b(_as_utf8(text), key=self._bytes, digest_size=DIGITS // 2).hexdigest()

    @property
    def fingerprint(self) -> str:
        """A mark of the key that a lake may hold; it tells nothing of the key or of a value."""
        return hashlib.blake2b(key=self._bytes, digest_size=8, person=b"headrace key").hexdigest()

    @property
    def _bytes(self) -> bytes:
        key = self.text.encode("utf-8", "surrogateescape")
        return key if len(key) <= _LONGEST_KEY else hashlib.blake2b(key).digest()

    def __repr__(self) -> str:
        return "HashKey(...)"


def _as_utf8(text: bytes) -> bytes:
    try:
        text.decode()
    except UnicodeDecodeError:
        return text.decode("utf-8", "backslashreplace").encode()
    return text


def hashed_form(form: str) -> str:
    """The form of a hashed column whose values have this form at the source."""
    return f"{_FORM}{form})"


def is_hashed_form(form: str) -> bool:
    """Tell whether a form is that of a hashed column."""
    return form.startswith(_FORM)


def clear_form(form: str) -> str:
    """The form of a hashed column's values at the source."""
    return form[len(_FORM) : -1]
