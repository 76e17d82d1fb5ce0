"""Keycodes: one byte string for a tuple of values, equal exactly where the tuples are equal.

A keycode is the identity of a row wherever rows are told apart: folding by key, routing changes to
the files that cover a key range, comparing multisets. Codes compare as bytes in the order in which
the tuples compare (NULL first), so a range of keys is a range of codes.

    value        code                                        compares as
    NULL         00                                          before every value
    any other    01, then:
      integers   big-endian, sign bit flipped                numbers (also dates, times, timestamps)
      bool       00 or 01                                    false < true
      floats     bits, flipped by sign, big-endian           IEEE total order: -0.0 < 0.0, NaNs by bits
      decimals   two's complement, big-endian, sign flipped  numbers
      text       utf-8, 00 written as 00 FF, then 00         bytes (PostgreSQL's collation "C")
      binary     as text                                     bytes
      list       01 + code for each element, then 00         element by element (not relied upon)
      struct     the codes of its fields                     field by field

Codes of fixed-width values have a fixed width, also for NULL, which is padded with 00. Every code can
be told from what follows it, hence tuples are simply joined: after a code comes 00, 01 or the end, never
the FF that would make the end of 'a' (00) into the middle of 'a\\0b' (00 FF).

The codes of one column type never change: the ranges in the footers of the lake's files are made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.columns import contiguous, flags

Block = npt.NDArray[np.uint8]  # a row per value, a column per byte

_CODE = pa.large_binary()
_ABSENT, _PRESENT, _END = (pa.scalar(byte, _CODE) for byte in (b"\x00", b"\x01", b"\x00"))
_NOTHING = pa.scalar(b"", _CODE)


def keycode(arrays: Sequence[Any]) -> pa.Array:
    """The keycodes of the tuples that `arrays` (of one length) hold side by side."""
    if not arrays:
        raise ValueError("a keycode needs at least one column")
    parts: list[pa.Array] = []
    blocks: list[Block] = []
    for array in map(contiguous, arrays):
        if array.type.id in _FIXED:
            blocks.append(_block(array))
            continue
        if blocks:
            parts.append(_from_blocks(blocks))
            blocks = []
        parts.append(_variable(array))
    if blocks:
        parts.append(_from_blocks(blocks))
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, _NOTHING)


# ── values of fixed width: a matrix of bytes ────────────────────────────────────────────────────────


def _block(array: pa.Array) -> Block:
    payload = _FIXED[array.type.id](array) if len(array) else np.zeros((0, 1), np.uint8)
    block = np.empty((len(array), payload.shape[1] + 1), np.uint8)
    block[:, 0] = 1
    block[:, 1:] = payload
    if array.null_count:
        # A NULL's slot holds whatever was there: all NULLs must have one code.
        block[~flags(array.is_valid())] = 0
    return block


def _from_blocks(blocks: list[Block]) -> pa.Array:
    """The rows of the blocks, side by side, as an array of byte strings."""
    whole = np.ascontiguousarray(np.hstack(blocks)) if len(blocks) > 1 else blocks[0]
    rows, width = whole.shape
    offsets = np.arange(rows + 1, dtype=np.int64) * width
    return pa.Array.from_buffers(_CODE, rows, [None, pa.py_buffer(offsets), pa.py_buffer(whole)])


def _raw(array: pa.Array, dtype: str) -> npt.NDArray[Any]:
    """The array's own buffer of values, cut to its window."""
    values = np.frombuffer(array.buffers()[1], dtype=dtype)
    return values[array.offset : array.offset + len(array)]


def _bytes_of(values: npt.NDArray[Any]) -> Block:
    """Unsigned numbers as rows of big-endian bytes."""
    width = values.dtype.itemsize
    return values.astype(f">u{width}").view(np.uint8).reshape(-1, width)


def _signed_code(width: int) -> Callable[[pa.Array], Block]:
    def encode(array: pa.Array) -> Block:
        sign = np.array(1 << (8 * width - 1), dtype=f"u{width}")
        return _bytes_of(_raw(array, f"<u{width}") ^ sign)

    return encode


def _unsigned_code(width: int) -> Callable[[pa.Array], Block]:
    return lambda array: _bytes_of(_raw(array, f"<u{width}"))


def _float(width: int) -> Callable[[pa.Array], Block]:
    def encode(array: pa.Array) -> Block:
        bits = _raw(array, f"<u{width}")
        sign = np.array(1 << (8 * width - 1), dtype=bits.dtype)
        # Of two negative numbers the one with the greater magnitude is the smaller.
        return _bytes_of(np.where(bits & sign, ~bits, bits ^ sign))

    return encode


def _bool(array: pa.Array) -> Block:
    return _raw(array.cast(pa.uint8()), "u1").reshape(-1, 1)


def _fixed_bytes(array: pa.Array) -> Block:
    width: int = array.type.byte_width
    raw: Block = np.frombuffer(array.buffers()[1], np.uint8).reshape(-1, width)
    return raw[array.offset : array.offset + len(array)]


def _decimal(array: pa.Array) -> Block:
    block = _fixed_bytes(array)[:, ::-1].copy()
    block[:, 0] ^= 0x80
    return block


_FIXED: dict[int, Callable[[pa.Array], Block]] = {
    pa.bool_().id: _bool,
    pa.int8().id: _signed_code(1),
    pa.int16().id: _signed_code(2),
    pa.int32().id: _signed_code(4),
    pa.int64().id: _signed_code(8),
    pa.uint8().id: _unsigned_code(1),
    pa.uint16().id: _unsigned_code(2),
    pa.uint32().id: _unsigned_code(4),
    pa.uint64().id: _unsigned_code(8),
    pa.float32().id: _float(4),
    pa.float64().id: _float(8),
    pa.date32().id: _signed_code(4),
    pa.timestamp("us").id: _signed_code(8),
    pa.time64("us").id: _signed_code(8),
    pa.duration("us").id: _signed_code(8),
    pa.decimal128(1).id: _decimal,
    pa.decimal256(1).id: _decimal,
    pa.binary(1).id: _fixed_bytes,
}


# ── values of any length: pieces joined by Arrow ────────────────────────────────────────────────────


def _variable(array: pa.Array) -> pa.Array:
    encode = _VARIABLE.get(array.type.id)
    if encode is None:
        raise TypeError(f"values of type {array.type} have no keycode")
    codes = encode(array)
    return pc.fill_null(codes, _ABSENT) if codes.null_count else codes


def _text(array: pa.Array) -> pa.Array:
    values = array.cast(_CODE)
    # PostgreSQL's text holds no NUL, so that nearly always this only looks.
    if pc.any(pc.match_substring(values, b"\x00"), min_count=0).as_py():
        values = pc.replace_substring(values, pattern=b"\x00", replacement=b"\x00\xff")
    return pc.binary_join_element_wise(_PRESENT, values, _END, _NOTHING)


def _list(array: pa.Array) -> pa.Array:
    elements = keycode([array.flatten()])
    marked = pc.binary_join_element_wise(_PRESENT, elements, _NOTHING)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    ends = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    # The elements' codes lie one behind the other: a list's code is a longer window on them.
    offsets = _offsets(marked)[ends]
    body = pa.Array.from_buffers(
        _CODE, len(array), [None, pa.py_buffer(offsets), marked.buffers()[2] or pa.py_buffer(b"")]
    )
    return _where_valid(array, pc.binary_join_element_wise(_PRESENT, body, _END, _NOTHING))


def _struct(array: pa.Array) -> pa.Array:
    fields = keycode(array.flatten())
    return _where_valid(array, pc.binary_join_element_wise(_PRESENT, fields, _NOTHING))


def _offsets(codes: pa.Array) -> npt.NDArray[np.int64]:
    if len(codes) == 0:
        return np.zeros(1, np.int64)
    offsets: npt.NDArray[np.int64] = np.frombuffer(codes.buffers()[1], np.int64)
    return offsets[codes.offset : codes.offset + len(codes) + 1]


def _where_valid(array: pa.Array, codes: pa.Array) -> pa.Array:
    if not array.null_count:
        return codes
    return pc.if_else(array.is_valid(), codes, pa.scalar(None, _CODE))


_VARIABLE: dict[int, Callable[[pa.Array], pa.Array]] = {
    pa.string().id: _text,
    pa.large_string().id: _text,
    pa.binary().id: _text,
    pa.large_binary().id: _text,
    pa.list_(pa.null()).id: _list,
    pa.large_list(pa.null()).id: _list,
    pa.struct([]).id: _struct,
}
