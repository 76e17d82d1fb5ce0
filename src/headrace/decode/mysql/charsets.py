"""Text in other charsets than UTF-8: the bytes that a column holds, to Unicode.

    one byte a character     a kernel over the tables of `single_byte`
    two and more             Python's codecs, one value at a time: the slower path

A value comes as the bytes that the column holds, in a row event as in a result set, so both are decoded here
and nowhere else. Bytes that mean no character are bad: the servers themselves would print a question mark.
Not here are ujis and eucjpms, of which no codec of Python's knows the additions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import pyarrow as pa
from numba import types

from headrace.decode.kernel import Bytes, Lengths, filled, given, kernel
from headrace.decode.kernel import Ints as Starts
from headrace.decode.mysql.single_byte import CHARACTERS, UNDEFINED
from headrace.decode.text import TEXT, TextColumn, validity
from headrace.decode.values.outcome import ABSENT, BAD, GOOD, Decoded

_LONGEST = 3

# Python's codec, and the characters that the servers read otherwise than it does.
_CODECS: Mapping[str, tuple[str, Mapping[int, str]]] = {
    "big5": ("big5", {}),
    "cp932": ("cp932", {}),
    "euckr": ("cp949", {}),
    "gb18030": ("gb18030", {}),
    "gb2312": ("gb2312", {}),
    "gbk": ("gbk", {}),
    "sjis": ("shift_jis", {0xFF3C: "\\"}),
    "ucs2": ("utf-16-be", {}),
    "utf16": ("utf-16-be", {}),
    "utf16le": ("utf-16-le", {}),
    "utf32": ("utf-32-be", {}),
}


NAMES = frozenset(CHARACTERS) | frozenset(_CODECS)


def has_decoder(charset: str) -> bool:
    """Tell whether texts in this charset can be read."""
    return charset in NAMES


def decode_text(column: TextColumn, charset: str) -> Decoded:
    """The texts of a column whose bytes are in this charset."""
    if charset in CHARACTERS:
        return _single_byte(column, charset)
    values = [_one(value, charset) for value in column.binary(pa.binary()).to_pylist()]
    there = column.kinds == TEXT
    missing = np.array([value is None for value in values], np.bool_)
    return Decoded(pa.array(values, pa.string()), np.flatnonzero(there & missing))


def decode_one(value: bytes, charset: str | None) -> str | None:
    """One text; None if its bytes mean none. Without a charset it is UTF-8."""
    if charset is None:
        return _strictly(value, "utf-8")
    if charset in CHARACTERS:
        text = "".join(map(CHARACTERS[charset].__getitem__, value))
        return None if UNDEFINED in text else text
    return _one(value, charset)


def _one(value: bytes | None, charset: str) -> str | None:
    codec, instead = _CODECS[charset]
    text = None if value is None else _strictly(value, codec)
    return text.translate(dict(instead)) if text is not None and instead else text


def _strictly(value: bytes, codec: str) -> str | None:
    try:
        return value.decode(codec)
    except UnicodeDecodeError:
        return None


# ── one byte a character ────────────────────────────────────────────────────────────────────────────


@cache
def _table(charset: str) -> tuple[Bytes, Bytes]:
    """Of each byte the length of its character in UTF-8 (0 for none), and that."""
    lengths, codes = np.zeros(256, np.uint8), np.zeros((256, _LONGEST), np.uint8)
    for byte, character in enumerate(CHARACTERS[charset]):
        if character != UNDEFINED:
            encoded = character.encode()
            lengths[byte] = len(encoded)
            codes[byte, : len(encoded)] = list(encoded)
    return lengths, codes


def _single_byte(column: TextColumn, charset: str) -> Decoded:
    widths, codes = _table(charset)
    offsets, states = np.empty(len(column) + 1, np.int32), np.empty(len(column), np.uint8)
    total = _measure(column.kinds, column.starts, column.lengths, column.data, widths, offsets, states)
    if total > np.iinfo(np.int32).max:
        raise ValueError(f"a column of {total} bytes in one batch: pass smaller buffers")
    joined = np.empty(total, np.uint8)
    _fill(column.starts, column.lengths, column.data, widths, codes, states, offsets, joined)
    buffers = [validity(states == GOOD), pa.py_buffer(offsets), pa.py_buffer(joined)]
    array = pa.Array.from_buffers(pa.string(), len(column), buffers)
    return Decoded(array, np.flatnonzero(states == BAD))


@kernel(
    types.int64,
    given(types.uint8),
    given(types.int64),
    given(types.int32),
    given(types.uint8),
    given(types.uint8),
    filled(types.int32),
    filled(types.uint8),
)
def _measure(
    kinds: Bytes,
    starts: Starts,
    lengths: Lengths,
    data: Bytes,
    widths: Bytes,
    offsets: Lengths,
    states: Bytes,
) -> int:
    """Find where each text will end, and whether all of its bytes mean something."""
    total = 0
    offsets[0] = 0
    for i in range(len(kinds)):
        states[i] = ABSENT
        if kinds[i] == TEXT:
            size, state = 0, GOOD
            for at in range(starts[i], starts[i] + lengths[i]):
                width = int(widths[data[at]])
                size += width
                if width == 0:
                    state = BAD
            states[i] = state
            if state == GOOD:
                total += size
        offsets[i + 1] = total
    return total


@kernel(
    types.void,
    given(types.int64),
    given(types.int32),
    given(types.uint8),
    given(types.uint8),
    given(types.uint8, 2),
    given(types.uint8),
    given(types.int32),
    filled(types.uint8),
)
def _fill(
    starts: Starts,
    lengths: Lengths,
    data: Bytes,
    widths: Bytes,
    codes: Bytes,
    states: Bytes,
    offsets: Lengths,
    joined: Bytes,
) -> None:
    for i in range(len(states)):
        if states[i] != GOOD:
            continue
        to = int(offsets[i])
        for at in range(starts[i], starts[i] + lengths[i]):
            byte = data[at]
            for j in range(widths[byte]):
                joined[to] = codes[byte, j]
                to += 1
