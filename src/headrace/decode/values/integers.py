"""Integers: smallint, integer, bigint, oid, as PostgreSQL prints them.

    -?[0-9]+        anything else, or out of the type's range, is bad

The number is built negative, since the smallest integer has no positive counterpart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from headrace.decode.kernel import Bytes, Ints, Lengths, input_array, kernel, output_array, several
from headrace.decode.text import TEXT, TextColumn
from headrace.decode.values.outcome import ABSENT, BAD, GOOD, DecodedColumn, fixed_width

_WIDTHS: dict[pa.DataType, npt.DTypeLike] = {
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
}
_LEAST = -(1 << 63)
_LEAST_TENTH = -((1 << 63) // 10)
_ZERO, _MINUS = ord("0"), ord("-")


def decode(column: TextColumn, type: pa.DataType) -> DecodedColumn:
    """Form `int`."""
    width: np.dtype[Any] = np.dtype(_WIDTHS[type])
    values, states = np.empty(len(column), np.int64), np.empty(len(column), np.uint8)
    limits = np.iinfo(width)
    _parse(
        column.kinds,
        column.starts,
        column.lengths,
        column.data,
        int(limits.min),
        int(limits.max),
        values,
        states,
    )
    return fixed_width(type, values.astype(width, copy=False), states)


@kernel(several(types.int64, types.int64), input_array(types.uint8), types.int64, types.int64)
def _negate(data: Bytes, at: int, stop: int) -> tuple[int, int]:
    """The negated number of the digits, and whether they spell a number."""
    value = 0
    if at == stop:
        return 0, BAD
    while at < stop:
        digit = int(data[at]) - _ZERO
        if digit < 0 or digit > 9:
            return 0, BAD
        if value < _LEAST_TENTH or (value == _LEAST_TENTH and digit > 8):
            return 0, BAD
        value = value * 10 - digit
        at += 1
    return value, GOOD


@kernel(
    types.void,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int32),
    input_array(types.uint8),
    types.int64,
    types.int64,
    output_array(types.int64),
    output_array(types.uint8),
)
def _parse(
    kinds: Bytes,
    starts: Ints,
    lengths: Lengths,
    data: Bytes,
    low: int,
    high: int,
    values: Ints,
    states: Bytes,
) -> None:
    for i in range(len(kinds)):
        values[i], states[i] = 0, ABSENT
        if kinds[i] != TEXT:
            continue
        at, stop = starts[i], starts[i] + lengths[i]
        minus = at < stop and data[at] == _MINUS
        value, state = _negate(data, at + 1 if minus else at, stop)
        if state == GOOD and not minus:
            state = BAD if value == _LEAST else GOOD
            value = -value if state == GOOD else 0
        if value < low or value > high:
            state = BAD
        states[i] = state
        if state == GOOD:
            values[i] = value
