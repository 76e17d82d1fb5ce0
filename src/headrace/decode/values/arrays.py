"""One-dimensional arrays, as PostgreSQL prints them, to lists.

    {}      {1,NULL,3}      {"a b","say \\"hi\\"","","NULL"}

The server quotes elements that are empty, that read NULL, or that hold braces, quotes, commas, backslashes or
white space; inside quotes a backslash escapes the next byte. A text of any other shape is bad: more
dimensions (`{{1,2},{3,4}}`), explicit lower bounds (`[0:1]={1,2}`). An array with a bad element is bad, since
a list with a hole would be another value. An array of nulls `{NULL}` is fine.

The elements of all rows become one `TextColumn` with a buffer of its own, which the decoder of the element's
form reads. (Type box separates its elements by semicolons; its arrays do not have this form.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numba import types

from headrace.decode.kernel import Bytes, Ints, Lengths, input_array, kernel, output_array, several
from headrace.decode.text import NULL, TEXT, TextColumn, validity
from headrace.decode.values.outcome import ABSENT, BAD, GOOD, DecodedColumn

Decoder = Callable[[TextColumn, pa.DataType], DecodedColumn]

_OPEN, _CLOSE, _COMMA, _QUOTE, _BACKSLASH = ord("{"), ord("}"), ord(","), ord('"'), ord("\\")
_NULL_WORD = np.frombuffer(b"NULL", np.uint8)
# Bytes that never come bare within an element; its end is checked apart.
_BARRED = np.zeros(256, np.uint8)
_BARRED[list(b'{}",\\ \t\n\r\v\f')] = 1


@dataclass(frozen=True, slots=True)
class _Lists:
    offsets: Lengths
    states: Bytes
    elements: TextColumn


def decode(column: TextColumn, type: pa.DataType, element: Decoder) -> DecodedColumn:
    """Decode form `array(...)`; `element` decodes the elements."""
    lists = _split(column)
    decoded = element(lists.elements, type.value_type)
    bad = lists.states == BAD
    if len(decoded.bad):
        # A NULL list must have no elements (Parquet's writer insists): decode again without them.
        bad[np.searchsorted(lists.offsets, decoded.bad, side="right") - 1] = True
        lists = _split(column.without(np.flatnonzero(bad)))
        decoded = element(lists.elements, type.value_type)
    buffers = [validity(lists.states == GOOD), pa.py_buffer(lists.offsets)]
    array = pa.Array.from_buffers(type, len(column), buffers, children=[decoded.array])
    return DecodedColumn(array, np.flatnonzero(bad))


def _split(column: TextColumn) -> _Lists:
    offsets, states = np.empty(len(column) + 1, np.int32), np.empty(len(column), np.uint8)
    count, size = _count(column.kinds, column.starts, column.lengths, column.data, offsets, states)
    kinds, starts = np.empty(count, np.uint8), np.empty(count, np.int64)
    lengths, joined = np.empty(count, np.int32), np.empty(size, np.uint8)
    _fill(column.starts, column.lengths, column.data, offsets, states, kinds, starts, lengths, joined)
    return _Lists(offsets, states, TextColumn(kinds, starts, lengths, joined))


@kernel(types.int64, input_array(types.uint8), types.int64, types.int64)
def _element(data: Bytes, at: int, stop: int) -> int:
    """Find the end of the element at `at`; -1 if it is not one."""
    start = at
    if at < stop and data[at] == _QUOTE:
        at += 1
        while at < stop and data[at] != _QUOTE:
            at += 2 if data[at] == _BACKSLASH else 1
        return at + 1 if at < stop else -1
    while at < stop and _BARRED[data[at]] == 0:
        at += 1
    return at if at > start else -1


@kernel(several(types.int64, types.int64), input_array(types.uint8), types.int64, types.int64)
def _measure(data: Bytes, at: int, stop: int) -> tuple[int, int]:
    """Count an array's elements, and the most bytes that they take; -1 if it does not have our shape."""
    if stop - at < 2 or data[at] != _OPEN or data[stop - 1] != _CLOSE:
        return -1, 0
    at, stop = at + 1, stop - 1
    if at == stop:
        return 0, 0
    count, size = 0, stop - at
    while True:
        at = _element(data, at, stop)
        if at < 0:
            return -1, 0
        count += 1
        if at == stop:
            return count, size
        if data[at] != _COMMA:
            return -1, 0
        at += 1


@kernel(
    several(types.int64, types.int64),
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int32),
    input_array(types.uint8),
    output_array(types.int32),
    output_array(types.uint8),
)
def _count(
    kinds: Bytes, starts: Ints, lengths: Lengths, data: Bytes, offsets: Lengths, states: Bytes
) -> tuple[int, int]:
    elements, bytes_ = 0, 0
    offsets[0] = 0
    for i in range(len(kinds)):
        states[i] = ABSENT
        if kinds[i] == TEXT:
            count, size = _measure(data, starts[i], starts[i] + lengths[i])
            states[i] = BAD if count < 0 else GOOD
            if count > 0:
                elements, bytes_ = elements + count, bytes_ + size
        offsets[i + 1] = elements
    return elements, bytes_


@kernel(
    types.int64, input_array(types.uint8), types.int64, types.int64, output_array(types.uint8), types.int64
)
def _copy(data: Bytes, at: int, stop: int, joined: Bytes, to: int) -> int:
    """Copy an element without its quotes and escapes; returns its length."""
    begin = to
    if data[at] == _QUOTE:
        at, stop = at + 1, stop - 1
        while at < stop:
            if data[at] == _BACKSLASH:
                at += 1
            joined[to] = data[at]
            at, to = at + 1, to + 1
        return to - begin
    while at < stop:
        joined[to] = data[at]
        at, to = at + 1, to + 1
    return to - begin


@kernel(types.boolean, input_array(types.uint8), types.int64, types.int64)
def _is_null(data: Bytes, at: int, stop: int) -> bool:
    same, i = stop - at == len(_NULL_WORD), 0
    while same and i < len(_NULL_WORD):
        same = data[at + i] == _NULL_WORD[i]
        i += 1
    return same


@kernel(
    types.void,
    input_array(types.int64),
    input_array(types.int32),
    input_array(types.uint8),
    input_array(types.int32),
    input_array(types.uint8),
    output_array(types.uint8),
    output_array(types.int64),
    output_array(types.int32),
    output_array(types.uint8),
)
def _fill(
    list_starts: Ints,
    list_lengths: Lengths,
    data: Bytes,
    offsets: Lengths,
    states: Bytes,
    kinds: Bytes,
    starts: Ints,
    lengths: Lengths,
    joined: Bytes,
) -> None:
    to = 0
    for i in range(len(states)):
        if states[i] != GOOD:
            continue
        at, stop = list_starts[i] + 1, list_starts[i] + list_lengths[i] - 1
        for j in range(offsets[i], offsets[i + 1]):
            end = _element(data, at, stop)
            kinds[j], starts[j], lengths[j] = NULL if _is_null(data, at, end) else TEXT, to, 0
            if kinds[j] == TEXT:
                lengths[j] = _copy(data, at, end, joined, to)
                to += lengths[j]
            at = end + 1
