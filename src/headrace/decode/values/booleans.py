"""Booleans: `t` or `f`; anything else is bad."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numba import types

from headrace.decode.kernel import Bytes, Ints, Lengths, input_array, kernel, output_array
from headrace.decode.text import TEXT, TextColumn
from headrace.decode.values.outcome import ABSENT, BAD, GOOD, DecodedColumn, fixed_width

_TRUE, _FALSE = ord("t"), ord("f")


def decode(column: TextColumn, type: pa.DataType) -> DecodedColumn:
    """Form `bool`."""
    values, states = np.empty(len(column), np.uint8), np.empty(len(column), np.uint8)
    _parse(column.kinds, column.starts, column.lengths, column.data, values, states)
    return fixed_width(type, np.packbits(values, bitorder="little"), states)


@kernel(
    types.void,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int32),
    input_array(types.uint8),
    output_array(types.uint8),
    output_array(types.uint8),
)
def _parse(kinds: Bytes, starts: Ints, lengths: Lengths, data: Bytes, values: Bytes, states: Bytes) -> None:
    for i in range(len(kinds)):
        values[i], states[i] = 0, ABSENT
        if kinds[i] != TEXT:
            continue
        letter = data[starts[i]] if lengths[i] == 1 else 0
        values[i] = 1 if letter == _TRUE else 0
        states[i] = GOOD if letter in (_TRUE, _FALSE) else BAD
