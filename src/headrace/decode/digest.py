"""Digests: a byte string as two 64-bit numbers, MurmurHash3's x64 128-bit variant with the seed 0.

    row ─ core.keycode ─► bytes, equal exactly where the rows are ─ digests ─► (low, high)

Two sides that never see each other's rows compare sums of digests (`core.checksum`). So a digest is the same
on every machine and in every version, and 128 bits are enough that no two rows of a table share one by
chance. It does not resist a person who constructs two such rows on purpose: it finds faults, not forgeries.
Pure.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from headrace.core.columns import contiguous
from headrace.decode.kernel import Bytes, Ints, input_array, kernel, output_array

Numbers = npt.NDArray[np.uint64]

_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_MIX1, _MIX2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_ADD1, _ADD2 = np.uint64(0x52DCE729), np.uint64(0x38495AB5)
_FIVE, _BYTE, _HALF, _BITS = np.uint64(5), np.uint64(8), np.uint64(33), np.uint64(64)


def digests(values: Any) -> tuple[Numbers, Numbers]:
    """The digests of an array of byte strings without NULLs."""
    codes = contiguous(values).cast(pa.large_binary())
    if codes.null_count:
        raise ValueError("NULL has no digest")
    count = len(codes)
    low, high = np.empty(count, np.uint64), np.empty(count, np.uint64)
    if count:
        offsets = np.frombuffer(codes.buffers()[1], np.int64)[codes.offset : codes.offset + count + 1]
        data = np.frombuffer(codes.buffers()[2] or b"", np.uint8)
        _digest(data, offsets, low, high)
    return low, high


@kernel(types.uint64, types.uint64, types.uint64)
def _rotate(value: np.uint64, by: np.uint64) -> np.uint64:
    return (value << by) | (value >> (_BITS - by))


@kernel(types.uint64, types.uint64)
def _mix(value: np.uint64) -> np.uint64:
    value = (value ^ (value >> _HALF)) * _MIX1
    value = (value ^ (value >> _HALF)) * _MIX2
    return value ^ (value >> _HALF)


@kernel(types.uint64, input_array(types.uint8), types.int64, types.int64)
def _word(data: Bytes, start: int, stop: int) -> np.uint64:
    """The little-endian number of up to eight bytes."""
    word = np.uint64(0)
    for at in range(stop - 1, start - 1, -1):
        word = (word << _BYTE) | np.uint64(data[at])
    return word


@kernel(types.uint64, types.uint64)
def _first(word: np.uint64) -> np.uint64:
    return _rotate(word * _C1, np.uint64(31)) * _C2


@kernel(types.uint64, types.uint64)
def _second(word: np.uint64) -> np.uint64:
    return _rotate(word * _C2, np.uint64(33)) * _C1


@kernel(
    types.void,
    input_array(types.uint8),
    input_array(types.int64),
    output_array(types.uint64),
    output_array(types.uint64),
)
def _digest(data: Bytes, offsets: Ints, low: Numbers, high: Numbers) -> None:
    for i in range(len(low)):
        at, stop = offsets[i], offsets[i + 1]
        size = np.uint64(stop - at)
        one = two = np.uint64(0)
        while at + 16 <= stop:
            one ^= _first(_word(data, at, at + 8))
            one = (_rotate(one, np.uint64(27)) + two) * _FIVE + _ADD1
            two ^= _second(_word(data, at + 8, at + 16))
            two = (_rotate(two, np.uint64(31)) + one) * _FIVE + _ADD2
            at += 16
        two ^= _second(_word(data, min(at + 8, stop), stop))
        one ^= _first(_word(data, at, min(at + 8, stop)))
        one, two = one ^ size, two ^ size
        one += two
        two += one
        one, two = _mix(one), _mix(two)
        one += two
        low[i], high[i] = one, two + one
