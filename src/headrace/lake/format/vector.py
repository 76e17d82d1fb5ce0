"""Deletion vectors: the rows of a file that are deleted, by their positions, as Delta's log holds them.

    {"storageType": "i", "pathOrInlineDv": "...", "sizeInBytes": n, "cardinality": rows}

A vector of ours stands in the log's line itself ("i"): Z85 of Delta's `RoaringBitmapArray`, whose bitmaps
have the portable 64-bit form of the Roaring format. So no sweep and no recovery has another file to know.
Another program's vector may lie in a file ("u", "p"): its descriptor is kept, as a removal has to repeat it,
and its rows are not read.

    int32 magic · int64 number of bitmaps · each: int32 high half of its positions · a 32-bit Roaring bitmap
    a bitmap: int32 cookie · containers of 65,536 positions: a list, a bit set, or runs

Reading takes all of that form. Writing makes lists and bit sets, and always the same bytes for the same rows.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from headrace.core.columns import Ints
from headrace.core.errors import Definite
from headrace.core.records import on_disk

INLINE = "i"
_MAGIC = 1681511377
_PLAIN, _WITH_RUNS = 12346, 12347
_LIST = 4096  # a container of more positions is a bit set
_HAS_OFFSETS = 4  # containers, from which on a bitmap with runs tells where each begins
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85, _FROM_Z85 = bytes.maketrans(_B85, _Z85), bytes.maketrans(_Z85, _B85)


@dataclass(frozen=True, slots=True)
class Vector:
    """A file's deletion vector, as its descriptor in the log."""

    text: str  # of an inline one its bytes in Z85, else its place
    size: int  # in bytes
    rows: int  # that it deletes
    kind: str = field(default=INLINE, metadata=on_disk(sparse=True))
    offset: int | None = field(default=None, metadata=on_disk(sparse=True))

    @classmethod
    def of(cls, positions: Ints) -> Vector:
        """Make the vector that deletes the rows at these positions, in any order."""
        rows = np.unique(np.asarray(positions, np.int64))
        data = _encode(rows)
        padded = data + bytes(-len(data) % 4)
        return cls(base64.b85encode(padded).translate(_TO_Z85).decode(), len(data), len(rows))

    def positions(self, file: str) -> Ints:
        """Return the positions in ascending order; `file` is the file's name for an error."""
        if self.kind != INLINE:
            raise _foreign_error(file)
        try:
            data = base64.b85decode(self.text.encode("ascii").translate(_FROM_Z85))
            rows = _decode(memoryview(data)[: self.size])
        except (ValueError, struct.error) as error:
            raise damaged_error(file, type(error).__name__) from None
        if len(data) < self.size or len(rows) != self.rows or not (np.diff(rows) > 0).all():
            raise damaged_error(file, f"its rows are {len(rows)}, not {self.rows}")
        return rows

    def union(self, positions: Ints, file: str) -> Vector:
        """Make the vector that deletes these rows, too."""
        return Vector.of(np.concatenate([self.positions(file), positions]))

    def descriptor(self) -> dict[str, Any]:
        """Return the vector as a line of the log holds it."""
        where = {} if self.offset is None else {"offset": self.offset}
        said = {"storageType": self.kind, "pathOrInlineDv": self.text, **where}
        return said | {"sizeInBytes": self.size, "cardinality": self.rows}

    @classmethod
    def from_descriptor(cls, descriptor: Mapping[str, Any]) -> Vector:
        """Read a vector from a line of the log, or from a row of a checkpoint."""
        return cls(
            descriptor["pathOrInlineDv"],
            descriptor["sizeInBytes"],
            descriptor["cardinality"],
            descriptor["storageType"],
            descriptor.get("offset"),
        )


class TableFile(Protocol):
    """A file of a table, and the rows of it that are deleted."""

    @property
    def path(self) -> str: ...

    @property
    def vector(self) -> Vector | None: ...


@dataclass(frozen=True, slots=True)
class FileRows:
    """A file with its vector and nothing else; by its path alone where its table never has vectors."""

    path: str
    vector: Vector | None = None


def file_rows(file: TableFile) -> FileRows:
    """Return what a task needs for reading the file's rows."""
    return FileRows(file.path, file.vector)


def deleted_rows(folder: str, file: TableFile) -> Ints:
    """Return the positions of the rows of a file that are deleted."""
    none = np.empty(0, np.int64)
    return none if file.vector is None else file.vector.positions(f"{folder}/{file.path}")


def _encode(rows: Ints) -> bytes:
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


def _decode(data: memoryview) -> Ints:
    magic, count = struct.unpack_from("<Iq", data)
    if magic != _MAGIC:
        raise ValueError(magic)
    at, parts = 12, [np.empty(0, np.int64)]
    for _ in range(count):
        [high] = struct.unpack_from("<I", data, at)
        rows, at = _decode_bitmap(data, at + 4)
        parts.append(rows + (high << 32))
    return np.concatenate(parts)


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


def damaged_error(file: str, detail: str) -> Definite:
    """Make the error for a vector that does not fit its file, or that cannot be read."""
    return Definite(
        "LAKE_VECTOR_DAMAGED",
        f'the deletion vector of the file "{file}" of the lake cannot be read',
        detail=detail,
        hint="headrace tables resync copies the table anew; until then read an earlier mark",
    )


def _foreign_error(file: str) -> Definite:
    return Definite(
        "LAKE_VECTOR_FOREIGN",
        f'another program deleted rows of the file "{file}" of the lake',
        detail="its deletion vector is not in the log's line, as those of headrace are",
        hint="stop that program, then headrace tables resync",
    )
