r"""COPY's text as rows of the lake, and the texts of values that the lake's types cannot hold.

    COPY text ─ text_columns ─► texts, column by column ─ values ─► rows as the lake types them
                                                              └───► Unrepresentable: NULL there, its text here

A copy, a proof and the bound of a chunk all turn the source's rows into rows of the lake by this module, so
that equal rows are equal to all three. Pure. The caller decides which columns must not lose a value (keys,
those of a strict table).

    1 ⇥ Ann ⇥ \N ⇥ two\nlines ↵          tab between values, newline after the row, \N for NULL

A value never holds a bare tab, newline or backslash: the server writes \b \f \n \r \t \v and \\ for
them. Values are slices of the payload itself; only if a value holds an escape is the payload copied,
and such values are shortened where they lie in the copy.

A row with another number of values, an escape that the server does not write, or a last row without its
newline is a definite error: the bytes are not what we asked for, so no value of the buffer can be trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import types

from headrace.core.errors import Definite
from headrace.core.schema import Column
from headrace.decode.kernel import Bytes, Ints, Lengths, input_array, kernel, output_array, several
from headrace.decode.text import NULL, TEXT, TextColumn
from headrace.decode.values import DecodedColumn, decode_column, raw

# --- texts, column by column ----------------------------------------------------------------------


_TAB, _NEWLINE, _BACKSLASH, _N = ord("\t"), ord("\n"), ord("\\"), ord("N")
_UNKNOWN = 0
_ESCAPES = np.full(256, _UNKNOWN, np.uint8)
for _letter, _meaning in zip(b"bfnrtv\\", b"\b\f\n\r\t\v\\", strict=True):
    _ESCAPES[_letter] = _meaning

# The bytes that end a plain run.
_ENDS = np.zeros(256, np.uint8)
_ENDS[[_TAB, _NEWLINE, _BACKSLASH]] = 1

_FINE, _COLUMN_COUNT, _UNFINISHED, _BAD_ESCAPE = range(4)
_WORDS = {
    _COLUMN_COUNT: "it has another number of values than columns were asked for",
    _UNFINISHED: "the data ends within it",
    _BAD_ESCAPE: "it holds an escape that the server does not write",
}


def text_columns(data: Bytes, ncols: int) -> list[TextColumn]:
    """The columns of a payload of whole rows."""
    nrows = int(_count_rows(data))
    kinds = np.empty((ncols, nrows), np.uint8)
    starts, lengths = np.empty((ncols, nrows), np.int64), np.empty((ncols, nrows), np.int32)
    trouble, row, escaped = _tokenise(data, kinds, starts, lengths)
    if trouble == _FINE and escaped:
        data = data.copy()
        trouble, row = _unescape(data, kinds, starts, lengths)
    if trouble != _FINE:
        raise _error(trouble, row)
    return [TextColumn(kinds[i], starts[i], lengths[i], data) for i in range(ncols)]


def _error(trouble: int, row: int) -> Definite:
    return Definite(
        "PG_BAD_COPY_ROW",
        "a row of the snapshot can't be read",
        detail=f"row {row} of the buffer: {_WORDS[trouble]}",
        hint="report it with the server's version; headrace tables resync copies the table again",
    )


@kernel(types.int64, input_array(types.uint8))
def _count_rows(data: Bytes) -> int:
    count = 0
    for byte in data:
        count += byte == _NEWLINE
    # A last row without its newline counts too, and will be refused.
    return count + (len(data) > 0 and data[-1] != _NEWLINE)


@kernel(
    several(types.int64, types.int64, types.boolean),
    input_array(types.uint8),
    output_array(types.uint8, 2),
    output_array(types.int64, 2),
    output_array(types.int32, 2),
)
def _tokenise(data: Bytes, kinds: Bytes, starts: Ints, lengths: Lengths) -> tuple[int, int, bool]:
    """Find each value; a value whose kind is a backslash still holds escapes."""
    ncols, nrows = kinds.shape
    if nrows > 0 and data[-1] != _NEWLINE:
        return _UNFINISHED, nrows - 1, False
    at, any_escaped = 0, False
    for row in range(nrows):
        for column in range(ncols):
            start, escaped = at, False
            # It ends at the last newline at the latest: there are as many rows as newlines.
            while _ENDS[data[at]] == 0:
                at += 1
            while data[at] == _BACKSLASH:
                escaped = True
                at += 1
                while _ENDS[data[at]] == 0:
                    at += 1
            if (data[at] == _NEWLINE) != (column == ncols - 1):
                return _COLUMN_COUNT, row, False
            starts[column, row], lengths[column, row] = start, at - start
            kinds[column, row] = TEXT
            if escaped:
                null = at - start == 2 and data[start] == _BACKSLASH and data[start + 1] == _N
                kinds[column, row] = NULL if null else _BACKSLASH
                any_escaped |= not null
            at += 1
    return _FINE, 0, any_escaped


@kernel(
    several(types.int64, types.int64),
    output_array(types.uint8),
    output_array(types.uint8, 2),
    input_array(types.int64, 2),
    output_array(types.int32, 2),
)
def _unescape(data: Bytes, kinds: Bytes, starts: Ints, lengths: Lengths) -> tuple[int, int]:
    """Shorten the values that hold escapes, in place."""
    for column in range(kinds.shape[0]):
        for row in range(kinds.shape[1]):
            if kinds[column, row] != _BACKSLASH:
                continue
            at = to = starts[column, row]
            stop = at + lengths[column, row]
            while at < stop:
                byte = data[at]
                if byte == _BACKSLASH:
                    at += 1
                    byte = _ESCAPES[data[at]] if at < stop else np.uint8(_UNKNOWN)
                    if byte == _UNKNOWN:
                        return _BAD_ESCAPE, row
                data[to] = byte
                at, to = at + 1, to + 1
            lengths[column, row] = to - starts[column, row]
            kinds[column, row] = TEXT
    return _FINE, 0


# --- rows of the lake -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unrepresentable:
    """The values of one column that its lake type cannot hold."""

    column: int
    rows: Ints
    texts: Any  # the source's text, one for each of these rows


@dataclass(frozen=True, slots=True)
class CopiedRows:
    """A piece of COPY's text, decoded."""

    rows: pa.Table
    unrepresentable: tuple[Unrepresentable, ...]  # in the order of their columns

    def those(self, values: Unrepresentable) -> pa.Table:
        """The rows that have these values."""
        return self.rows.take(pa.array(values.rows))


def decode(data: Bytes, columns: Sequence[Column]) -> CopiedRows:
    """Decode a buffer of whole lines, which hold these columns and no others."""
    texts = text_columns(data, len(columns))
    decoded = [decode_column(text, c.form, c.type) for text, c in zip(texts, columns, strict=True)]
    return of_columns(columns, texts, decoded)


def of_columns(
    columns: Sequence[Column], texts: Sequence[TextColumn], values: Sequence[DecodedColumn]
) -> CopiedRows:
    """Put decoded columns together, with the texts of the values that the lake can't hold."""
    schema = pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in columns])
    return CopiedRows(
        pa.Table.from_arrays([each.array for each in values], schema=schema),
        tuple(
            Unrepresentable(number, each.bad, raw(text, each.bad))
            for number, (text, each) in enumerate(zip(texts, values, strict=True))
            if len(each.bad)
        ),
    )
