"""Slices of the stream: the bytes that one task decodes, wherever they lie.

    the spool's segments         whole transactions, one behind the other
    a transaction's own files    one that was streamed while it ran; small ones go together
    a file of the lake           what was kept for tables that were being copied

The planner of an epoch cuts them and its tasks read them, by the same functions.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from headrace.core.errors import Definite
from headrace.decode.kernel import Bytes
from headrace.lake.store.open import open_store
from headrace.pipeline.tasks.table_task import KeptPiece, Small
from headrace.sources.postgres.decoding import Inside
from headrace.spool.reader import SpoolReader
from headrace.spool.streamed import Streamed


@dataclass(frozen=True, slots=True)
class Cut:
    """A stretch as the planner sees it: where it lies and what its task must be told."""

    start: int
    stop: int
    relations: tuple[bytes, ...]  # whole frames
    inside: Inside | None = None
    own: Streamed | None = None  # addresses are those of this transaction's own files
    kept: KeptPiece | None = None  # addresses are those of a file of the lake
    several: tuple[Small, ...] = ()  # it is these, as if they had come whole

    def read(self, reader: SpoolReader, most: int | None = None) -> Bytes:
        """Its bytes, or the first of them."""
        if self.several:
            return read_small(reader, self.several)[:most]
        if self.kept is not None:
            return read_piece(self.kept, self.start, self.stop)[:most]
        stop = self.stop if most is None else min(self.stop, self.start + most)
        return read_stretch(reader, self.own, self.start, stop)


def read_stretch(reader: SpoolReader, own: Streamed | None, start: int, stop: int) -> Bytes:
    """Bytes of the spool: of the common segments, or of a streamed transaction's own files."""
    return reader.read(start, stop) if own is None else reader.read_streamed(own, start, stop)


def read_small(reader: SpoolReader, several: Iterable[Small]) -> Bytes:
    """Small streamed transactions, one behind the other, as if they had come whole."""
    read = (small.inside.unstreamed(reader.read_streamed(small.own, 0, small.length)) for small in several)
    return np.concatenate(list(read))


def read_piece(piece: KeptPiece, start: int, stop: int) -> Bytes:
    """The bytes of a piece, verified."""
    store = open_store(piece.lake.url, dict(piece.lake.options) or None)
    with store.open_input(piece.key) as file:
        file.seek(start)
        data = file.read(stop - start)
    if len(data) != stop - start or zlib.crc32(data) != piece.crc:
        raise damaged_file(piece.key)
    return np.frombuffer(data, np.uint8)


def damaged_file(key: str) -> Definite:
    return Definite(
        "LATE_DAMAGED",
        "what was kept of the stream for a table that is being copied is damaged",
        detail=f'"{key}"',
        hint="restore the file from a backup, or drop the table and add it again: headrace tables",
    )
