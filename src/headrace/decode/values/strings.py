"""Text: the bytes as they are, if they are UTF-8.

A server sends UTF-8 if its database has an encoding. A database in SQL_ASCII sends the bytes that clients
stored; those that are not UTF-8 are bad. Types without a form of their own (uuid, interval, json, ranges,
enums, ...) are text too, as the server prints them under our pinned settings.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import types

from headrace.core.errors import Definite
from headrace.core.hashing import DIGITS
from headrace.decode.kernel import Bytes, Flags, Ints, Lengths, input_array, kernel, output_array
from headrace.decode.text import TEXT, TextColumn
from headrace.decode.values.outcome import DecodedColumn

_NO_BAD = np.empty(0, np.int64)


def decode(column: TextColumn, type: pa.DataType) -> DecodedColumn:
    """Form `text`."""
    array = column.binary(type)
    try:
        # Arrow's own check is several times faster than ours, but does not name the row.
        array.validate(full=True)
    except pa.ArrowInvalid:
        bad = np.zeros(len(column), np.bool_)
        _find_bad(column.kinds, column.starts, column.lengths, column.data, bad)
        rows = np.flatnonzero(bad)
        return DecodedColumn(column.without(rows).binary(type), rows)
    return DecodedColumn(array, _NO_BAD)


def decode_padded(column: TextColumn, type: pa.DataType) -> DecodedColumn:
    """Form `char`: text without the spaces that pad it."""
    decoded = decode(column, type)
    return DecodedColumn(pc.utf8_rtrim(decoded.array, " "), decoded.bad)


_HASH = f"^[0-9a-f]{{{DIGITS}}}$"


class ValueUnhashed(Definite):
    """A value that is to be a hash came as something else."""

    codes = ("COLUMNS_UNHASHED",)


def decode_hash(column: TextColumn) -> DecodedColumn:
    """Form `hashed(...)`: hashes that were made where the values came in. Raises for any other text.

    Such a text may be a value that must not leave: it is neither stored nor named in the error.
    """
    texts = column.binary(pa.binary())
    if not pc.all(pc.match_substring_regex(texts, _HASH), min_count=0).as_py():
        raise ValueUnhashed(
            "COLUMNS_UNHASHED",
            "a column that a rule hashes holds a value that is no hash",
            detail="the value was not stored",
            hint="headrace tables resync copies the table anew; if it comes back, report it",
        )
    return DecodedColumn(texts.cast(pa.string()), _NO_BAD)


@kernel(types.int64, input_array(types.uint8), types.int64, types.int64)
def _character(data: Bytes, at: int, stop: int) -> int:
    """The length of the well-formed character at `at`, or 0 (Unicode, table 3-7)."""
    first = int(data[at])
    if first < 0x80:
        return 1
    length = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if first < 0xC2 or first > 0xF4 or length > stop - at:
        return 0
    second = int(data[at + 1])
    low = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
    high = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF
    if second < low or second > high:
        return 0
    for i in range(2, length):
        if (int(data[at + i]) & 0xC0) != 0x80:
            return 0
    return length


@kernel(
    types.void,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int32),
    input_array(types.uint8),
    output_array(types.boolean),
)
def _find_bad(kinds: Bytes, starts: Ints, lengths: Lengths, data: Bytes, bad: Flags) -> None:
    for i in range(len(kinds)):
        if kinds[i] != TEXT:
            continue
        at, stop = starts[i], starts[i] + lengths[i]
        while at < stop:
            length = _character(data, at, stop)
            if length == 0:
                bad[i] = True
                break
            at += length
