"""Doubles as MySQL and MariaDB print them, whole arrays at a time: the fewest digits that mean the number.

    0.1   -0   1e20   1.5e-15   123456789012345.0

Arrow finds the digits, a kernel sets the point. A number is printed with an exponent if its first digit
stands more than 14 places after the point. So is a whole number whose last digit stands more than 15 places
before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from headrace.decode.kernel import Bytes, Lengths, input_array, kernel, output_array, several

# Between these powers of ten a double has no exponent. One with a digit after its point has none either.
_LEAST_POWER, _MOST_POWER = -14, 15
_LONGEST = 48  # -0.00000000000000 and 17 digits, with some room
_MOST_DIGITS = 24
_ZERO, _NINE, _MINUS, _POINT, _E = (ord(letter) for letter in "09-.e")


def texts(values: npt.NDArray[np.float64], *, with_point: bool = False) -> Any:
    """Print finite numbers; `with_point` as in JSON, where `.0` tells a double from an integer."""
    shortest = pa.array(values).cast(pa.string())
    offsets = np.empty(len(values) + 1, np.int32)
    joined = np.empty(len(values) * _LONGEST, np.uint8)
    if not len(values):
        return pa.array([], pa.string())
    _, starts, data = shortest.buffers()
    size = _print(
        np.frombuffer(starts, np.int32)[: len(values) + 1],
        np.frombuffer(data, np.uint8),
        with_point,
        np.empty(_MOST_DIGITS, np.uint8),
        offsets,
        joined,
    )
    return pa.Array.from_buffers(
        pa.string(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(joined[:size].copy())]
    )


@kernel(
    several(types.int64, types.int64),
    input_array(types.uint8),
    types.int64,
    types.int64,
    output_array(types.uint8),
)
def _digits(text: Bytes, at: int, stop: int, digits: Bytes) -> tuple[int, int]:
    """Take a number's digits without the zeros at both ends. Count them, and those before the point."""
    count, point, before, behind = 0, 0, True, 0
    while at < stop and text[at] != _E:
        if text[at] == _POINT:
            before = False
        else:
            point += before
            if count > 0 or text[at] != _ZERO:
                digits[count] = text[at]
                count += 1
            else:
                point -= 1  # a zero at the front, on either side of the point
        at += 1
    if at < stop:
        sign, at = (-1 if text[at + 1] == _MINUS else 1), at + 1
        while at < stop:
            if _ZERO <= text[at] <= _NINE:
                behind = 10 * behind + int(text[at]) - _ZERO
            at += 1
        point += sign * behind
    while count > 0 and digits[count - 1] == _ZERO:
        count -= 1
    return count, point


@kernel(
    types.int64, input_array(types.uint8), types.int64, types.int64, output_array(types.uint8), types.int64
)
def _write_fixed_point(digits: Bytes, count: int, point: int, out: Bytes, to: int) -> int:
    """Write digits, with the point before or among them. If it would stand after them, it is left out."""
    if point <= 0:
        out[to], out[to + 1] = _ZERO, _POINT
        to += 2
        for _ in range(-point):
            out[to] = _ZERO
            to += 1
    for i in range(max(count, point)):
        if i == point and point > 0:
            out[to] = _POINT
            to += 1
        out[to] = digits[i] if i < count else _ZERO
        to += 1
    return to


@kernel(
    types.int64, input_array(types.uint8), types.int64, types.int64, output_array(types.uint8), types.int64
)
def _scientific(digits: Bytes, count: int, power: int, out: Bytes, to: int) -> int:
    for i in range(count):
        if i == 1:
            out[to] = _POINT
            to += 1
        out[to] = digits[i]
        to += 1
    out[to] = _E
    to += 1
    if power < 0:
        out[to] = _MINUS
        to, power = to + 1, -power
    unit = 100 if power >= 100 else 10 if power >= 10 else 1
    while unit > 0:
        out[to] = _ZERO + power // unit % 10
        to, unit = to + 1, unit // 10
    return to


@kernel(
    types.int64,
    input_array(types.int32),
    input_array(types.uint8),
    types.boolean,
    output_array(types.uint8),
    output_array(types.int32),
    output_array(types.uint8),
)
def _print(
    starts: Lengths, text: Bytes, with_point: bool, digits: Bytes, offsets: Lengths, out: Bytes
) -> int:
    to = 0
    offsets[0] = 0
    for i in range(len(starts) - 1):
        at, stop = int(starts[i]), int(starts[i + 1])
        if text[at] == _MINUS:
            out[to] = _MINUS
            at, to = at + 1, to + 1
        count, point = _digits(text, at, stop, digits)
        pointed = point <= 0 or count > point
        if count == 0:
            out[to] = _ZERO
            to, pointed = to + 1, False
        elif _LEAST_POWER <= point <= _MOST_POWER or count > point > _MOST_POWER:
            to = _write_fixed_point(digits, count, point, out, to)
        else:
            to, pointed = _scientific(digits, count, point - 1, out, to), True
        if with_point and not pointed:
            out[to], out[to + 1] = _POINT, _ZERO
            to += 2
        offsets[i + 1] = to
    return to
