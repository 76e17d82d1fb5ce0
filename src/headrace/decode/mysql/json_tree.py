"""MySQL's JSON as it stands in a row event, printed as the server prints it.

    type 1 │ value            00 01 object · 02 03 array · 04 literal · 05 … 0a integers · 0b double
                              0c string · 0f opaque: a field's type, then its bytes
                              (containers of an odd type have numbers of four bytes)
    object   count, size, (key offset, key length 2) each, (type 1, value or offset) each, keys, values
    array    count, size,                                  (type 1, value or offset) each,       values

An offset is counted from the `count` field. Small integers and literals stand in the entries themselves. Keys
are printed in the order in which they stand: by length, then by bytes.

    {"a": [1, true, null, "x"], "d": 0.00000015, "cc": 1e20, "t": "2015-01-15 23:24:25.000000"}

A kernel walks each tree twice. The first walk measures the text and notes where doubles and opaque values
lie. Those are then printed outside of the kernel, all doubles at once. The second walk writes the text. So
the time for a document grows in proportion to its size. A tree whose offsets lead out of it, or to one value
many times, is bad.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from headrace.decode.kernel import (
    Bytes,
    Flags,
    Ints,
    Lengths,
    copy_bytes,
    input_array,
    kernel,
    output_array,
    several,
)
from headrace.decode.mysql import doubles
from headrace.decode.mysql.table_map import DATE, DECIMAL, TIME2, TIMESTAMP2, decimal_width
from headrace.decode.text import NULL, TEXT, TextColumn
from headrace.decode.values import strings
from headrace.decode.values.outcome import DecodedColumn

Span = bytes | memoryview
_TIMESTAMP, _DATETIME, _TIME = 7, 12, 11
_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_FIRST_INTEGER, _LAST_INTEGER, _DOUBLE, _STRING, _OPAQUE = 0x05, 0x0A, 0x0B, 0x0C, 0x0F
_WORDS = np.frombuffer(b"nulltruefalse", np.uint8)
_WORD_ENDS = np.array([0, 4, 8, 13], np.int64)
_DEEPEST = 100  # the server's own limit
_LONGEST = 16  # the most characters of text for each byte of the tree
_LEAST_APART = 5  # the fewest bytes that a double or an opaque value takes in its tree
_MALFORMED = -1
_MOST = (1 << 31) - 1
_NUMBER = -1  # in the place of a field's type: a double

# A container that the walk is in: where it begins and ends, its entries, and which of them comes next.
_KIND, _BASE, _LIMIT, _COUNT, _NEXT, _WIDTH, _KEYS, _VALUES = range(8)
# A value that is printed outside of the kernel: its field's type, and where its bytes lie.
_FIELD, _START, _SIZE = range(3)

_QUOTE, _COMMA, _COLON, _BLANK, _BACKSLASH, _ZERO, _MINUS = (ord(letter) for letter in '",: \\0-')
_OPEN, _CLOSE = np.frombuffer(b"{{[[", np.uint8), np.frombuffer(b"}}]]", np.uint8)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_WIDTHS = np.ones(256, np.int64)  # of a byte in a quoted text
_WIDTHS[:32] = 6
_SHORT = np.zeros(256, np.uint8)
for _byte, _letter in zip(b'\b\t\n\f\r"\\', b'btnfr"\\', strict=True):
    _SHORT[_byte], _WIDTHS[_byte] = _letter, 2


def decode(column: TextColumn, type: pa.DataType) -> DecodedColumn:
    """Form `json` of row images."""
    rows, there = len(column), column.kinds == TEXT
    room = int(column.lengths.sum(where=there, dtype=np.int64)) // _LEAST_APART + rows
    sizes, places = np.empty(rows, np.int64), np.empty((room, 3), np.int64)
    where = (column.kinds, column.starts, column.lengths, column.data)
    apart = places[: _measure(*where, sizes, places)]
    texts = _apart(column.data, apart)
    good = sizes >= 0
    total = int(sizes.sum(where=good)) + len(texts.joined)
    if total > _MOST:
        raise ValueError(f"a column of {total} bytes in one batch: pass smaller buffers")
    starts, out = np.empty(rows + 1, np.int64), np.empty(total, np.uint8)
    _write(*where, sizes, texts.offsets, texts.joined, starts, out)
    kinds = np.where(good, TEXT, NULL).astype(np.uint8)
    lengths = np.diff(starts).astype(np.int32)
    decoded = strings.decode(TextColumn(kinds, starts[:-1], lengths, out), type)
    bad = np.concatenate((np.flatnonzero(there & ~good), decoded.bad))
    return DecodedColumn(decoded.array, np.sort(bad))


class _Texts:
    """Texts, one after the other."""

    def __init__(self, array: Any) -> None:
        whole = array.cast(pa.large_string())
        _, offsets, data = whole.buffers()
        self.offsets = (
            np.frombuffer(offsets, np.int64)[: len(whole) + 1] if len(whole) else np.zeros(1, np.int64)
        )
        self.joined = np.frombuffer(data, np.uint8)[: self.offsets[-1]] if data else np.empty(0, np.uint8)


def _apart(data: Bytes, places: Ints) -> _Texts:
    """Print the values that the kernel does not, in their order; most doubles and dates all at once."""
    view = memoryview(data)  # type: ignore[arg-type]
    found, rows = [pa.array([], pa.large_string())], [np.empty(0, np.int64)]
    rest = np.ones(len(places), np.bool_)
    for fields, show in _AT_ONCE:
        chosen = np.flatnonzero(np.isin(places[:, _FIELD], fields))
        numbers = data[places[chosen, _START][:, None] + np.arange(8)].view(np.int64).ravel()
        texts, fits = show(numbers)
        found.append(texts.cast(pa.large_string()))
        rows.append(chosen[fits])
        rest[chosen[fits]] = False
    others = [opaque(field, view[start : start + size]) for field, start, size in places[rest].tolist()]
    found.append(pa.array(others, pa.large_string()))
    order = np.argsort(np.concatenate((*rows, np.flatnonzero(rest))), kind="stable")
    return _Texts(pa.concat_arrays(found).take(pa.array(order)))


def _doubles(numbers: Ints) -> tuple[Any, Flags]:
    return doubles.texts(numbers.view(np.float64), with_point=True), np.ones(len(numbers), np.bool_)


def _moments(numbers: Ints) -> tuple[Any, Flags]:
    letters, fits = _spell(numbers)
    return _of_one_width(letters), fits


def _days(numbers: Ints) -> tuple[Any, Flags]:
    letters, fits = _spell(numbers)
    return _of_one_width(np.ascontiguousarray(np.delete(letters, np.s_[11:27], axis=1))), fits


def _spell(numbers: Ints) -> tuple[npt.NDArray[np.uint8], Flags]:
    """Print the moments whose parts have the usual widths, and tell which those are."""
    packed, micros = numbers >> 24, numbers & 0xFFFFFF
    fits = (numbers >= 0) & (packed >> 22 < 13 * 10_000) & (micros < 1_000_000)
    packed, micros = packed[fits], micros[fits]
    letters = np.tile(np.frombuffer(b'"0000-00-00 00:00:00.000000"', np.uint8), (len(packed), 1))
    year, month = np.divmod(packed >> 22, 13)
    times = ((packed >> 17 & 31, 9, 2), (packed >> 12 & 31, 12, 2), (packed >> 6 & 63, 15, 2))
    parts = ((year, 1, 4), (month, 6, 2), *times, (packed & 63, 18, 2), (micros, 21, 6))
    for part, at, width in parts:
        for i in range(width):
            letters[:, at + i] += (part // 10 ** (width - 1 - i) % 10).astype(np.uint8)
    return letters, fits


def _of_one_width(letters: npt.NDArray[np.uint8]) -> Any:
    offsets = np.arange(len(letters) + 1, dtype=np.int64) * letters.shape[1]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
    return pa.Array.from_buffers(pa.large_string(), len(letters), buffers)


# Fields whose values are printed all at once. Each function also tells which values it could print.
_AT_ONCE: tuple[tuple[tuple[int, ...], Callable[[Ints], tuple[Any, Flags]]], ...] = (
    ((_NUMBER,), _doubles),
    ((_TIMESTAMP, _DATETIME, TIMESTAMP2), _moments),
    ((DATE,), _days),
)


# ── opaque values ───────────────────────────────────────────────────────────────────────────────────


def opaque(kind: int, value: Span) -> str:
    """Print a value of a field's type as JSON. The caller has checked that there are enough bytes."""
    if kind in _OPAQUE_TEXTS:
        return f'"{_OPAQUE_TEXTS[kind](value)}"' if kind != DECIMAL else _decimal(value)
    return f'"base64:type{kind}:{base64.b64encode(value).decode()}"'


def _unpack_time(value: Span) -> tuple[int, int]:
    """Read what stands before a second's fraction (negative for a negative time), and the fraction's size."""
    number = int.from_bytes(value[:8], "little", signed=True)
    sign = -1 if number < 0 else 1
    return sign * (abs(number) >> 24), abs(number) & 0xFFFFFF


def _moment(value: Span) -> str:
    packed, micros = _unpack_time(value)
    return f"{_day(packed)} {_clock(packed & 0x1FFFF)}.{micros:06}"


def _date(value: Span) -> str:
    return _day(_unpack_time(value)[0])


def _day(packed: int) -> str:
    day = packed >> 17
    year, month = divmod(day >> 5, 13)
    return f"{year:04}-{month:02}-{day & 31:02}"


def _clock(packed: int) -> str:
    return f"{packed >> 12:02}:{packed >> 6 & 63:02}:{packed & 63:02}"


def _time(value: Span) -> str:
    packed, micros = _unpack_time(value)
    negative = int.from_bytes(value[:8], "little", signed=True) < 0
    return f"{'-' if negative else ''}{_clock(abs(packed))}.{micros:06}"


def _decimal(value: Span) -> str:
    precision, scale = value[0], value[1]
    return decimal_text(value[2 : 2 + decimal_width(precision, scale)], precision, scale)


def decimal_text(value: Span, precision: int, scale: int) -> str:
    """Print a decimal that is in the engine's layout, with all digits of its scale."""
    negative = not value[0] & 128
    number = int.from_bytes(value, "big") ^ (1 << (8 * len(value) - 1))
    if negative:
        number ^= (1 << (8 * len(value))) - 1
    plain = number.to_bytes(len(value), "big")
    shown, at = "", 0
    for count in _groups(precision - scale, first=True) + _groups(scale, first=False):
        size = decimal_width(count, 0)
        shown += str(int.from_bytes(plain[at : at + size], "big")).zfill(count)
        at += size
    whole = shown[: precision - scale].lstrip("0") or "0"
    rest = "." + shown[precision - scale :] if scale else ""
    return f"{'-' if negative else ''}{whole}{rest}"


def _groups(digits: int, *, first: bool) -> list[int]:
    """The sizes of the groups of digits, with the short one first or last."""
    short = [digits % 9] if digits % 9 else []
    nines = [9] * (digits // 9)
    return short + nines if first else nines + short


_OPAQUE_TEXTS: Mapping[int, Callable[[Span], str]] = {
    _TIMESTAMP: _moment,
    _DATETIME: _moment,
    TIMESTAMP2: _moment,
    _TIME: _time,
    TIME2: _time,
    DATE: _date,
    DECIMAL: _decimal,
}
_LEAST_BYTES = np.zeros(256, np.int64)
_LEAST_BYTES[list(_OPAQUE_TEXTS)] = 8
_LEAST_BYTES[DECIMAL] = 2
_MOST_DIGITS = 65
_DECIMAL_WIDTHS = np.array([decimal_width(digits, 0) for digits in range(_MOST_DIGITS + 1)], np.int64)


# ── kernels ─────────────────────────────────────────────────────────────────────────────────────────
#
# Each function that prints returns where the text goes on, or -1 if the bytes are no value. If `out` has no
# room, it only measures.


@kernel(types.int64, input_array(types.uint8), types.int64, types.int64)
def _little(data: Bytes, at: int, width: int) -> int:
    """The unsigned number at `at`, of at most four bytes; the caller has checked that it is there."""
    value = 0
    for i in range(width):
        value |= int(data[at + i]) << (8 * i)
    return value


@kernel(
    types.int64, input_array(types.uint8), types.int64, types.int64, output_array(types.uint8), types.int64
)
def _integer(data: Bytes, at: int, kind: int, out: Bytes, to: int) -> int:
    width = 2 << ((kind - _FIRST_INTEGER) >> 1)
    value = np.uint64(0)
    for i in range(width):
        value |= np.uint64(data[at + i]) << np.uint64(8 * i)
    if kind & 1 and data[at + width - 1] >= 128:
        value = np.uint64(0) - (value | (np.uint64(0) - (np.uint64(1) << np.uint64(8 * width - 1))))
        if len(out):
            out[to] = _MINUS
        to += 1
    ten, count, rest = np.uint64(10), 1, value
    while rest >= ten:
        rest //= ten
        count += 1
    if len(out):
        for i in range(count):
            out[to + count - 1 - i] = _ZERO + int(value % ten)
            value //= ten
    return to + count


@kernel(
    types.int64, input_array(types.uint8), types.int64, types.int64, output_array(types.uint8), types.int64
)
def _quote(data: Bytes, at: int, stop: int, out: Bytes, to: int) -> int:
    if not len(out):
        for i in range(at, stop):
            to += _WIDTHS[data[i]]
        return to + 2
    out[to] = _QUOTE
    to += 1
    for i in range(at, stop):
        byte = data[i]
        width = _WIDTHS[byte]
        if width == 1:
            out[to] = byte
        else:
            out[to] = _BACKSLASH
            out[to + 1] = _SHORT[byte]
            if width == 6:
                out[to + 1] = ord("u")
                out[to + 2], out[to + 3], out[to + 4] = _ZERO, _ZERO, _HEX[byte >> 4]
                out[to + 5] = _HEX[byte & 15]
        to += width
    out[to] = _QUOTE
    return to + 1


@kernel(several(types.int64, types.int64), input_array(types.uint8), types.int64, types.int64)
def _length(data: Bytes, at: int, limit: int) -> tuple[int, int]:
    """Read a length, seven bits a byte, and where its value begins; -1 if the value is not all there."""
    length = 0
    for i in range(5):
        if at + i >= limit:
            return _MALFORMED, at
        byte = int(data[at + i])
        length |= (byte & 127) << (7 * i)
        if byte < 128:
            at += i + 1
            return length if length <= limit - at else _MALFORMED, at
    return _MALFORMED, at


@kernel(types.boolean, input_array(types.uint8), types.int64, types.int64, types.int64)
def _is_field(data: Bytes, field: int, at: int, size: int) -> bool:
    """Tell whether there are enough bytes for a value of a field's type."""
    if size < _LEAST_BYTES[field]:
        return False
    if field != DECIMAL:
        return True
    precision, scale = int(data[at]), int(data[at + 1])
    if precision == 0 or precision > _MOST_DIGITS or scale > precision:
        return False
    return bool(size - 2 >= _DECIMAL_WIDTHS[precision - scale] + _DECIMAL_WIDTHS[scale])


@kernel(
    types.boolean, input_array(types.uint8), types.int64, types.int64, types.int64, output_array(types.int64)
)
def _place(data: Bytes, kind: int, at: int, limit: int, place: Ints) -> bool:
    """Find a value that is printed elsewhere: a double that is a number, or an opaque value."""
    if kind == _DOUBLE:
        if limit - at < 8:
            return False
        place[_FIELD], place[_START], place[_SIZE] = _NUMBER, at, 8
        return bool((data[at + 7] & 0x7F) != 0x7F or (data[at + 6] & 0xF0) != 0xF0)
    if kind != _OPAQUE or at >= limit:
        return False
    size, start = _length(data, at + 1, limit)
    place[_FIELD], place[_START], place[_SIZE] = int(data[at]), start, size
    return size >= 0 and _is_field(data, int(data[at]), start, size)


@kernel(
    types.int64,
    input_array(types.uint8),
    types.int64,
    types.int64,
    types.int64,
    output_array(types.uint8),
    types.int64,
)
def _scalar(data: Bytes, kind: int, at: int, limit: int, out: Bytes, to: int) -> int:
    """Print a literal, an integer or a text."""
    if kind == _LITERAL:
        if at >= limit or data[at] > 2:
            return _MALFORMED
        begin, end = _WORD_ENDS[data[at]], _WORD_ENDS[data[at] + 1]
        if len(out):
            copy_bytes(_WORDS, begin, end, out, to)
        return int(to + end - begin)
    if _FIRST_INTEGER <= kind <= _LAST_INTEGER:
        if limit - at < 2 << ((kind - _FIRST_INTEGER) >> 1):
            return _MALFORMED
        return _integer(data, at, kind, out, to)
    if kind != _STRING:
        return _MALFORMED
    length, at = _length(data, at, limit)
    return _quote(data, at, at + length, out, to) if length >= 0 else _MALFORMED


@kernel(
    types.boolean, input_array(types.uint8), types.int64, types.int64, types.int64, output_array(types.int64)
)
def _enter(data: Bytes, kind: int, at: int, limit: int, frame: Ints) -> bool:
    """Go into a container; False if it is none."""
    width = 4 if kind & 1 else 2
    if limit - at < 2 * width:
        return False
    count, size = _little(data, at, width), _little(data, at + width, width)
    keys = count * (width + 2) if kind <= _LARGE_OBJECT else 0
    if size > limit - at or 2 * width + keys + count * (1 + width) > size:
        return False
    frame[_KIND], frame[_BASE], frame[_LIMIT] = kind, at, at + size
    frame[_COUNT], frame[_NEXT], frame[_WIDTH] = count, 0, width
    frame[_KEYS] = at + 2 * width if kind <= _LARGE_OBJECT else -1
    frame[_VALUES] = at + 2 * width + keys
    return True


@kernel(
    types.int64, input_array(types.uint8), input_array(types.int64), output_array(types.uint8), types.int64
)
def _lead(data: Bytes, frame: Ints, out: Bytes, to: int) -> int:
    """Print what stands before the next value of a container: a comma and the key."""
    if frame[_NEXT] > 0:
        if len(out):
            out[to], out[to + 1] = _COMMA, _BLANK
        to += 2
    if frame[_KEYS] < 0:
        return to
    width = frame[_WIDTH]
    entry = frame[_KEYS] + frame[_NEXT] * (width + 2)
    start, size = frame[_BASE] + _little(data, entry, width), _little(data, entry + width, 2)
    if start > frame[_LIMIT] or size > frame[_LIMIT] - start:
        return _MALFORMED
    to = _quote(data, start, start + size, out, to)
    if len(out):
        out[to], out[to + 1] = _COLON, _BLANK
    return to + 2


@kernel(several(types.int64, types.int64, types.int64), input_array(types.uint8), input_array(types.int64))
def _member(data: Bytes, frame: Ints) -> tuple[int, int, int]:
    """The next value of a container: its kind, where it begins, and where it ends at the latest."""
    width = frame[_WIDTH]
    entry = frame[_VALUES] + frame[_NEXT] * (1 + width)
    kind = int(data[entry])
    small = kind == _LITERAL or 5 <= kind <= 6 or (width == 4 and 7 <= kind <= 8)
    if small:
        return kind, entry + 1, entry + 1 + width
    return kind, frame[_BASE] + _little(data, entry + 1, width), frame[_LIMIT]


@kernel(
    several(types.int64, types.int64),
    input_array(types.uint8),
    types.int64,
    types.int64,
    types.int64,
    types.int64,
    output_array(types.int64, 2),
    input_array(types.int64),
    input_array(types.uint8),
    output_array(types.uint8),
    types.int64,
)
def _place_value(
    data: Bytes,
    kind: int,
    at: int,
    limit: int,
    place: int,
    places: Ints,
    ends: Ints,
    apart: Bytes,
    out: Bytes,
    to: int,
) -> tuple[int, int]:
    """Copy a value that was printed elsewhere; or note where it lies, and count it against the limit."""
    if len(out):
        copy_bytes(apart, ends[place], ends[place + 1], out, to)
        return to + ends[place + 1] - ends[place], 0
    if place >= len(places) or not _place(data, kind, at, limit, places[place]):
        return _MALFORMED, 0
    return to, 2 * places[place, _SIZE]


@kernel(
    several(types.int64, types.int64),
    input_array(types.uint8),
    types.int64,
    types.int64,
    output_array(types.int64, 2),
    types.int64,
    output_array(types.int64, 2),
    input_array(types.int64),
    input_array(types.uint8),
    output_array(types.uint8),
    types.int64,
)
def _tree(
    data: Bytes,
    start: int,
    stop: int,
    stack: Ints,
    place: int,
    places: Ints,
    ends: Ints,
    apart: Bytes,
    out: Bytes,
    to: int,
) -> tuple[int, int]:
    """Print a tree. Returns where the text goes on, and how many values of it are printed elsewhere."""
    budget = to + _LONGEST * (stop - start + _LONGEST)
    kind, at, limit, depth = int(data[start]), start + 1, stop, 0
    while True:
        if depth > _DEEPEST or at > limit or (to > budget and not len(out)):
            return _MALFORMED, place
        if kind <= _LARGE_ARRAY:
            if not _enter(data, kind, at, limit, stack[depth]):
                return _MALFORMED, place
            if len(out):
                out[to] = _OPEN[kind]
            to, depth = to + 1, depth + 1
        elif kind in (_DOUBLE, _OPAQUE):
            to, spent = _place_value(data, kind, at, limit, place, places, ends, apart, out, to)
            budget -= spent
            place += 1
        else:
            to = _scalar(data, kind, at, limit, out, to)
        while to >= 0 and depth > 0 and stack[depth - 1, _NEXT] == stack[depth - 1, _COUNT]:
            depth -= 1
            if len(out):
                out[to] = _CLOSE[stack[depth, _KIND]]
            to += 1
        if depth == 0 or to < 0:
            return to, place
        frame = stack[depth - 1]
        to = _lead(data, frame, out, to)
        if to < 0:
            return _MALFORMED, place
        kind, at, limit = _member(data, frame)
        frame[_NEXT] += 1


@kernel(
    types.int64,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int32),
    input_array(types.uint8),
    output_array(types.int64),
    output_array(types.int64, 2),
)
def _measure(kinds: Bytes, starts: Ints, lengths: Lengths, data: Bytes, sizes: Ints, places: Ints) -> int:
    """Measure each text (-1: bad) without the values printed elsewhere. Find those values and count them."""
    stack, none = np.empty((_DEEPEST + 1, _VALUES + 1), np.int64), np.empty(0, np.uint8)
    count, no_ends = 0, np.empty(0, np.int64)
    for i in range(len(kinds)):
        sizes[i] = -1
        if kinds[i] == TEXT and lengths[i] == 0:
            sizes[i] = _WORD_ENDS[1]
        elif kinds[i] == TEXT:
            stop = starts[i] + lengths[i]
            size, found = _tree(data, starts[i], stop, stack, count, places, no_ends, none, none, 0)
            sizes[i] = size
            count = found if size >= 0 else count
    return count


@kernel(
    types.void,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int32),
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int64),
    input_array(types.uint8),
    output_array(types.int64),
    output_array(types.uint8),
)
def _write(
    kinds: Bytes,
    starts: Ints,
    lengths: Lengths,
    data: Bytes,
    sizes: Ints,
    ends: Ints,
    apart: Bytes,
    begins: Ints,
    out: Bytes,
) -> None:
    stack, places = np.empty((_DEEPEST + 1, _VALUES + 1), np.int64), np.empty((0, 3), np.int64)
    to = place = 0
    begins[0] = 0
    for i in range(len(kinds)):
        if sizes[i] >= 0 and lengths[i] == 0:
            copy_bytes(_WORDS, 0, sizes[i], out, to)
            to += sizes[i]
        elif sizes[i] >= 0:
            stop = starts[i] + lengths[i]
            to, place = _tree(data, starts[i], stop, stack, place, places, ends, apart, out, to)
        begins[i + 1] = to
