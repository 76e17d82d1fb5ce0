"""The outcome of decoding a column, made from a kernel's output.

A family's kernel fills one value and one state for each row. A `BAD` row is NULL in the array and listed: its
text is no value of the column's type, or a value that the lake's type can't hold. The value under a NULL is
zero, so that equal columns have equal bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.decode.kernel import Bytes, Ints
from headrace.decode.text import TextColumn, validity

ABSENT, GOOD, BAD = 0, 1, 2


@dataclass(frozen=True, slots=True)
class DecodedColumn:
    """A column in Arrow, and the numbers of its bad rows."""

    array: Any
    bad: Ints


def fixed_width(type: pa.DataType, values: npt.NDArray[Any], states: Bytes) -> DecodedColumn:
    """A column of a fixed-width type from its values and states."""
    bitmap = validity(states == GOOD)
    array = pa.Array.from_buffers(type, len(states), [bitmap, pa.py_buffer(values)])
    return DecodedColumn(array, np.flatnonzero(states == BAD))


def raw(column: TextColumn, rows: Ints) -> Any:
    """The source's text of these rows, for the errors table; bytes that are not UTF-8 are escaped."""
    some = column.take(rows)
    array = some.binary(pa.string())
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        # Rare enough for Python: only a database in SQL_ASCII sends such bytes.
        texts = [value.decode("utf-8", "backslashreplace") for value in some.binary(pa.binary()).to_pylist()]
        return pa.array(texts, pa.string())
    return array
