"""The checksum of an event (CRC-32, as zlib has it), for kernels: called by `ordinary`, bit by bit zlib's.

    word        0   1   2   3   4   5   6   7   8   ...      eight bytes each
    register    a   b   c   a   b   c   a   b   c            three, which do not wait for each other

A byte's part in a checksum hangs on its own value and on how many bytes follow it, on nothing else. So a
register may leave out the words of the other two: its tables say for each byte of a word what it is worth
three words later. At the end the registers are joined in the order of their last words. One register waits
for its tables at each word, 2 GB/s; three fill that time, 4 GB/s, and more of them gain nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from headrace.decode.kernel import Bytes, input_array, kernel

_REVERSED_POLYNOMIAL = 0xEDB88320
_WORD, _REGISTERS = 8, 3  # bytes; words
_STRIDE = _WORD * _REGISTERS

_U8, _I64, _U64 = types.uint8, types.int64, types.uint64


def _tables(followed_by: int) -> npt.NDArray[np.uint32]:
    """The worth of each value of each byte of a word, where so many zeros follow the word."""
    worth: npt.NDArray[Any] = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        worth = (worth >> 1) ^ np.where(worth & 1, np.uint32(_REVERSED_POLYNOMIAL), np.uint32(0))
    last, found = worth.copy(), np.zeros((_WORD, 256), np.uint32)
    for behind in range(followed_by + _WORD):
        if behind >= followed_by:
            found[followed_by + _WORD - 1 - behind] = worth
        worth = (worth >> 8) ^ last[worth & 255]
    return found


_NEXT = _tables(0)
_LATER = _tables(_STRIDE - _WORD)


@kernel(_U64, input_array(_U8), _U64)
def _word(data: Bytes, at: Any) -> Any:
    one = np.uint64(1)
    value = np.uint64(data[at])
    for i in range(1, 8):
        value |= np.uint64(data[at + one * np.uint64(i)]) << np.uint64(8 * i)
    return value


@kernel(_U64, _U64, input_array(types.uint32, 2))
def _worth(word: Any, tables: npt.NDArray[np.uint32]) -> Any:
    low = np.uint64(255)
    return np.uint64(
        tables[0, word & low]
        ^ tables[1, (word >> np.uint64(8)) & low]
        ^ tables[2, (word >> np.uint64(16)) & low]
        ^ tables[3, (word >> np.uint64(24)) & low]
        ^ tables[4, (word >> np.uint64(32)) & low]
        ^ tables[5, (word >> np.uint64(40)) & low]
        ^ tables[6, (word >> np.uint64(48)) & low]
        ^ tables[7, word >> np.uint64(56)]
    )


@kernel(_I64, input_array(_U8), _I64, _I64)
def crc32(data: Bytes, begin: int, end: int) -> int:
    """The checksum of `data[begin:end]`."""
    at, left = np.uint64(begin), end - begin
    word, two = np.uint64(8), np.uint64(16)
    a, b, c = np.uint64(0xFFFFFFFF), np.uint64(0), np.uint64(0)
    if left >= 2 * _STRIDE:
        while left >= 2 * _STRIDE:
            a = _worth(a ^ _word(data, at), _LATER)
            b = _worth(b ^ _word(data, at + word), _LATER)
            c = _worth(c ^ _word(data, at + two), _LATER)
            at, left = at + np.uint64(_STRIDE), left - _STRIDE
        a = _worth(a ^ _word(data, at), _NEXT)
        a = _worth(a ^ b ^ _word(data, at + word), _NEXT)
        a = _worth(a ^ c ^ _word(data, at + two), _NEXT)
        at, left = at + np.uint64(_STRIDE), left - _STRIDE
    while left >= _WORD:
        a = _worth(a ^ _word(data, at), _NEXT)
        at, left = at + word, left - _WORD
    while left > 0:
        a = (a >> word) ^ np.uint64(_NEXT[7, (a ^ np.uint64(data[at])) & np.uint64(255)])
        at, left = at + np.uint64(1), left - 1
    return int(a ^ np.uint64(0xFFFFFFFF))
