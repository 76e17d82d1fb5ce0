"""VECTOR: numbers of four bytes, as they lie in the column; any other length is bad."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.decode.text import TEXT, TextColumn, validity
from headrace.decode.values.outcome import DecodedColumn

_WIDTH = 4


def decode(column: TextColumn, type: pa.DataType) -> DecodedColumn:
    """Form `vector`, in both ways."""
    odd = (column.kinds == TEXT) & (column.lengths % _WIDTH != 0)
    bad = np.flatnonzero(odd)
    good = column.without(bad) if len(bad) else column
    joined = good.binary(pa.binary())
    present = good.kinds == TEXT
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(np.where(present, column.lengths // _WIDTH, 0), out=offsets[1:])
    numbers = pa.Array.from_buffers(pa.float32(), int(offsets[-1]), [None, joined.buffers()[2]])
    buffers = [validity(present), pa.py_buffer(offsets)]
    return DecodedColumn(pa.Array.from_buffers(type, len(column), buffers, children=[numbers]), bad)
