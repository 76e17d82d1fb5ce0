"""A column of source text, from the snapshot or the stream, before anything is interpreted.

A `TextColumn` does not own its values: they are slices of one buffer, usually of the very bytes that came
off the wire. So numbers are parsed in place, and only text that stays text is copied, once.

    kinds    't' 'n' 't' 'u'          t text · n NULL · u unchanged, not sent (TOAST; stream only)
    starts    5   -  17   -           slices of `data`; undefined where there is no text
    lengths   3   -   9   -
    data     ....abc.........some text....

Arrow's strings count their bytes in 32 bits. Slices do not overlap, so a buffer below 2 GB never holds more
text than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import types

from headrace.decode.kernel import Bytes, Flags, Ints, Lengths, copy_bytes, input_array, kernel, output_array

TEXT, NULL, UNCHANGED = ord("t"), ord("n"), ord("u")
_MOST = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class TextColumn:
    """The values of one column, in row order."""

    kinds: Bytes
    starts: Ints
    lengths: Lengths
    data: Bytes

    def __len__(self) -> int:
        return len(self.kinds)

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> TextColumn:
        """A column of these values; None is NULL."""
        lengths = np.array([len(value or b"") for value in values], np.int32)
        starts = np.zeros(len(values), np.int64)
        np.cumsum(lengths[:-1], out=starts[1:])
        kinds = np.array([NULL if value is None else TEXT for value in values], np.uint8)
        data = np.frombuffer(b"".join(value or b"" for value in values), np.uint8)
        return cls(kinds, starts, lengths, data)

    def take(self, rows: Ints | Flags) -> TextColumn:
        """The values of these rows, over the same buffer."""
        return TextColumn(self.kinds[rows], self.starts[rows], self.lengths[rows], self.data)

    def without(self, rows: Ints) -> TextColumn:
        """The column with these rows set to NULL."""
        kinds = self.kinds.copy()
        kinds[rows] = NULL
        return TextColumn(kinds, self.starts, self.lengths, self.data)

    def binary(self, type: pa.DataType) -> Any:
        """An Arrow array of the values' bytes, as `pa.binary()` or, without a check, as `pa.string()`."""
        present = self.kinds == TEXT
        total = int(self.lengths.sum(where=present, dtype=np.int64))
        if total > _MOST:
            raise ValueError(f"a column of {total} bytes in one batch: pass smaller buffers")
        offsets, joined = np.empty(len(self) + 1, np.int32), np.empty(total, np.uint8)
        _gather(self.kinds, self.starts, self.lengths, self.data, offsets, joined)
        buffers = [validity(present), pa.py_buffer(offsets), pa.py_buffer(joined)]
        return pa.Array.from_buffers(type, len(self), buffers)


def validity(present: Flags) -> Any:
    """The validity bitmap: a bit for each row that is not NULL; None if no row is NULL."""
    if present.all():
        return None
    return pa.py_buffer(np.packbits(present, bitorder="little"))


@kernel(
    types.void,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int32),
    input_array(types.uint8),
    output_array(types.int32),
    output_array(types.uint8),
)
def _gather(
    kinds: Bytes, starts: Ints, lengths: Lengths, data: Bytes, offsets: Lengths, joined: Bytes
) -> None:
    at = 0
    offsets[0] = 0
    for i in range(len(kinds)):
        if kinds[i] == TEXT:
            start, length = starts[i], lengths[i]
            copy_bytes(data, start, start + length, joined, at)
            at += length
        offsets[i + 1] = at
