"""The packets of a buffer, and rows laid side by side.

    3 bytes    1 byte     `length` bytes
    ┌────────┬──────────┬───────────────┐
    │ length │ sequence │ payload       │     a length of 2^24 - 1: the payload goes on in the next packet
    └────────┴──────────┴───────────────┘

The sequence begins at 0 with each command and counts on, modulo 256, in the answer.

A row's first byte is the length of its first value, or says how many bytes that length has. 255 it cannot be:
that is an ERR packet. 254 it is only of a value of 16 MB and more: a shorter packet is the end of the rows.
"""

from __future__ import annotations

import numpy as np
from numba import types

from headrace.decode.kernel import Bytes, Ints, copy_bytes, input_array, kernel, output_array, several

HEADER = 4
LONGEST = 2**24 - 1  # of the payload of one packet

# Why `scan` ended.
PARTIAL, LARGE, OUT_OF_ORDER, ENOUGH = 0, 1, 2, 3

_EOF = 0xFE
_ERR = 0xFF


@kernel(
    several(types.int64, types.int64, types.int64, types.int64),
    input_array(types.uint8),
    types.int64,
    types.int64,
    types.int64,
    output_array(types.int64),
    output_array(types.int64),
)
def scan(
    data: Bytes, begin: int, end: int, sequence: int, starts: Ints, stops: Ints
) -> tuple[int, int, int, int]:
    """Note the payloads of the whole packets in `data[begin:end]`, up to one that is continued.

    Returns how many there are, where the rest begins, the sequence that comes next, and why it ended.
    """
    count, at = 0, begin
    while end - at >= 4:
        if count == len(starts):
            return count, at, sequence, 3
        if data[at + 3] != sequence:
            return count, at, sequence, 2
        length = int(np.int64(data[at]) | (np.int64(data[at + 1]) << 8) | (np.int64(data[at + 2]) << 16))
        if length == 16777215:
            return count, at, sequence, 1
        if end - at - 4 < length:
            return count, at, sequence, 0
        starts[count], stops[count] = at + 4, at + 4 + length
        count, at, sequence = count + 1, at + 4 + length, (sequence + 1) & 255
    return count, at, sequence, 0


@kernel(
    several(types.int64, types.int64),
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int64),
    types.int64,
    output_array(types.uint8),
    output_array(types.int64),
    types.int64,
)
def gather(
    data: Bytes, starts: Ints, stops: Ints, first: int, rows: Bytes, offsets: Ints, count: int
) -> tuple[int, int]:
    """Append packets from the `first` on to the `count` rows that are laid side by side already.

    It stops before a packet that is no row and before one that there is no room for. `offsets[count]` is
    where the rows end. Returns the packet to go on with, and how many rows there are now.
    """
    at, size = first, int(offsets[count])
    while at < len(starts) and count + 1 < len(offsets):
        begin, end = starts[at], stops[at]
        if end > begin and (data[begin] == 255 or (data[begin] == 254 and end - begin < 16777215)):
            break
        if size + end - begin > len(rows):
            break
        copy_bytes(data, begin, end, rows, size)
        size += int(end - begin)
        at, count = at + 1, count + 1
        offsets[count] = size
    return at, count


def is_row(first_byte: int, size: int) -> bool:
    """Tell a row from the end of the rows, by its packet; the twin of what `gather` sees."""
    return first_byte != _ERR and (first_byte != _EOF or size >= LONGEST)
