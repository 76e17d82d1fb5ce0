"""date, timestamp and timestamptz under DateStyle = ISO, in the proleptic Gregorian calendar.

    date          2016-11-04      5874897-12-31      4714-11-24 BC
    timestamp     2016-11-04 13:51:30[.123456]                [ BC]
    timestamptz   2016-11-04 13:51:30[.123456]+00[:00[:00]]   [ BC]

TimeZone is pinned to UTC, but any offset is understood. A year has at least four digits, and year 1 BC is the
year before year 1. PostgreSQL has values that the lake's types can't hold: `infinity`, `-infinity` and times
beyond 64 bits of microseconds (after 294247-01-10T04:00:54.775807). They are bad.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numba import types

from headrace.decode.kernel import Bytes, Ints, Lengths, input_array, kernel, output_array, several
from headrace.decode.text import TEXT, TextColumn
from headrace.decode.values.outcome import ABSENT, BAD, GOOD, DecodedColumn, fixed_width

_ZERO, _DASH, _COLON, _POINT = ord("0"), ord("-"), ord(":"), ord(".")
_PLUS, _SPACE, _B, _C = ord("+"), ord(" "), ord("B"), ord("C")
_FAIL = -1
# The last second whose microseconds fit into 64 bits, and how many of them fit.
_LAST_SECOND, _LAST_MICROS = 9_223_372_036_854, 775_807
_LONGEST_YEAR = 7
_MONTHS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)


def decode_date(column: TextColumn, type: pa.DataType) -> DecodedColumn:
    """Form `date`."""
    values, states = np.empty(len(column), np.int32), np.empty(len(column), np.uint8)
    _dates(column.kinds, column.starts, column.lengths, column.data, values, states)
    return fixed_width(type, values, states)


def decode_timestamp(column: TextColumn, type: pa.DataType) -> DecodedColumn:
    """Form `timestamp`."""
    return _decode(column, type, False)


def decode_timestamptz(column: TextColumn, type: pa.DataType) -> DecodedColumn:
    """Form `timestamptz`."""
    return _decode(column, type, True)


def _decode(column: TextColumn, type: pa.DataType, zoned: bool) -> DecodedColumn:
    values, states = np.empty(len(column), np.int64), np.empty(len(column), np.uint8)
    _timestamps(column.kinds, column.starts, column.lengths, column.data, zoned, values, states)
    return fixed_width(type, values, states)


@kernel(types.int64, input_array(types.uint8), types.int64, types.int64)
def _pair(data: Bytes, at: int, stop: int) -> int:
    """The number of the two digits at `at`."""
    if stop - at < 2:
        return _FAIL
    tens, ones = int(data[at]) - _ZERO, int(data[at + 1]) - _ZERO
    if tens < 0 or tens > 9 or ones < 0 or ones > 9:
        return _FAIL
    return tens * 10 + ones


@kernel(types.int64, types.int64, types.int64, types.int64)
def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01; years begin in March, and are counted in eras of 400."""
    if month <= 2:
        year -= 1
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


@kernel(types.int64, types.int64, types.int64)
def _month_length(year: int, month: int) -> int:
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return int(_MONTHS[month - 1]) + int(leap)


@kernel(several(types.int64, types.int64), input_array(types.uint8), types.int64, types.int64, types.boolean)
def _date(data: Bytes, at: int, stop: int, before_christ: bool) -> tuple[int, int]:
    """Days since 1970-01-01, and the end of the date."""
    start, year = at, 0
    while at < stop and data[at] != _DASH:
        digit = int(data[at]) - _ZERO
        if digit < 0 or digit > 9 or at - start == _LONGEST_YEAR:
            return 0, _FAIL
        year = year * 10 + digit
        at += 1
    month, day = _pair(data, at + 1, stop), _pair(data, at + 4, stop)
    if at - start < 4 or year == 0 or day == _FAIL or data[at + 3] != _DASH:
        return 0, _FAIL
    if before_christ:
        year = 1 - year
    if month < 1 or month > 12 or day < 1 or day > _month_length(year, month):
        return 0, _FAIL
    return days_of(year, month, day), at + 6


@kernel(several(types.int64, types.int64, types.int64), input_array(types.uint8), types.int64, types.int64)
def _clock(data: Bytes, at: int, stop: int) -> tuple[int, int, int]:
    """Seconds and microseconds since midnight, and the end of the time of day."""
    hours, minutes, seconds = (
        _pair(data, at, stop),
        _pair(data, at + 3, stop),
        _pair(data, at + 6, stop),
    )
    if hours == _FAIL or minutes == _FAIL or seconds == _FAIL or hours > 23 or minutes > 59 or seconds > 59:
        return 0, 0, _FAIL
    if data[at + 2] != _COLON or data[at + 5] != _COLON:
        return 0, 0, _FAIL
    micros, digits = 0, 0
    at += 8
    if at < stop and data[at] == _POINT:
        at += 1
        while at < stop and digits < 6 and _ZERO <= data[at] <= _ZERO + 9:
            micros = micros * 10 + int(data[at]) - _ZERO
            digits += 1
            at += 1
        if digits == 0:
            return 0, 0, _FAIL
        for _ in range(6 - digits):
            micros *= 10
    return hours * 3600 + minutes * 60 + seconds, micros, at


@kernel(several(types.int64, types.int64), input_array(types.uint8), types.int64, types.int64)
def _offset(data: Bytes, at: int, stop: int) -> tuple[int, int]:
    """The zone's offset from UTC in seconds, and its end in the text."""
    if at >= stop or (data[at] != _PLUS and data[at] != _DASH):
        return 0, _FAIL
    sign = 1 if data[at] == _PLUS else -1
    seconds, unit = 0, 3600
    while unit > 0:
        part = _pair(data, at + 1, stop)
        if part == _FAIL or part > (15 if unit == 3600 else 59):
            return 0, _FAIL
        seconds += part * unit
        unit //= 60
        at += 3
        if at >= stop or data[at] != _COLON:
            break
    return sign * seconds, at


@kernel(types.boolean, input_array(types.uint8), types.int64, types.int64)
def _before_christ(data: Bytes, at: int, stop: int) -> bool:
    """Tell whether the text ends in ` BC`."""
    return bool(stop - at > 3 and data[stop - 3] == _SPACE and data[stop - 2] == _B and data[stop - 1] == _C)


@kernel(several(types.int64, types.int64), input_array(types.uint8), types.int64, types.int64, types.boolean)
def _moment(data: Bytes, at: int, stop: int, zoned: bool) -> tuple[int, int]:
    """Microseconds since 1970, and the state of the row."""
    before_christ = _before_christ(data, at, stop)
    if before_christ:
        stop -= 3
    days, at = _date(data, at, stop, before_christ)
    if at == _FAIL or at >= stop or data[at] != _SPACE:
        return 0, BAD
    seconds, micros, at = _clock(data, at + 1, stop)
    if at == _FAIL:
        return 0, BAD
    if zoned:
        offset, at = _offset(data, at, stop)
        seconds -= offset
    if at != stop:
        return 0, BAD
    seconds += days * 86_400
    if seconds < -_LAST_SECOND or seconds > _LAST_SECOND:
        return 0, BAD
    if seconds == _LAST_SECOND and micros > _LAST_MICROS:
        return 0, BAD
    return seconds * 1_000_000 + micros, GOOD


@kernel(
    types.void,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int32),
    input_array(types.uint8),
    output_array(types.int32),
    output_array(types.uint8),
)
def _dates(kinds: Bytes, starts: Ints, lengths: Lengths, data: Bytes, values: Lengths, states: Bytes) -> None:
    for i in range(len(kinds)):
        values[i], states[i] = 0, ABSENT
        if kinds[i] != TEXT:
            continue
        at, stop = starts[i], starts[i] + lengths[i]
        before_christ = _before_christ(data, at, stop)
        if before_christ:
            stop -= 3
        days, end = _date(data, at, stop, before_christ)
        # Seven digits of a year can spell more days than 32 bits hold.
        states[i] = GOOD if end == stop and -(1 << 31) <= days < (1 << 31) else BAD
        if states[i] == GOOD:
            values[i] = days


@kernel(
    types.void,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int32),
    input_array(types.uint8),
    types.boolean,
    output_array(types.int64),
    output_array(types.uint8),
)
def _timestamps(
    kinds: Bytes,
    starts: Ints,
    lengths: Lengths,
    data: Bytes,
    zoned: bool,
    values: Ints,
    states: Bytes,
) -> None:
    for i in range(len(kinds)):
        values[i], states[i] = 0, ABSENT
        if kinds[i] == TEXT:
            values[i], states[i] = _moment(data, starts[i], starts[i] + lengths[i], zoned)
