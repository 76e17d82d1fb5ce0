"""Tuples: the places of the values in I, U and D messages, for all messages of one relation version.

    I   oid  'N' new
    U   oid  ['K' key | 'O' old]  'N' new
    D   oid   'K' key | 'O' old

    tuple = int16 count, then for each value:  'n'  |  'u'  |  't' int32 length, text

One walk over each message notes kind, place and length of every value, column by column; nothing is copied. A
relation's columns go to their positions in the table's schema; a column with position -1 is skipped.

A tuple is a definite error if it has more or fewer values than its relation has columns, ends before or after
its message, or holds a binary value (never asked for) or an unknown kind: its values might be another
column's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import types

from headrace.core.change_batch import Image
from headrace.core.errors import Definite
from headrace.decode.kernel import (
    Bytes,
    Ints,
    Lengths,
    input_array,
    int16_at,
    int32_at,
    kernel,
    output_array,
    several,
)
from headrace.decode.pgoutput.framing import DELETE, INSERT, UPDATE, Messages
from headrace.decode.text import NULL, TEXT, UNCHANGED, TextColumn

_NEW, _OLD, _KEY, _BINARY = ord("N"), ord("O"), ord("K"), ord("b")
_OID = 4
_IMAGE_NONE, _IMAGE_KEY, _IMAGE_FULL = int(Image.NONE), int(Image.KEY), int(Image.FULL)

_FINE, _COLUMN_COUNT, _LENGTH, _VALUE_KIND, _BINARY_VALUE, _TUPLE_KIND, _MESSAGE_KIND = range(7)
_WORDS = {
    _COLUMN_COUNT: "its number of values is not the relation's number of columns",
    _LENGTH: "its values do not end where the message ends",
    _VALUE_KIND: "it holds a value of a kind that does not belong there",
    _BINARY_VALUE: "it holds a binary value, and text was asked for",
    _TUPLE_KIND: "its old or new row is missing or unknown",
    _MESSAGE_KIND: "it is not an insert, update or delete",
}


@dataclass(frozen=True, slots=True)
class Side:
    """The values of one side of the changes: row `c` is the column at position `c` of the schema."""

    kinds: Bytes
    starts: Ints
    lengths: Lengths

    def column(self, position: int, data: Bytes) -> TextColumn:
        return TextColumn(self.kinds[position], self.starts[position], self.lengths[position], data)


@dataclass(frozen=True, slots=True)
class Tuples:
    """The new and the old rows of messages, and how much the old ones hold (`Image`)."""

    new: Side
    old: Side
    image: Bytes


def tuples(data: Bytes, messages: Messages, positions: Ints, width: int) -> Tuples:
    """Walk the tuples of these messages into `width` columns."""
    new, old = _empty(width, len(messages)), _empty(width, len(messages))
    image = np.zeros(len(messages), np.uint8)
    trouble, row = _walk(
        data,
        messages.body,
        messages.stop,
        messages.kind,
        positions,
        new.kinds,
        new.starts,
        new.lengths,
        old.kinds,
        old.starts,
        old.lengths,
        image,
    )
    if trouble != _FINE:
        raise Definite(
            "PG_BAD_TUPLE",
            "a change of the replication stream can't be read",
            detail=f"message at byte {messages.start[row]} of the buffer: {_WORDS[trouble]}",
            hint="report it with the server's version, and resynchronise the table",
        )
    return Tuples(new, old, image)


def _empty(width: int, rows: int) -> Side:
    shape = (width, rows)
    return Side(np.full(shape, NULL, np.uint8), np.empty(shape, np.int64), np.empty(shape, np.int32))


@kernel(
    several(types.int64, types.int64),
    input_array(types.uint8),
    types.int64,
    types.int64,
    types.boolean,
    input_array(types.int64),
    output_array(types.uint8, 2),
    output_array(types.int64, 2),
    output_array(types.int32, 2),
    types.int64,
)
def _tuple(
    data: Bytes,
    at: int,
    stop: int,
    new: bool,
    positions: Ints,
    kinds: Bytes,
    starts: Ints,
    lengths: Lengths,
    row: int,
) -> tuple[int, int]:
    """Walk one tuple; return the trouble with it, and its end."""
    if stop - at < 2 or int16_at(data, at) != len(positions):
        return _COLUMN_COUNT, at
    at += 2
    for position in positions:
        if at >= stop:
            return _LENGTH, at
        kind, length = data[at], 0
        at += 1
        if kind == TEXT:
            if stop - at < 4:
                return _LENGTH, at
            length = int32_at(data, at)
            at += 4
            if length > stop - at:
                return _LENGTH, at
        elif kind == _BINARY:
            return _BINARY_VALUE, at
        elif kind != NULL and not (new and kind == UNCHANGED):
            return _VALUE_KIND, at
        if position >= 0:
            kinds[position, row], starts[position, row] = kind, at
            lengths[position, row] = length
        at += length
    return _FINE, at


@kernel(several(types.int64, types.boolean, types.boolean), types.int64, types.int64)
def _sides(kind: int, first: int) -> tuple[int, bool, bool]:
    """The parts of a message, by its kind and the letter of its first tuple: the image of the old row,
    whether there is a new row, and whether the two may come together."""
    image = _IMAGE_KEY if first == _KEY else _IMAGE_FULL if first == _OLD else _IMAGE_NONE
    fine = image != _IMAGE_NONE or first == _NEW
    if kind == INSERT:
        fine = first == _NEW
    elif kind == DELETE:
        fine = image != _IMAGE_NONE
    return image, kind != DELETE, fine


@kernel(
    several(types.int64, types.int64),
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int64),
    input_array(types.uint8),
    input_array(types.int64),
    output_array(types.uint8, 2),
    output_array(types.int64, 2),
    output_array(types.int32, 2),
    output_array(types.uint8, 2),
    output_array(types.int64, 2),
    output_array(types.int32, 2),
    output_array(types.uint8),
)
def _walk(
    data: Bytes,
    bodies: Ints,
    stops: Ints,
    kinds: Bytes,
    positions: Ints,
    new_kinds: Bytes,
    new_starts: Ints,
    new_lengths: Lengths,
    old_kinds: Bytes,
    old_starts: Ints,
    old_lengths: Lengths,
    images: Bytes,
) -> tuple[int, int]:
    for i in range(len(bodies)):
        if kinds[i] not in (INSERT, UPDATE, DELETE):
            return _MESSAGE_KIND, i
        # `scan` has checked that there are an oid, a letter and a count.
        at, stop = bodies[i] + _OID, stops[i]
        image, has_new, fine = _sides(kinds[i], data[at])
        if not fine:
            return _TUPLE_KIND, i
        images[i] = image
        trouble = _FINE
        if image != _IMAGE_NONE:
            trouble, at = _tuple(data, at + 1, stop, False, positions, old_kinds, old_starts, old_lengths, i)
            if trouble != _FINE:
                return trouble, i
        if has_new:
            if at >= stop or data[at] != _NEW:
                return _TUPLE_KIND, i
            trouble, at = _tuple(data, at + 1, stop, True, positions, new_kinds, new_starts, new_lengths, i)
        if trouble != _FINE:
            return trouble, i
        if at != stop:
            return _LENGTH, i
    return _FINE, 0
