"""Texts of composite values, as `record::text` prints them, to text columns.

    (1,Ann,,"","a ""b"" \\\\ c, (d)")      nothing for NULL; quotes around what is empty, or holds
                                          a comma, a parenthesis, a quote, a backslash or white space

Within quotes the server doubles quotes and backslashes and writes everything else as it is. Values are slices
of the texts' own buffer. Only if a value holds a doubled letter is the buffer copied; such values are then
shortened in place in the copy.

A text with another number of fields has another layout of the table. `columns` takes rows of one layout.
`fields` takes rows of several and returns how many fields each has. A text that the server would never write
is a definite error: no value of its row can be trusted.
"""

from __future__ import annotations

import numpy as np
from numba import types

from headrace.core.errors import Definite
from headrace.decode.kernel import Bytes, Ints, Lengths, input_array, kernel, output_array, several
from headrace.decode.text import NULL, TEXT, TextColumn

_OPEN, _CLOSE, _COMMA, _QUOTE, _BACKSLASH = (ord(letter) for letter in '(),"\\')


class FieldsDiffer(Exception):
    """A row has another number of fields than was asked for: it has another layout of its table."""

    def __init__(self, row: int) -> None:
        super().__init__(f"row {row} has another number of fields")
        self.row = row


def columns(rows: TextColumn, ncols: int) -> list[TextColumn]:
    """The fields of these rows. No row may be NULL, and each must have `ncols` fields."""
    texts, counts = fields(rows, ncols)
    if len(others := np.flatnonzero(counts != ncols)):
        raise FieldsDiffer(int(others[0]))
    return texts


def fields(rows: TextColumn, most: int) -> tuple[list[TextColumn], Lengths]:
    """The first `most` fields of each row, and how many fields it has; `most + 1` means that it has more.

    A field that a row does not have is NULL.
    """
    nrows = len(rows)
    kinds, counts = np.full((most, nrows), NULL, np.uint8), np.zeros(nrows, np.int32)
    starts, lengths = np.zeros((most, nrows), np.int64), np.zeros((most, nrows), np.int32)
    row, escaped = _split(rows.data, rows.kinds, rows.starts, rows.lengths, kinds, starts, lengths, counts)
    if row >= 0:
        raise Definite(
            "QUEUE_BAD_ROW",
            "a row of the queue can't be read",
            detail=f"row {row} of the batch is no text of a row",
            hint="report it with the server's version, and headrace tables resync",
        )
    data = rows.data
    if escaped:
        data = data.copy()
        _shorten(data, kinds, starts, lengths)
    return [TextColumn(kinds[i], starts[i], lengths[i], data) for i in range(most)], counts


# The bytes that end a plain field or must not stand in one; and those that are doubled within quotes.
_ENDS, _DOUBLED = np.zeros(256, np.uint8), np.zeros(256, np.uint8)
_ENDS[[_OPEN, _CLOSE, _COMMA, _QUOTE, _BACKSLASH]] = 1
_DOUBLED[[_QUOTE, _BACKSLASH]] = 1


@kernel(several(types.int64, types.boolean), input_array(types.uint8), types.int64, types.int64)
def _end_of_quotes(data: Bytes, at: int, last: int) -> tuple[int, bool]:
    """Find the end of the quotes that open before `at`, and tell whether letters are doubled in them."""
    doubled = False
    while at < last:
        byte = data[at]
        if _DOUBLED[byte] != 0:
            # There is a next byte: at the latest the closing parenthesis.
            if data[at + 1] == byte:
                doubled = True
                at += 1
            else:
                return (at if byte == _QUOTE else -1), doubled
        at += 1
    return -1, doubled


@kernel(
    several(types.int64, types.boolean),
    input_array(types.uint8),
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int32),
    output_array(types.uint8, 2),
    output_array(types.int64, 2),
    output_array(types.int32, 2),
    output_array(types.int32),
)
def _split(
    data: Bytes,
    row_kinds: Bytes,
    row_starts: Ints,
    row_lengths: Lengths,
    kinds: Bytes,
    starts: Ints,
    lengths: Lengths,
    counts: Lengths,
) -> tuple[int, bool]:
    """Find each field; one with doubled letters gets a backslash as kind. Returns a malformed row, or -1."""
    ncols, nrows = kinds.shape
    any_doubled = False
    for row in range(nrows):
        at = row_starts[row]
        last = at + row_lengths[row] - 1  # the closing parenthesis; no field goes beyond it
        if row_kinds[row] != TEXT or at < 0 or last <= at or last >= len(data):
            return row, False
        if data[at] != _OPEN or data[last] != _CLOSE:
            return row, False
        count = 0
        while at < last and count < ncols:
            at += 1  # past the parenthesis or the comma
            start = at
            if data[at] == _QUOTE:
                start += 1
                at, doubled = _end_of_quotes(data, start, last)
                if at < 0:
                    return row, False
                kinds[count, row], lengths[count, row] = _BACKSLASH if doubled else TEXT, at - start
                any_doubled |= doubled
                at += 1
            else:
                while at < last and _ENDS[data[at]] == 0:
                    at += 1
                kinds[count, row], lengths[count, row] = NULL if at == start else TEXT, at - start
            starts[count, row] = start
            if at < last and data[at] != _COMMA:
                return row, False
            count += 1
        counts[row] = count + (at < last)
    return -1, any_doubled


@kernel(
    types.void,
    output_array(types.uint8),
    output_array(types.uint8, 2),
    input_array(types.int64, 2),
    output_array(types.int32, 2),
)
def _shorten(data: Bytes, kinds: Bytes, starts: Ints, lengths: Lengths) -> None:
    """Shorten the values that hold doubled letters, in place."""
    for column in range(kinds.shape[0]):
        for row in range(kinds.shape[1]):
            if kinds[column, row] != _BACKSLASH:
                continue
            at = to = starts[column, row]
            stop = at + lengths[column, row]
            while at < stop:
                byte = data[at]
                data[to] = byte
                at += 1 + _DOUBLED[byte]
                to += 1
            lengths[column, row] = to - starts[column, row]
            kinds[column, row] = TEXT
