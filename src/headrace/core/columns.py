"""A column as one contiguous array, and as numpy where numbers are counted with.

Arrow tables hold columns in chunks; the algebra works on whole columns by position. This module is
the only place where the one becomes the other. It copies only where there is more than one chunk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def contiguous(column: Any) -> pa.Array:
    """The column (an array or a chunked one) as a single array."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def column(table: pa.Table, name: str) -> pa.Array:
    """The named column as a single array."""
    return contiguous(table.column(name))


def ints(table: pa.Table, name: str) -> Ints:
    """A column of integers without NULLs as int64."""
    values = column(table, name)
    if values.null_count:
        raise ValueError(f"column {name!r} must not hold NULL")
    return np.asarray(values.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)


def flags(values: pa.Array) -> Flags:
    """An array of booleans as numpy; NULL reads as false."""
    if values.null_count:
        values = pc.fill_null(values, False)
    return np.asarray(values.to_numpy(zero_copy_only=False)).astype(np.bool_, copy=False)


def flags_or_none_set(table: pa.Table, name: str) -> Flags:
    """The named column of booleans; all false where the table has no such column."""
    if name not in table.column_names:
        return np.zeros(table.num_rows, dtype=np.bool_)
    return flags(column(table, name))
