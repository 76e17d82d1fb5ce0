"""BINARY of a fixed width; also MariaDB's uuid, inet4 and inet6, which a row event holds as such a BINARY.

The binlog leaves out the zeros at the end of such a value. They are put back first.

    uuid     16 bytes    01020304-0506-0708-090a-0b0c0d0e0f10
    inet4     4 bytes    1.2.3.0
    inet6    16 bytes    2001:db8::1   ::ffff:1.2.3.4       without the longest run of zeros
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
from numba import types

from headrace.decode.kernel import Bytes, Ints, Lengths, input_array, kernel, output_array
from headrace.decode.text import TEXT, TextColumn
from headrace.decode.values.outcome import DecodedColumn

_UUID_BYTES, _INET4_BYTES, _INET6_BYTES = 16, 4, 16
_DASHES = (8, 13, 18, 23)
_UUID_TEXT = 36
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_MAPPED, _COMPATIBLE = b"\0" * 10 + b"\xff\xff", b"\0" * 12
_NO_ROWS = np.empty(0, np.int64)


def pad(column: TextColumn, width: int) -> TextColumn:
    """The values with the zeros that the binlog left out."""
    block = np.zeros((len(column), width), np.uint8)
    _pad(column.kinds, column.starts, column.lengths, column.data, block)
    starts = np.arange(len(column), dtype=np.int64) * width
    return TextColumn(column.kinds, starts, np.full(len(column), width, np.int32), block.reshape(-1))


def uuids(column: TextColumn) -> DecodedColumn:
    """Form `uuid`."""
    block = pad(column, _UUID_BYTES).data.reshape(-1, _UUID_BYTES)
    letters = np.full((len(column), _UUID_TEXT), ord("-"), np.uint8)
    places = [i for i in range(_UUID_TEXT) if i not in _DASHES]
    letters[:, places[::2]] = _HEX[block >> 4]
    letters[:, places[1::2]] = _HEX[block & 15]
    starts = np.arange(len(column), dtype=np.int64) * _UUID_TEXT
    lengths = np.full(len(column), _UUID_TEXT, np.int32)
    return DecodedColumn(
        TextColumn(column.kinds, starts, lengths, letters.reshape(-1)).binary(pa.string()), _NO_ROWS
    )


def inet4s(column: TextColumn) -> DecodedColumn:
    """Form `inet4`, one value at a time."""
    values = pad(column, _INET4_BYTES).binary(pa.binary()).to_pylist()
    return DecodedColumn(pa.array([None if v is None else inet4(v) for v in values], pa.string()), _NO_ROWS)


def inet6s(column: TextColumn) -> DecodedColumn:
    """Form `inet6`, one value at a time."""
    values = pad(column, _INET6_BYTES).binary(pa.binary()).to_pylist()
    return DecodedColumn(pa.array([None if v is None else inet6(v) for v in values], pa.string()), _NO_ROWS)


def inet4(value: bytes) -> str:
    """The text of an address of four bytes."""
    return ".".join(map(str, value))


def inet6(value: bytes) -> str:
    """The text of an address of sixteen bytes, as MariaDB prints it."""
    if value.startswith(_MAPPED):
        return "::ffff:" + inet4(value[12:])
    if value.startswith(_COMPATIBLE) and value[12:14] != b"\0\0":
        return "::" + inet4(value[12:])
    groups = [f"{value[i] << 8 | value[i + 1]:x}" for i in range(0, _INET6_BYTES, 2)]
    runs = [match.span() for match in re.finditer("0+", "".join("0" if g == "0" else "1" for g in groups))]
    start, stop = max(runs, key=lambda run: (run[1] - run[0], -run[0]), default=(0, 0))
    if stop - start < 2:
        return ":".join(groups)
    return ":".join(groups[:start]) + "::" + ":".join(groups[stop:])


@kernel(
    types.void,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int32),
    input_array(types.uint8),
    output_array(types.uint8, 2),
)
def _pad(kinds: Bytes, starts: Ints, lengths: Lengths, data: Bytes, block: Bytes) -> None:
    width = block.shape[1]
    for i in range(len(kinds)):
        if kinds[i] == TEXT:
            for j in range(min(width, lengths[i])):
                block[i, j] = data[starts[i] + j]
