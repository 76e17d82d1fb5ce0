"""Rows of a text result set to rows of the lake.

    03 '1' '2' '3'   fb    fc e8 03 1000 bytes ...        length-encoded texts one after another, fb for NULL

A row is the payload of one packet; packets of 16 MB have been joined before. Values are slices of the
payloads themselves, so numbers are parsed where they lie. `forms` turns the texts into the same bits that a
row event gives. A value that the lake cannot hold comes with its text.

A row with another number of values is a definite error: the bytes are not what we asked for, and no value of
the buffer can be trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import types

from headrace.core.errors import Definite
from headrace.core.schema import Column
from headrace.decode.copyrows import CopiedRows, of_columns
from headrace.decode.kernel import Bytes, Ints, Lengths, input_array, kernel, output_array, several
from headrace.decode.mysql.forms import decode_text
from headrace.decode.text import NULL, TEXT, TextColumn

# What can stand in the place of a length: NULL, or how many bytes the length has.
_NULL, _TWO, _THREE, _EIGHT = 0xFB, 0xFC, 0xFD, 0xFE
_FINE, _TOO_SHORT, _TOO_LONG, _BAD_LENGTH = range(4)
_WORDS = {
    _TOO_SHORT: "it ends within a value",
    _TOO_LONG: "it has more values than columns were asked for",
    _BAD_LENGTH: "a length in it is none",
}


@dataclass(frozen=True, slots=True)
class RowBlock:
    """The payloads of rows, end to end: row `i` is `data[starts[i]:starts[i + 1]]`."""

    data: Bytes
    starts: Ints

    def __len__(self) -> int:
        return len(self.starts) - 1


def decode(block: RowBlock, columns: Sequence[Column]) -> CopiedRows:
    """The rows of a block. They hold exactly these columns, each selected as `selected` does it."""
    texts = columns_of(block, len(columns))
    decoded = [decode_text(text, c.form, c.type) for text, c in zip(texts, columns, strict=True)]
    return of_columns(columns, texts, decoded)


def columns_of(block: RowBlock, ncols: int) -> list[TextColumn]:
    """The texts of a block, column by column."""
    if block.starts[0] < 0 or block.starts[-1] > len(block.data) or (np.diff(block.starts) < 0).any():
        raise ValueError("the rows of a block lie within its data, one behind another")
    shape = (ncols, len(block))
    kinds = np.empty(shape, np.uint8)
    starts, lengths = np.empty(shape, np.int64), np.empty(shape, np.int32)
    trouble, row = _tokenise(block.data, block.starts, kinds, starts, lengths)
    if trouble != _FINE:
        raise Definite(
            "MY_BAD_RESULT_ROW",
            "a row of the snapshot can't be read",
            detail=f"row {row} of the buffer: {_WORDS[trouble]}",
            hint="report it with the server's version; headrace tables resync copies the table again",
        )
    return [TextColumn(kinds[i], starts[i], lengths[i], block.data) for i in range(ncols)]


@kernel(several(types.int64, types.int64), input_array(types.uint8), types.int64, types.int64)
def _length(data: Bytes, at: int, stop: int) -> tuple[int, int]:
    """The length that stands at `at` (-1: NULL, -2: none), and where its value begins."""
    first = int(np.int64(data[at]))
    at += 1
    if first < _NULL:
        return first, at
    if first == _NULL:
        return -1, at
    size = 2 if first == _TWO else 3 if first == _THREE else 8
    if first > _EIGHT or size > stop - at:
        return -2, at
    length = 0
    for i in range(size):
        length |= int(np.int64(data[at + i])) << (8 * i)
    # Eight bytes may have their highest bit set.
    return length if length >= 0 else -2, at + size


@kernel(
    several(types.int64, types.int64),
    input_array(types.uint8),
    input_array(types.int64),
    output_array(types.uint8, 2),
    output_array(types.int64, 2),
    output_array(types.int32, 2),
)
def _tokenise(data: Bytes, rows: Ints, kinds: Bytes, starts: Ints, lengths: Lengths) -> tuple[int, int]:
    ncols, nrows = kinds.shape
    for row in range(nrows):
        at, stop = rows[row], rows[row + 1]
        for column in range(ncols):
            if at >= stop:
                return _TOO_SHORT, row
            length, at = _length(data, at, stop)
            kinds[column, row], starts[column, row], lengths[column, row] = NULL, at, 0
            if length == -1:
                continue
            if length < 0:
                return _BAD_LENGTH, row
            if length > stop - at:
                return _TOO_SHORT, row
            kinds[column, row], lengths[column, row] = TEXT, length
            at += length
        if at != stop:
            return _TOO_LONG, row
    return _FINE, 0
