"""Numbers of a row event: integers, bits, floating-point numbers and decimals, as their engines store them.

    TINY … LONGLONG    little endian, 1, 2, 3, 4 or 8 bytes; the layout says whether there is a sign
    BIT                big endian, as many bytes as its bits need
    YEAR               one byte: years since 1900, or 0
    FLOAT, DOUBLE      IEEE
    DECIMAL            big endian groups of nine digits, four bytes each; a shorter group at either end

    decimal(14,4)  1234567890.1234     81 0D FB 38 D2 04 D2      the first bit is turned, for order
                   ↑ 1 | 234567890 . 1234                        a negative number has all bits turned

Decimals of up to 38 digits become decimal128. Its four limbs are built nine digits at a time, as in
`values.decimals`. Longer decimals become text, with all digits of their scale. No server writes a group whose
number has more digits than the group: such a value is bad.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from headrace.decode.kernel import Bytes, Ints, input_array, kernel, output_array, several
from headrace.decode.mysql.table_map import LayoutColumn
from headrace.decode.text import TEXT, TextColumn, validity
from headrace.decode.values.decimals import TENS, Limbs, append_digits, negate
from headrace.decode.values.outcome import BAD, GOOD, DecodedColumn, fixed_width

assert sys.byteorder == "little"

_WIDTHS: dict[pa.DataType, npt.DTypeLike] = {
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
}
_DIGITS = 9
_SIGN = 0x80
_ZERO, _MINUS, _POINT = ord("0"), ord("-"), ord(".")
# The bytes of a group, by its number of digits; and the powers of ten.
_GROUP_BYTES = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.int64)
_MOST_DIGITS = 65


def states_of(column: TextColumn) -> Bytes:
    """The states of a column whose values are all good."""
    states: Bytes = (column.kinds == TEXT).astype(np.uint8)
    return states


def read_unsigned(column: TextColumn, width: int) -> npt.NDArray[np.uint64]:
    """Read numbers of `width` bytes, little endian; 0 where there is no value."""
    values = np.empty(len(column), np.int64)
    _little(column.kinds, column.starts, column.data, width, False, values)
    return values.view(np.uint64)


def integers(column: TextColumn, layout: LayoutColumn, type: pa.DataType) -> DecodedColumn:
    """Form `int`; also form `decimal` of an unsigned bigint."""
    values = np.empty(len(column), np.int64)
    _little(column.kinds, column.starts, column.data, layout.width, not layout.is_unsigned, values)
    if pa.types.is_decimal(type):
        return _unsigned_column(values, column, type)
    return fixed_width(type, values.astype(_WIDTHS[type], copy=False), states_of(column))


def years(column: TextColumn, layout: LayoutColumn, type: pa.DataType) -> DecodedColumn:
    """Form `year`."""
    values = np.empty(len(column), np.int64)
    _little(column.kinds, column.starts, column.data, layout.width, False, values)
    return fixed_width(type, np.where(values == 0, 0, values + 1900).astype(np.int16), states_of(column))


def bits(column: TextColumn, layout: LayoutColumn, type: pa.DataType) -> DecodedColumn:
    """Form `bit`."""
    values = np.empty(len(column), np.int64)
    _big(column.kinds, column.starts, column.data, layout.width, values)
    if pa.types.is_decimal(type):
        return _unsigned_column(values, column, type)
    if pa.types.is_boolean(type):
        return fixed_width(type, np.packbits(values != 0, bitorder="little"), states_of(column))
    return fixed_width(type, values.astype(_WIDTHS[type], copy=False), states_of(column))


def floats(column: TextColumn, layout: LayoutColumn, type: pa.DataType) -> DecodedColumn:
    """Form `float`."""
    values = np.empty(len(column), np.int64)
    _little(column.kinds, column.starts, column.data, layout.width, False, values)
    stored: npt.NDArray[Any] = values if layout.width == 8 else values.astype(np.uint32)
    return fixed_width(type, stored, states_of(column))


def _unsigned_column(values: Ints, column: TextColumn, type: pa.DataType) -> DecodedColumn:
    """Unsigned numbers of 64 bits, as decimal128."""
    pairs = np.zeros((len(values), 2), np.int64)
    pairs[:, 0] = values
    return fixed_width(type, pairs, states_of(column))


def decimals(column: TextColumn, layout: LayoutColumn, type: pa.DataType) -> DecodedColumn:
    """Form `decimal`."""
    if layout.first == 0:  # a bigint
        return integers(column, layout, type)
    limbs, states = np.zeros((len(column), 4), np.uint32), states_of(column)
    _limbs(column.kinds, column.starts, column.data, layout.first, layout.second, limbs, states)
    return fixed_width(type, limbs, states)


def digits(column: TextColumn, layout: LayoutColumn, type: pa.DataType) -> DecodedColumn:
    """Form `digits`."""
    offsets = np.empty(len(column) + 1, np.int32)
    joined, states = np.empty(len(column) * (_MOST_DIGITS + 3), np.uint8), states_of(column)
    of = (column.kinds, column.starts, column.data, layout.first, layout.second)
    size = _texts(*of, offsets, joined, states)
    buffers = [validity(states == GOOD), pa.py_buffer(offsets), pa.py_buffer(joined[:size])]
    return DecodedColumn(pa.Array.from_buffers(type, len(column), buffers), np.flatnonzero(states == BAD))


@kernel(
    types.void,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.uint8),
    types.int64,
    types.boolean,
    output_array(types.int64),
)
def _little(kinds: Bytes, starts: Ints, data: Bytes, width: int, signed: bool, values: Ints) -> None:
    shift = np.int64(64 - 8 * width)
    for i in range(len(kinds)):
        value = np.int64(0)
        if kinds[i] == TEXT:
            at = starts[i]
            for j in range(width):
                value |= np.int64(data[at + j]) << np.int64(8 * j)
            if signed:
                value = (value << shift) >> shift
        values[i] = value


@kernel(
    types.void,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.uint8),
    types.int64,
    output_array(types.int64),
)
def _big(kinds: Bytes, starts: Ints, data: Bytes, width: int, values: Ints) -> None:
    for i in range(len(kinds)):
        value = np.int64(0)
        if kinds[i] == TEXT:
            at = starts[i]
            for j in range(width):
                value = (value << np.int64(8)) | np.int64(data[at + j])
        values[i] = value


@kernel(
    several(types.int64, types.int64),
    input_array(types.uint8),
    types.int64,
    types.int64,
    types.int64,
    types.int64,
)
def _group(data: Bytes, start: int, at: int, count: int, mask: int) -> tuple[int, int]:
    """The number of a group of digits, and where the next one begins."""
    value = 0
    for j in range(at, at + _GROUP_BYTES[count]):
        byte = int(np.int64(data[j])) ^ mask
        if j == start:
            byte ^= _SIGN
        value = (value << 8) | byte
    return value, at + int(_GROUP_BYTES[count])


@kernel(
    types.void,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.uint8),
    types.int64,
    types.int64,
    output_array(types.uint32, 2),
    output_array(types.uint8),
)
def _limbs(
    kinds: Bytes, starts: Ints, data: Bytes, precision: int, scale: int, limbs: Limbs, states: Bytes
) -> None:
    whole = precision - scale
    for i in range(len(kinds)):
        if kinds[i] != TEXT:
            continue
        at = starts[i]
        mask = 0 if data[at] & _SIGN else 0xFF
        # Before the point the short group comes first, after it last.
        count = whole % _DIGITS
        value, at = _group(data, starts[i], at, count, mask)
        too_large = value >= TENS[count]
        append_digits(limbs, i, count, value)
        left = whole - count + scale
        while left > 0:
            count = _DIGITS if left > scale % _DIGITS else left
            value, at = _group(data, starts[i], at, count, mask)
            too_large |= value >= TENS[count]
            append_digits(limbs, i, count, value)
            left -= count
        if mask:
            negate(limbs, i)
        if too_large:
            states[i] = BAD
            limbs[i] = 0


@kernel(types.int64, output_array(types.uint8), types.int64, types.int64, types.int64)
def _spell(joined: Bytes, to: int, value: int, count: int) -> int:
    """Write `count` digits of a number. Returns where the next ones go."""
    for j in range(to + count - 1, to - 1, -1):
        joined[j] = _ZERO + value % 10
        value //= 10
    return to + count


@kernel(types.int64, output_array(types.uint8), types.int64, types.int64)
def _without_zeros(joined: Bytes, first: int, stop: int) -> int:
    """Drop the zeros in front of a number, but keep one digit. Returns where the number ends then."""
    start = first
    while start < stop - 1 and joined[start] == _ZERO:
        start += 1
    if stop == first:  # no digit stands before the point
        joined[first] = _ZERO
        return first + 1
    for j in range(stop - start):
        joined[first + j] = joined[start + j]
    return first + stop - start


@kernel(
    types.int64,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.uint8),
    types.int64,
    types.int64,
    output_array(types.int32),
    output_array(types.uint8),
    output_array(types.uint8),
)
def _texts(
    kinds: Bytes,
    starts: Ints,
    data: Bytes,
    precision: int,
    scale: int,
    offsets: npt.NDArray[np.int32],
    joined: Bytes,
    states: Bytes,
) -> int:
    whole, to = precision - scale, 0
    offsets[0] = 0
    for i in range(len(kinds)):
        if kinds[i] == TEXT:
            at, too_large = starts[i], False
            mask = 0 if data[at] & _SIGN else 0xFF
            if mask:
                joined[to] = _MINUS
                to += 1
            first, left, count = to, whole, whole % _DIGITS
            while left > 0:
                value, at = _group(data, starts[i], at, count, mask)
                too_large |= value >= TENS[count]
                to = _spell(joined, to, value, count)
                left, count = left - count, _DIGITS
            to = _without_zeros(joined, first, to)
            if scale > 0:
                joined[to] = _POINT
                to += 1
            left = scale
            while left > 0:
                count = min(left, _DIGITS)
                value, at = _group(data, starts[i], at, count, mask)
                too_large |= value >= TENS[count]
                to = _spell(joined, to, value, count)
                left -= count
            if too_large:
                states[i], to = BAD, int(offsets[i])
        offsets[i + 1] = to
    return to
