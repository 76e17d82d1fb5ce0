"""Text in charsets other than UTF-8: the bytes that a column holds, to Unicode.

    one byte a character     a kernel over the tables of `single_byte`
    two and more             Python's codecs, one value at a time, which is slower; and the characters that
                             these codecs lack: in ujis and eucjpms the user's own, in eucjpms those of NEC
                             and IBM, in big5 those of ETEN

A row event and a result set both hold a value as the bytes of its column, so both are decoded here and
nowhere else. A value with bytes that mean no character is bad. The servers themselves would print a question
mark.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np
import pyarrow as pa
from numba import types

from headrace.decode.kernel import Bytes, Lengths, input_array, kernel, output_array
from headrace.decode.kernel import Ints as Starts
from headrace.decode.mysql.single_byte import CHARACTERS, UNDEFINED
from headrace.decode.text import TEXT, TextColumn, validity
from headrace.decode.values.outcome import ABSENT, BAD, GOOD, DecodedColumn

_LONGEST = 3

_OWN_ROWS, _CELLS = range(0xF5, 0xFF), range(0xA1, 0xFF)


def _cells(codes: Iterable[bytes], codec: str) -> list[str]:
    """The characters of these codes; those that have none are left out."""
    return [text for code in codes if (text := _strictly(code, codec)) is not None]


def _additions_of_ujis() -> dict[bytes, str]:
    """The user's own characters: ten rows of 94 cells, twice."""
    codes = [mark + bytes([row, cell]) for mark in (b"", b"\x8f") for row in _OWN_ROWS for cell in _CELLS]
    return {code: chr(0xE000 + i) for i, code in enumerate(codes)}


def _additions_of_eucjpms() -> dict[bytes, str]:
    """The additions of ujis; row 13 as NEC has it; after the rows of 0212, IBM's that 0208 and 0212 lack."""
    trails = [*range(0x40, 0x7F), *range(0x80, 0xFD)]
    nec = {
        bytes([0xAD, cell]): _strictly(bytes([0x87, t]), "cp932")
        for cell, t in zip(_CELLS, trails, strict=False)
    }
    ibm = [
        text
        for text in _cells((bytes([lead, trail]) for lead in (0xFA, 0xFB, 0xFC) for trail in trails), "cp932")
        if text == "№" or (text not in "￢￤∵" and not _encodes(text, "euc_jp"))
    ]
    codes = [bytes([0x8F, row, cell]) for row in (0xF3, 0xF4) for cell in _CELLS]
    own = zip(codes[-len(ibm) :], ibm, strict=True)
    return {**_additions_of_ujis(), **{k: v for k, v in nec.items() if v is not None}, **dict(own)}


def _encodes(text: str, codec: str) -> bool:
    try:
        text.encode(codec)
    except UnicodeEncodeError:
        return False
    return True


def _additions_of_big5() -> dict[bytes, str]:
    """Seven characters of ETEN, which the codec lacks."""
    return {bytes([0xF9, 0xD6 + i]): text for i, text in enumerate("碁銹裏墻恒粧嫺")}


_ADDITIONS: Mapping[str, Callable[[], dict[bytes, str]]] = {
    "big5": cache(_additions_of_big5),
    "eucjpms": cache(_additions_of_eucjpms),
    "ujis": cache(_additions_of_ujis),
}


def _add_codes(charset: str, error: UnicodeError) -> tuple[str, int]:
    """Read a code that the codec does not know. Python calls this as the handler of the codec's errors."""
    assert isinstance(error, UnicodeDecodeError)
    at = error.start
    code = error.object[at : at + (3 if error.object[at] == 0x8F else 2)]
    text = _ADDITIONS[charset]().get(code)
    if text is None:
        raise error
    return text, at + len(code)


for _charset in _ADDITIONS:
    codecs.register_error(f"headrace.{_charset}", partial(_add_codes, _charset))
_AS_IN_CP932 = dict(zip(map(ord, "〜‖−¢£¬¦"), "～∥－￠￡￢￤", strict=True))
_TILDE, _WAVE = b"\x8f\xa2\xb7", b"\xa1\xc1"  # no other code has the first byte of the first


@dataclass(frozen=True, slots=True)
class _Codec:
    """Python's codec, what the servers read differently, and a reader of the characters that it lacks."""

    name: str
    instead: Mapping[int, str] = field(default_factory=dict)
    errors: str = "strict"


_CODECS: Mapping[str, _Codec] = {
    "big5": _Codec("big5", errors="headrace.big5"),
    "cp932": _Codec("cp932", dict.fromkeys((0x80, *range(0xF8F0, 0xF8F4)), UNDEFINED)),
    "eucjpms": _Codec("euc_jp", _AS_IN_CP932, "headrace.eucjpms"),
    "euckr": _Codec("cp949"),
    "gb18030": _Codec("gb18030", {0xE7C7: "\u1e3f", 0x1E3F: "\ue7c7"}),
    "gb2312": _Codec("gb2312"),
    "gbk": _Codec("gbk"),
    "sjis": _Codec("shift_jis", {0xFF3C: "\\"}),
    "ucs2": _Codec("utf-16-be"),
    "ujis": _Codec("euc_jp", {0xFF3C: "\\"}, "headrace.ujis"),
    "utf16": _Codec("utf-16-be"),
    "utf16le": _Codec("utf-16-le"),
    "utf32": _Codec("utf-32-be"),
}
NAMES = frozenset(CHARACTERS) | frozenset(_CODECS)


def has_decoder(charset: str) -> bool:
    """Tell whether texts in this charset can be read."""
    return charset in NAMES


def decode_text(column: TextColumn, charset: str) -> DecodedColumn:
    """The texts of a column whose bytes are in this charset."""
    if charset in CHARACTERS:
        return _single_byte(column, charset)
    values = [_one(value, charset) for value in column.binary(pa.binary()).to_pylist()]
    there = column.kinds == TEXT
    missing = np.array([value is None for value in values], np.bool_)
    return DecodedColumn(pa.array(values, pa.string()), np.flatnonzero(there & missing))


def decode_one(value: bytes, charset: str | None) -> str | None:
    """Decode one text; None if its bytes are not valid. Without a charset it is UTF-8."""
    if charset is None:
        return _strictly(value, "utf-8")
    if charset in CHARACTERS:
        text = "".join(map(CHARACTERS[charset].__getitem__, value))
        return None if UNDEFINED in text else text
    return _one(value, charset)


def _one(value: bytes | None, charset: str) -> str | None:
    if value is None:
        return None
    codec = _CODECS[charset]
    if charset == "eucjpms":
        value = value.replace(_TILDE, _WAVE)
    text = _strictly(value, codec.name, codec.errors)
    if text is None or not codec.instead:
        return text
    text = text.translate(dict(codec.instead))
    return None if UNDEFINED in text and charset == "cp932" else text


def _strictly(value: bytes, codec: str, errors: str = "strict") -> str | None:
    try:
        return value.decode(codec, errors)
    except UnicodeDecodeError:
        return None


# ── one byte a character ────────────────────────────────────────────────────────────────────────────


@cache
def _table(charset: str) -> tuple[Bytes, Bytes]:
    """Make a charset's tables: each byte's character in UTF-8, and its length (0: the byte means nothing)."""
    lengths, codes = np.zeros(256, np.uint8), np.zeros((256, _LONGEST), np.uint8)
    for byte, character in enumerate(CHARACTERS[charset]):
        if character != UNDEFINED:
            encoded = character.encode()
            lengths[byte] = len(encoded)
            codes[byte, : len(encoded)] = list(encoded)
    return lengths, codes


def _single_byte(column: TextColumn, charset: str) -> DecodedColumn:
    widths, codes = _table(charset)
    offsets, states = np.empty(len(column) + 1, np.int32), np.empty(len(column), np.uint8)
    total = _measure(column.kinds, column.starts, column.lengths, column.data, widths, offsets, states)
    if total > np.iinfo(np.int32).max:
        raise ValueError(f"a column of {total} bytes in one batch: pass smaller buffers")
    joined = np.empty(total, np.uint8)
    _fill(column.starts, column.lengths, column.data, widths, codes, states, offsets, joined)
    buffers = [validity(states == GOOD), pa.py_buffer(offsets), pa.py_buffer(joined)]
    array = pa.Array.from_buffers(pa.string(), len(column), buffers)
    return DecodedColumn(array, np.flatnonzero(states == BAD))


@kernel(
    types.int64,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int32),
    input_array(types.uint8),
    input_array(types.uint8),
    output_array(types.int32),
    output_array(types.uint8),
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
    """Find where each text will end, and whether every byte of it means a character."""
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
    input_array(types.int64),
    input_array(types.int32),
    input_array(types.uint8),
    input_array(types.uint8),
    input_array(types.uint8, 2),
    input_array(types.uint8),
    input_array(types.int32),
    output_array(types.uint8),
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
