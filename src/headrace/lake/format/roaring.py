"""Delta's `RoaringBitmapArray`: ascending positions of rows as bytes, in the portable 64-bit form of Roaring.

    int32 magic · int64 number of bitmaps · each: int32 high half of its positions · a 32-bit Roaring bitmap
    a bitmap: int32 cookie · containers of 65,536 positions: a list, a bit set, or runs

Reading takes all of that form. Writing makes lists and bit sets, and always the same bytes for the same rows.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.core.columns import Ints

_MAGIC = 1681511377
_PLAIN, _WITH_RUNS = 12346, 12347
_LIST = 4096  # a container of more positions is a bit set
_HAS_OFFSETS = 4  # containers, from which on a bitmap with runs tells where each begins


NONE: Ints = np.empty(0, np.int64)


def distinct(*positions: Ints) -> Ints:
    """Return all of these positions once, in ascending order."""
    return np.unique(np.concatenate([NONE, *positions]))


def encode(rows: Ints) -> bytes:
    """Write ascending positions."""
    highs = np.unique(rows >> 32)
    parts = [struct.pack("<Iq", _MAGIC, len(highs))]
    for high in highs:
        parts += [struct.pack("<I", high), _encode_bitmap(rows[rows >> 32 == high] & 0xFFFFFFFF)]
    return b"".join(parts)


def _encode_bitmap(rows: Ints) -> bytes:
    keys, starts = np.unique(rows >> 16, return_index=True)
    containers = [_encode_container(each & 0xFFFF) for each in np.split(rows, starts[1:])]
    counts = np.diff([*starts, len(rows)]) - 1
    begin = 8 + 8 * len(keys)
    offsets = begin + np.cumsum([0, *map(len, containers)])[:-1]
    heads = np.column_stack([keys, counts]).astype("<u2")
    head = struct.pack("<II", _PLAIN, len(keys))
    return b"".join([head, heads.tobytes(), offsets.astype("<u4").tobytes(), *containers])


def _encode_container(low: Ints) -> bytes:
    if len(low) <= _LIST:
        return low.astype("<u2").tobytes()
    bits = np.zeros(1 << 16, np.bool_)
    bits[low] = True
    return np.packbits(bits, bitorder="little").tobytes()


def decode(data: memoryview) -> Ints:
    """Read ascending positions; a ValueError or a `struct.error` where the bytes hold none."""
    magic, count = struct.unpack_from("<Iq", data)
    if magic != _MAGIC:
        raise ValueError(magic)
    at, parts = 12, [np.empty(0, np.int64)]
    for _ in range(count):
        [high] = struct.unpack_from("<I", data, at)
        rows, at = _decode_bitmap(data, at + 4)
        parts.append(rows + (high << 32))
    rows = np.concatenate(parts)
    if not (np.diff(rows) > 0).all():
        raise ValueError("not in order")
    return rows


def _decode_bitmap(data: memoryview, at: int) -> tuple[Ints, int]:
    """Return a bitmap's positions, and where it ends."""
    [cookie] = struct.unpack_from("<I", data, at)
    if cookie & 0xFFFF == _WITH_RUNS:
        size, at = (cookie >> 16) + 1, at + 4
        flags = _array(data, at, "u1", (size + 7) // 8)
        runs, at = np.unpackbits(flags, bitorder="little").astype(np.bool_), at + len(flags)
    elif cookie == _PLAIN:
        [size] = struct.unpack_from("<I", data, at + 4)
        runs, at = np.zeros(min(size, 1 << 16), np.bool_), at + 8
    else:
        raise ValueError(cookie)
    heads = _array(data, at, "<u2", 2 * size).astype(np.int64).reshape(-1, 2)
    at += 4 * size + (4 * size if cookie == _PLAIN or size >= _HAS_OFFSETS else 0)
    parts = [np.empty(0, np.int64)]
    for (key, count), has_runs in zip(heads, runs, strict=False):
        low, at = _decode_container(data, at, int(count) + 1, bool(has_runs))
        parts.append(low + (key << 16))
    return np.concatenate(parts), at


def _decode_container(data: memoryview, at: int, count: int, has_runs: bool) -> tuple[Ints, int]:
    if has_runs:
        [number] = struct.unpack_from("<H", data, at)
        pairs = _array(data, at + 2, "<u2", 2 * number).astype(np.int64).reshape(-1, 2)
        low = [np.arange(start, start + more + 1) for start, more in pairs]
        return np.concatenate([np.empty(0, np.int64), *low]), at + 2 + 4 * number
    if count <= _LIST:
        return _array(data, at, "<u2", count).astype(np.int64), at + 2 * count
    bits = np.unpackbits(_array(data, at, "u1", 1 << 13), bitorder="little")
    return np.flatnonzero(bits).astype(np.int64), at + (1 << 13)


def _array(data: memoryview, at: int, kind: str, count: int) -> npt.NDArray[Any]:
    return np.frombuffer(data, kind, count, at)
