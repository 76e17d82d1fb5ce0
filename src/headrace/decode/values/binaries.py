"""bytea: `\\x` and two hexadecimal digits a byte (bytea_output = hex, pinned); anything else is bad."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numba import types

from headrace.decode.kernel import Bytes, Ints, Lengths, input_array, kernel, output_array
from headrace.decode.text import TEXT, TextColumn, validity
from headrace.decode.values.outcome import ABSENT, BAD, GOOD, DecodedColumn

_NO_DIGIT = 255
_DIGITS = np.full(256, _NO_DIGIT, np.uint8)
for _i, _letter in enumerate(b"0123456789abcdef"):
    _DIGITS[_letter] = _i
_BACKSLASH, _X = ord("\\"), ord("x")


def decode(column: TextColumn, type: pa.DataType) -> DecodedColumn:
    """Form `bytea`."""
    offsets, states = np.empty(len(column) + 1, np.int32), np.empty(len(column), np.uint8)
    total = _check(column.kinds, column.starts, column.lengths, column.data, offsets, states)
    joined = np.empty(total, np.uint8)
    _fill(column.starts, column.data, states, offsets, joined)
    buffers = [validity(states == GOOD), pa.py_buffer(offsets), pa.py_buffer(joined)]
    array = pa.Array.from_buffers(type, len(column), buffers)
    return DecodedColumn(array, np.flatnonzero(states == BAD))


@kernel(types.int64, input_array(types.uint8), types.int64, types.int64)
def _state(data: Bytes, at: int, length: int) -> int:
    if length < 2 or length % 2 or data[at] != _BACKSLASH or data[at + 1] != _X:
        return BAD
    for i in range(at + 2, at + length):
        if _DIGITS[data[i]] == _NO_DIGIT:
            return BAD
    return GOOD


@kernel(
    types.int64,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int32),
    input_array(types.uint8),
    output_array(types.int32),
    output_array(types.uint8),
)
def _check(kinds: Bytes, starts: Ints, lengths: Lengths, data: Bytes, offsets: Lengths, states: Bytes) -> int:
    total = 0
    offsets[0] = 0
    for i in range(len(kinds)):
        states[i] = ABSENT
        if kinds[i] == TEXT:
            states[i] = _state(data, starts[i], lengths[i])
            if states[i] == GOOD:
                total += lengths[i] // 2 - 1
        offsets[i + 1] = total
    return total


@kernel(
    types.void,
    input_array(types.int64),
    input_array(types.uint8),
    input_array(types.uint8),
    input_array(types.int32),
    output_array(types.uint8),
)
def _fill(starts: Ints, data: Bytes, states: Bytes, offsets: Lengths, joined: Bytes) -> None:
    for i in range(len(states)):
        if states[i] != GOOD:
            continue
        at = starts[i] + 2
        for j in range(offsets[i], offsets[i + 1]):
            joined[j] = (_DIGITS[data[at]] << 4) | _DIGITS[data[at + 1]]
            at += 2
