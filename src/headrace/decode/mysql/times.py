"""Dates and times of a row event, packed by the engine; and the texts of those that the lake cannot hold.

    DATE         3 bytes, little endian        day 5 bits, month 4, year 15
    DATETIME2    5 bytes, big endian, fraction 1 (turned), year * 13 + month 17, day 5, hour 5, minute 6,
                                               second 6
    TIMESTAMP2   4 bytes, big endian, fraction seconds since 1970, in UTC; all 0 is the zero date
    TIME2        3 bytes, big endian, fraction 1 (turned), unused 1, hour 10, minute 6, second 6; all of it is
                                               negated, fraction included, for a negative time
    fraction     0 to 3 bytes, big endian      hundredths, ten thousandths, millionths, by the digits declared

A zero or partial date, a date of the year 0, and a day that its month does not have (ALLOW_INVALID_DATES) are
bad. Their text is the one that the server prints.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from headrace.decode.kernel import Bytes, Ints, input_array, kernel, output_array
from headrace.decode.mysql.table_map import LayoutColumn
from headrace.decode.text import TEXT, TextColumn, validity
from headrace.decode.values.moments import days_of
from headrace.decode.values.outcome import ABSENT, BAD, GOOD, DecodedColumn, fixed_width

_MONTHS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)
_DATETIME_BYTES, _TIMESTAMP_BYTES, _TIME_BYTES = 5, 4, 3
# The microseconds in a unit of the fraction, by the fraction's bytes.
_UNITS = np.array([0, 10_000, 100, 1], np.int64)
_ZERO, _MINUS, _POINT, _COLON = ord("0"), ord("-"), ord("."), ord(":")
_LONGEST_TIME = 17


def dates(column: TextColumn, layout: LayoutColumn, type: pa.DataType) -> DecodedColumn:
    """Form `date`."""
    values, states = np.empty(len(column), np.int32), np.empty(len(column), np.uint8)
    _dates(column.kinds, column.starts, column.data, values, states)
    return fixed_width(type, values, states)


def datetimes(column: TextColumn, layout: LayoutColumn, type: pa.DataType) -> DecodedColumn:
    """Form `timestamp`, of a DATETIME."""
    values, states = np.empty(len(column), np.int64), np.empty(len(column), np.uint8)
    _datetimes(column.kinds, column.starts, column.data, (layout.first + 1) // 2, values, states)
    return fixed_width(type, values, states)


def timestamps(column: TextColumn, layout: LayoutColumn, type: pa.DataType) -> DecodedColumn:
    """Form `timestamp`, of a TIMESTAMP."""
    values, states = np.empty(len(column), np.int64), np.empty(len(column), np.uint8)
    _timestamps(column.kinds, column.starts, column.data, (layout.first + 1) // 2, values, states)
    return fixed_width(type, values, states)


def times(column: TextColumn, layout: LayoutColumn, type: pa.DataType) -> DecodedColumn:
    """Form `time`."""
    offsets = np.empty(len(column) + 1, np.int32)
    joined = np.empty(len(column) * _LONGEST_TIME, np.uint8)
    size = _times(column.kinds, column.starts, column.data, layout.first, offsets, joined)
    buffers = [validity(column.kinds == TEXT), pa.py_buffer(offsets), pa.py_buffer(joined[:size])]
    return DecodedColumn(pa.Array.from_buffers(type, len(column), buffers), np.empty(0, np.int64))


# ── the texts of bad values ─────────────────────────────────────────────────────────────────────────


def date_text(value: bytes, digits: int) -> str:
    """A DATE as the server prints it."""
    number = int.from_bytes(value, "little")
    return f"{number >> 9:04}-{number >> 5 & 15:02}-{number & 31:02}"


def datetime_text(value: bytes, digits: int) -> str:
    """A DATETIME as the server prints it."""
    number = int.from_bytes(value[:_DATETIME_BYTES], "big") & ((1 << 39) - 1)
    day, clock = number >> 17, number & ((1 << 17) - 1)
    year, month = divmod(day >> 5, 13)
    shown = f"{year:04}-{month:02}-{day & 31:02} {clock >> 12:02}:{clock >> 6 & 63:02}:{clock & 63:02}"
    return shown + _fraction_text(value[_DATETIME_BYTES:], digits)


def timestamp_text(value: bytes, digits: int) -> str:
    """A TIMESTAMP that is no moment, as the server prints it."""
    return "0000-00-00 00:00:00" + _fraction_text(value[_TIMESTAMP_BYTES:], digits)


def _fraction_text(value: bytes, digits: int) -> str:
    if not digits:
        return ""
    return "." + str(int.from_bytes(value, "big")).zfill(2 * len(value))[:digits]


# ── kernels ─────────────────────────────────────────────────────────────────────────────────────────


@kernel(types.boolean, types.int64, types.int64, types.int64)
def _exists(year: int, month: int, day: int) -> bool:
    if year == 0 or month < 1 or month > 12 or day < 1:
        return False
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return day <= int(_MONTHS[month - 1]) + int(leap)


@kernel(types.int64, input_array(types.uint8), types.int64, types.int64)
def _number(data: Bytes, at: int, width: int) -> int:
    value = 0
    for i in range(at, at + width):
        value = (value << 8) | int(np.int64(data[i]))
    return value


@kernel(
    types.void,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.uint8),
    output_array(types.int32),
    output_array(types.uint8),
)
def _dates(kinds: Bytes, starts: Ints, data: Bytes, values: npt.NDArray[np.int32], states: Bytes) -> None:
    for i in range(len(kinds)):
        values[i], states[i] = 0, ABSENT
        if kinds[i] != TEXT:
            continue
        at = starts[i]
        number = (
            int(np.int64(data[at])) | (int(np.int64(data[at + 1])) << 8) | (int(np.int64(data[at + 2])) << 16)
        )
        year, month, day = number >> 9, (number >> 5) & 15, number & 31
        states[i] = GOOD if _exists(year, month, day) else BAD
        if states[i] == GOOD:
            values[i] = days_of(year, month, day)


@kernel(
    types.void,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.uint8),
    types.int64,
    output_array(types.int64),
    output_array(types.uint8),
)
def _datetimes(kinds: Bytes, starts: Ints, data: Bytes, extra: int, values: Ints, states: Bytes) -> None:
    for i in range(len(kinds)):
        values[i], states[i] = 0, ABSENT
        if kinds[i] != TEXT:
            continue
        number = _number(data, starts[i], _DATETIME_BYTES) & ((1 << 39) - 1)
        micros = _number(data, starts[i] + _DATETIME_BYTES, extra) * int(_UNITS[extra])
        date, clock = number >> 17, number & ((1 << 17) - 1)
        year, month, day = (date >> 5) // 13, (date >> 5) % 13, date & 31
        states[i] = GOOD if _exists(year, month, day) else BAD
        if states[i] == GOOD:
            seconds = (clock >> 12) * 3600 + ((clock >> 6) & 63) * 60 + (clock & 63)
            values[i] = (days_of(year, month, day) * 86_400 + seconds) * 1_000_000 + micros


@kernel(
    types.void,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.uint8),
    types.int64,
    output_array(types.int64),
    output_array(types.uint8),
)
def _timestamps(kinds: Bytes, starts: Ints, data: Bytes, extra: int, values: Ints, states: Bytes) -> None:
    for i in range(len(kinds)):
        values[i], states[i] = 0, ABSENT
        if kinds[i] != TEXT:
            continue
        seconds = _number(data, starts[i], _TIMESTAMP_BYTES)
        micros = _number(data, starts[i] + _TIMESTAMP_BYTES, extra) * int(_UNITS[extra])
        # The start of 1970 is the zero date. With a fraction, which MariaDB keeps, it is a moment.
        states[i] = GOOD if seconds > 0 or micros > 0 else BAD
        if states[i] == GOOD:
            values[i] = seconds * 1_000_000 + micros


@kernel(types.int64, output_array(types.uint8), types.int64, types.int64, types.int64)
def _spell(joined: Bytes, to: int, value: int, count: int) -> int:
    """Write a number with `count` digits. Returns where the next ones go."""
    for j in range(to + count - 1, to - 1, -1):
        joined[j] = _ZERO + value % 10
        value //= 10
    return to + count


@kernel(
    types.int64,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.uint8),
    types.int64,
    output_array(types.int32),
    output_array(types.uint8),
)
def _times(
    kinds: Bytes, starts: Ints, data: Bytes, digits: int, offsets: npt.NDArray[np.int32], joined: Bytes
) -> int:
    extra, to = (digits + 1) // 2, 0
    offsets[0] = 0
    for i in range(len(kinds)):
        if kinds[i] == TEXT:
            value = _number(data, starts[i], _TIME_BYTES + extra) - (1 << (23 + 8 * extra))
            if value < 0:
                value = -value
                joined[to] = _MINUS
                to += 1
            clock, fraction = value >> (8 * extra), value & ((1 << (8 * extra)) - 1)
            hours = clock >> 12
            to = _spell(joined, to, hours, 3 if hours > 99 else 2)
            joined[to] = _COLON
            to = _spell(joined, to + 1, (clock >> 6) & 63, 2)
            joined[to] = _COLON
            to = _spell(joined, to + 1, clock & 63, 2)
            if digits > 0:
                joined[to] = _POINT
                # If the number of digits is odd, one more is stored, which is zero.
                to = _spell(joined, to + 1, fraction, 2 * extra) - digits % 2
        offsets[i + 1] = to
    return to
