"""The statistics of a file's values in Delta's log, so that readers may skip the file.

    {"numRecords": n, "minValues": {..}, "maxValues": {..}, "nullCount": {..}}

A bound that is too wide costs a reader some time; one that is too narrow loses rows without a word. So a
bound is written only where every reader reads it alike, and is otherwise rounded outwards or left out:

    text        cut after 32 characters; the upper bound's last character goes one up
    timestamps  to the millisecond, which is all that Delta promises: down for min, up for max
    decimals    to 15 digits, since some readers take JSON numbers as binary floating point
    floats      none where the column holds NaN (above everything to some, nothing to others) or infinity
    years       none outside 1 to 9999, which not every reader's parser takes
    bool, bytes, arrays   none: Delta's own writers give none
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.format import layout

_TEXT_LENGTH = 32
_DIGITS = 15
# Bounds of dates and timestamps, in the unit of the Arrow type: the years 1 to 9999, a day off the ends.
_DAYS = ((date(1, 1, 2) - date(1970, 1, 1)).days, (date(9999, 12, 30) - date(1970, 1, 1)).days)
_MICROSECONDS = (_DAYS[0] * 86_400_000_000, _DAYS[1] * 86_400_000_000)

# A bound as it stands in the JSON text, or None where there is none to give.
Bounds = tuple[str | None, str | None]
NO_BOUNDS: Bounds = (None, None)


def delta_statistics(table: pa.Table) -> str:
    """The statistics of a file with these rows, as the text that an Add action carries."""
    names = map(layout.lake_column, table.column_names)
    return of_columns(table.num_rows, zip(names, table.columns, strict=True))


def of_columns(rows: int, columns: Iterable[tuple[str, pa.ChunkedArray]]) -> str:
    """Make statistics of columns that come one after another, under their names in the lake."""
    found = [(name, _bounds(column), str(column.null_count)) for name, column in columns]
    names, nulls = [name for name, _, _ in found], [count for _, _, count in found]
    low, high = ([pair[side] for _, pair, _ in found] for side in (0, 1))
    return (
        f'{{"numRecords":{rows},"minValues":{_object(names, low)},'
        f'"maxValues":{_object(names, high)},"nullCount":{_object(names, nulls)}}}'
    )


def _object(names: Sequence[str], values: Sequence[str | None]) -> str:
    given = [f"{_text(name)}:{value}" for name, value in zip(names, values, strict=True) if value is not None]
    return "{" + ",".join(given) + "}"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _bounds(column: pa.ChunkedArray) -> Bounds:
    if column.null_count == len(column):
        return NO_BOUNDS
    for matches, bounds in _KINDS:
        if matches(column.type):
            return bounds(column)
    return NO_BOUNDS


def _min_max(column: pa.ChunkedArray) -> tuple[Any, Any]:
    found = pc.min_max(column)
    return found["min"].as_py(), found["max"].as_py()


def _of_integers(column: pa.ChunkedArray) -> Bounds:
    low, high = _min_max(column)
    return str(low), str(high)


def _of_floats(column: pa.ChunkedArray) -> Bounds:
    if pc.any(pc.is_nan(column)).as_py():
        return NO_BOUNDS
    low, high = (repr(bound) if math.isfinite(bound) else None for bound in _min_max(column))
    return low, high


def _of_text(column: pa.ChunkedArray) -> Bounds:
    low, high = _min_max(column)
    above = _cut_up(high)
    return _text(low[:_TEXT_LENGTH]), None if above is None else _text(above)


def _cut_up(text: str) -> str | None:
    """A text of at most the kept length that is not below `text`, or None where there is none."""
    if len(text) <= _TEXT_LENGTH:
        return text
    head = text[:_TEXT_LENGTH]
    while head:
        following = ord(head[-1]) + 1
        if 0xD800 <= following <= 0xDFFF:
            following = 0xE000
        if following <= 0x10FFFF:
            return head[:-1] + chr(following)
        head = head[:-1]
    return None


def _of_dates(column: pa.ChunkedArray) -> Bounds:
    low, high = _min_max(column.cast(pa.int32()))
    if low < _DAYS[0] or high > _DAYS[1]:
        return NO_BOUNDS
    start = date(1970, 1, 1)
    return _text(str(start + timedelta(days=low))), _text(str(start + timedelta(days=high)))


def _of_timestamps(column: pa.ChunkedArray) -> Bounds:
    low, high = _min_max(column.cast(pa.int64()))
    if low < _MICROSECONDS[0] or high > _MICROSECONDS[1]:
        return NO_BOUNDS
    zone = "Z" if column.type.tz else ""
    return _text(_instant(low // 1000) + zone), _text(_instant(-(-high // 1000)) + zone)


def _instant(milliseconds: int) -> str:
    moment = datetime(1970, 1, 1) + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds")


def _of_decimals(column: pa.ChunkedArray) -> Bounds:
    low, high = _min_max(column)
    down, up = (Context(prec=_DIGITS, rounding=mode) for mode in (ROUND_FLOOR, ROUND_CEILING))
    return format(down.plus(low), "f"), format(up.plus(high), "f")


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.ChunkedArray], Bounds]], ...] = (
    (pa.types.is_integer, _of_integers),
    (pa.types.is_floating, _of_floats),
    (pa.types.is_string, _of_text),
    (pa.types.is_large_string, _of_text),
    (pa.types.is_decimal, _of_decimals),
    (pa.types.is_date32, _of_dates),
    (pa.types.is_timestamp, _of_timestamps),
)
