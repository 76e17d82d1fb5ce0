"""Deletion vectors: the rows of a file that are deleted, by their positions, as Delta's log holds them.

    {"storageType": "i", "pathOrInlineDv": "...", "sizeInBytes": n, "cardinality": rows}

A vector of ours stands in the log's line itself ("i"): Z85 of Delta's `RoaringBitmapArray`, whose bitmaps
have the portable 64-bit form of the Roaring format. So no sweep and no recovery has another file to know.
Another program's vector may lie in a file ("u", "p"): its descriptor is kept, as a removal has to repeat it,
and its rows are not read.

Plans hold descriptors, and `headrace serve`, which reads plans alone, has to stay small: numpy is loaded once
somebody asks for positions (`lake.format.roaring`).
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from headrace.core.errors import Definite
from headrace.core.records import on_disk

if TYPE_CHECKING:
    from headrace.core.columns import Ints

INLINE = "i"
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
        from headrace.lake.format import roaring

        rows = roaring.distinct(positions)
        data = roaring.encode(rows)
        padded = data + bytes(-len(data) % 4)
        return cls(base64.b85encode(padded).translate(_TO_Z85).decode(), len(data), len(rows))

    def positions(self, file: str) -> Ints:
        """Return the positions in ascending order; `file` is the file's name for an error."""
        from headrace.lake.format import roaring

        if self.kind != INLINE:
            raise _foreign_error(file)
        try:
            data = base64.b85decode(self.text.encode("ascii").translate(_FROM_Z85))
            rows = roaring.decode(memoryview(data)[: self.size])
        except (ValueError, struct.error) as error:
            raise damaged_error(file, type(error).__name__) from None
        if len(data) < self.size or len(rows) != self.rows:
            raise damaged_error(file, f"its rows are {len(rows)}, not {self.rows}")
        return rows

    def union(self, positions: Ints, file: str) -> Vector:
        """Make the vector that deletes these rows, too."""
        from headrace.lake.format import roaring

        return Vector.of(roaring.distinct(self.positions(file), positions))

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
    from headrace.lake.format import roaring

    return roaring.NONE if file.vector is None else file.vector.positions(f"{folder}/{file.path}")


def damaged_error(file: str, detail: str) -> Definite:
    """Make the error for a vector that does not fit its file, or that cannot be read."""
    return Definite(
        "LAKE_VECTOR_DAMAGED",
        f'the deletion vector of the file "{file}" of the lake cannot be read',
        detail=detail,
        hint="headrace tables drop, then headrace tables add, copies it anew; earlier marks stay readable",
    )


def _foreign_error(file: str) -> Definite:
    return Definite(
        "LAKE_VECTOR_FOREIGN",
        f'another program deleted rows of the file "{file}" of the lake',
        detail="its deletion vector is not in the log's line, as those of headrace are",
        hint="stop that program, then headrace tables drop, and headrace tables add",
    )
