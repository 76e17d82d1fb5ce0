"""numeric(p, s) with 0 <= s <= p <= 38, as decimal128.

    -?[0-9]+(\\.[0-9]+)?      at most s digits after the point (fewer are padded), at most p in all

A numeric column may hold NaN and the infinities; a decimal can't, so they are bad.

The number is built in four 32-bit limbs, nine digits at a time, so that no step overflows 64 bits. A negative
number is complemented at the end. On a little-endian machine the limbs have decimal128's own layout.
"""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from headrace.decode.kernel import Bytes, Ints, Lengths, input_array, kernel, output_array, several
from headrace.decode.text import TEXT, TextColumn
from headrace.decode.values.outcome import ABSENT, BAD, GOOD, DecodedColumn, fixed_width

assert sys.byteorder == "little"

Limbs = npt.NDArray[np.uint32]
_ZERO, _MINUS, _POINT = ord("0"), ord("-"), ord(".")
_CHUNK = 9
TENS = np.array([10**i for i in range(_CHUNK + 1)], np.int64)


def decode(column: TextColumn, type: pa.DataType) -> DecodedColumn:
    """Form `decimal`."""
    limbs, states = np.zeros((len(column), 4), np.uint32), np.empty(len(column), np.uint8)
    _parse(
        column.kinds,
        column.starts,
        column.lengths,
        column.data,
        type.precision,
        type.scale,
        limbs,
        states,
    )
    return fixed_width(type, limbs, states)


@kernel(types.void, output_array(types.uint32, 2), types.int64, types.int64, types.int64)
def append_digits(limbs: Limbs, row: int, digits: int, chunk: int) -> None:
    """Append `digits` (at most nine) decimal digits, whose value is `chunk`, to the number."""
    carry, tens = chunk, int(TENS[digits])
    for i in range(4):
        carry += int(limbs[row, i]) * tens
        limbs[row, i] = carry & 0xFFFFFFFF
        carry >>= 32


@kernel(types.void, output_array(types.uint32, 2), types.int64)
def negate(limbs: Limbs, row: int) -> None:
    carry = 1
    for i in range(4):
        carry += int(limbs[row, i]) ^ 0xFFFFFFFF
        limbs[row, i] = carry & 0xFFFFFFFF
        carry >>= 32


@kernel(several(types.int64, types.int64), input_array(types.uint8), types.int64, types.int64)
def _shape(data: Bytes, at: int, stop: int) -> tuple[int, int]:
    """Count the digits before and after the point; -1 if this is no number."""
    start, point = at, -1
    for i in range(at, stop):
        if data[i] == _POINT and point < 0:
            point = i
        elif data[i] < _ZERO or data[i] > _ZERO + 9:
            return -1, -1
    if point < 0:
        return (stop - start, 0) if stop > start else (-1, -1)
    if point == start or point == stop - 1:
        return -1, -1
    return point - start, stop - point - 1


@kernel(
    types.int64,
    input_array(types.uint8),
    types.int64,
    types.int64,
    types.int64,
    types.int64,
    output_array(types.uint32, 2),
    types.int64,
)
def _number(data: Bytes, at: int, stop: int, precision: int, scale: int, limbs: Limbs, row: int) -> int:
    """Build the number, without its sign, from `data[at:stop]` padded to the scale."""
    whole, fraction = _shape(data, at, stop)
    while whole > 0 and data[at] == _ZERO:
        at, whole = at + 1, whole - 1
    if whole < 0 or fraction > scale or whole + scale > precision:
        return BAD
    chunk = digits = 0
    for i in range(at, stop + scale - fraction):
        if i < stop and data[i] == _POINT:
            continue
        chunk = chunk * 10 + (int(data[i]) - _ZERO if i < stop else 0)
        digits += 1
        if digits == _CHUNK:
            append_digits(limbs, row, digits, chunk)
            chunk = digits = 0
    append_digits(limbs, row, digits, chunk)
    return GOOD


@kernel(
    types.void,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int32),
    input_array(types.uint8),
    types.int64,
    types.int64,
    output_array(types.uint32, 2),
    output_array(types.uint8),
)
def _parse(
    kinds: Bytes,
    starts: Ints,
    lengths: Lengths,
    data: Bytes,
    precision: int,
    scale: int,
    limbs: Limbs,
    states: Bytes,
) -> None:
    for i in range(len(kinds)):
        states[i] = ABSENT
        if kinds[i] != TEXT:
            continue
        at, stop = starts[i], starts[i] + lengths[i]
        minus = at < stop and data[at] == _MINUS
        states[i] = _number(data, at + 1 if minus else at, stop, precision, scale, limbs, i)
        if minus:
            negate(limbs, i)
