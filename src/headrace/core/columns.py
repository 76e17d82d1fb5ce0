"""A column as one contiguous array, and as numpy where numbers are counted with.

Arrow tables hold columns in chunks; the algebra works on whole columns by position. This module is
the only place where the one becomes the other. It copies only where there is more than one chunk.

Text and bytes of a batch have offsets of 32 bits, which end at 2 GiB. Whatever puts batches together (a fold,
the rows of a file in another order) widens them first: `wide` for a table, `widen_offsets` for its schema.
Files hold the narrow ones: `narrow_offsets`.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def across(columns: Sequence[Any], height: int) -> pa.Array:
    """Columns of texts to rows: a list of all columns' values for each row."""
    width = len(columns)
    order = np.arange(width * height).reshape(width, height).T.ravel()
    flat = pa.concat_arrays([pa.array([], pa.string()), *columns]).take(pa.array(order))
    return pa.ListArray.from_arrays(pa.array(np.arange(height + 1, dtype=np.int32) * width), flat)


def flags(values: pa.Array) -> Flags:
    """An array of booleans as numpy; NULL reads as false."""
    if values.null_count:
        values = pc.fill_null(values, False)
    return np.asarray(values.to_numpy(zero_copy_only=False)).astype(np.bool_, copy=False)


def flags_or_none_set(table: pa.Table, name: str) -> Flags:
    """The named column of booleans; all false where the table has no such column."""
    if not table.schema.get_all_field_indices(name):  # `column_names` makes a list of all
        return np.zeros(table.num_rows, dtype=np.bool_)
    return flags(column(table, name))


def widen_offsets(kind: pa.DataType) -> pa.DataType:
    """The type with offsets of 64 bits, within lists too."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(widen_offsets(kind.value_type))
    if pa.types.is_string(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary(kind) else kind


def narrow_offsets(kind: pa.DataType) -> pa.DataType:
    """The inverse of `widen_offsets`."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(narrow_offsets(kind.value_type))
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind


def wide_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of `wide` tables."""
    return pa.schema([field.with_type(widen_offsets(field.type)) for field in schema])


def wide(table: pa.Table) -> pa.Table:
    """The table with offsets of 64 bits: its columns may pass 2 GiB as one array."""
    return table.cast(wide_schema(table.schema))


def narrow(table: pa.Table) -> pa.Table:
    """The table with offsets of 32 bits; none of its chunks passes 2 GiB."""
    return table.cast(pa.schema([field.with_type(narrow_offsets(field.type)) for field in table.schema]))


def row_bytes(table: pa.Table) -> Ints:
    """About how many bytes of memory each row takes."""
    total = np.zeros(table.num_rows, np.int64)
    for each in table.columns:
        at = 0
        for chunk in each.chunks:  # together they may pass 2 GiB
            total[at : at + len(chunk)] += _value_bytes(chunk)
            at += len(chunk)
    return total


def _value_bytes(values: pa.Array) -> Ints:
    kind = values.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
        within = np.concatenate([np.zeros(1, np.int64), np.cumsum(_value_bytes(values.flatten()))])
        return np.asarray(np.diff(within[ends]) + 8)
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return np.full(len(values), max(kind.bit_width // 8, 1), np.int64)
    if pa.types.is_null(kind):
        return np.zeros(len(values), np.int64)
    lengths = pc.fill_null(pc.binary_length(values), 0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False)).astype(np.int64) + 8
