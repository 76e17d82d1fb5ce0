"""real and double precision, as PostgreSQL prints them with extra_float_digits = 3.

    NaN | Infinity | -Infinity | -?[0-9]+(\\.[0-9]+)?(e[+-]?[0-9]+)?        anything else is bad

A kernel checks each text against this grammar. Arrow's parser, which rounds correctly and directly to the
type's width, then reads the texts that passed. A finite text beyond the type's range is bad, never infinity.
-0 keeps its sign.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import types

from headrace.decode.kernel import Bytes, Flags, Ints, Lengths, input_array, kernel, output_array
from headrace.decode.text import TEXT, TextColumn
from headrace.decode.values.outcome import DecodedColumn

_ZERO, _MINUS, _PLUS, _POINT, _E = ord("0"), ord("-"), ord("+"), ord("."), ord("e")
_TAME = 38
_NAN = np.frombuffer(b"NaN", np.uint8)
_INFINITY = np.frombuffer(b"Infinity", np.uint8)


def decode(column: TextColumn, type: pa.DataType) -> DecodedColumn:
    """Form `float`."""
    bad, special = np.zeros(len(column), np.bool_), np.zeros(len(column), np.bool_)
    wild = _check(column.kinds, column.starts, column.lengths, column.data, bad, special)
    rows = np.flatnonzero(bad)
    texts = (column.without(rows) if len(rows) else column).binary(pa.string())
    if not wild:
        return DecodedColumn(texts.cast(type), rows)
    array = _cast(texts, type)
    beyond = _flags(pc.and_(pc.is_valid(texts), pc.fill_null(pc.invert(pc.is_finite(array)), True)))
    beyond &= ~special
    if not beyond.any():
        return DecodedColumn(array, rows)
    return DecodedColumn(pc.if_else(pa.array(beyond), None, array), np.flatnonzero(bad | beyond))


def _flags(array: Any) -> Flags:
    flags: Flags = array.to_numpy(zero_copy_only=False).astype(np.bool_)
    return flags


def _cast(texts: Any, type: pa.DataType) -> Any:
    try:
        return texts.cast(type)
    except pa.ArrowInvalid:
        # Some text is beyond the range, which no server prints: cast one by one.
        return pa.array([_cast_one(text, type) for text in texts], type)


def _cast_one(text: Any, type: pa.DataType) -> Any:
    try:
        return text.cast(type).as_py()
    except pa.ArrowInvalid:
        return None


@kernel(types.boolean, input_array(types.uint8), types.int64, types.int64, input_array(types.uint8))
def _spells(data: Bytes, at: int, stop: int, word: Bytes) -> bool:
    same, i = stop - at == len(word), 0
    while same and i < len(word):
        same = data[at + i] == word[i]
        i += 1
    return same


@kernel(types.int64, input_array(types.uint8), types.int64, types.int64)
def _digits(data: Bytes, at: int, stop: int) -> int:
    while at < stop and _ZERO <= data[at] <= _ZERO + 9:
        at += 1
    return at


@kernel(types.boolean, input_array(types.uint8), types.int64, types.int64)
def _is_number(data: Bytes, at: int, stop: int) -> bool:
    """Tell whether this is a number without its sign."""
    end = _digits(data, at, stop)
    fine = end > at
    if fine and end < stop and data[end] == _POINT:
        at = end + 1
        end = _digits(data, at, stop)
        fine = end > at
    if fine and end < stop and data[end] == _E:
        at = end + 1
        if at < stop and data[at] in (_PLUS, _MINUS):
            at += 1
        end = _digits(data, at, stop)
        fine = end > at
    return fine and end == stop


@kernel(types.boolean, input_array(types.uint8), types.int64, types.int64)
def _has_exponent(data: Bytes, at: int, stop: int) -> bool:
    while at < stop and data[at] != _E:
        at += 1
    return at < stop


@kernel(
    types.boolean,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int32),
    input_array(types.uint8),
    output_array(types.boolean),
    output_array(types.boolean),
)
def _check(kinds: Bytes, starts: Ints, lengths: Lengths, data: Bytes, bad: Flags, special: Flags) -> bool:
    """Mark texts that are no float, and NaN and infinities (`special`); tell if one may be out of range."""
    wild = False
    for i in range(len(kinds)):
        if kinds[i] != TEXT:
            continue
        at, stop = starts[i], starts[i] + lengths[i]
        minus = at < stop and data[at] == _MINUS
        if minus:
            at += 1
        # The smaller range ends at 3.4e38: a short text without an exponent is far below it.
        wild |= stop - at > _TAME or _has_exponent(data, at, stop)
        special[i] = _spells(data, at, stop, _INFINITY) or (not minus and _spells(data, at, stop, _NAN))
        bad[i] = not special[i] and not _is_number(data, at, stop)
    return wild
