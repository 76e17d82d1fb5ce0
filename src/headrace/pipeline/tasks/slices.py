"""Slices of the stream: the bytes that one task decodes, wherever they lie, and what must be told of them.

    the spool's segments         whole transactions, one behind the other
    a transaction's own files    one that was streamed while it ran, or a piece of it; small ones go together
    a file of the lake           what was kept for tables that were being copied
    the slice itself             where tasks cannot read the spool

The planner of an epoch cuts them (`stream.batches`), and its tasks read them: both by `Slice.read`.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headrace.core.errors import Definite
from headrace.decode.kernel import Bytes
from headrace.lake.store.contract import Store
from headrace.pipeline.tasks.table_task import LakeAddress
from headrace.sources.contract.decoder import Context, Decoder
from headrace.spool.reader import SpoolReader
from headrace.spool.running_files import TransactionName


@dataclass(frozen=True, slots=True)
class KeptPiece:
    """The place of a piece of the stream that was kept in the lake (`stream.late_stream`)."""

    lake: LakeAddress
    key: str
    crc: int


@dataclass(frozen=True, slots=True)
class SmallTransaction:
    """A streamed transaction that is too small for a slice of its own."""

    own: TransactionName
    length: int
    context: Context


@dataclass(frozen=True, slots=True)
class Slice:
    """A piece of the stream, who understands it, and what it must be told."""

    decoder: Decoder
    context: Context
    start: int  # addresses in the spool's segments, unless one of these says otherwise:
    stop: int
    own: TransactionName | None = None  # they are those of this transaction's own files
    kept_piece: KeptPiece | None = None  # they are those of a file of the lake
    several: tuple[SmallTransaction, ...] = ()  # it is these, as if they had come whole
    data: bytes | None = None  # the bytes themselves

    def read(self, spool: SpoolReader, most: int | None = None) -> Bytes:
        """Its bytes, or the first of them."""
        if self.data is not None:
            return np.frombuffer(self.data, np.uint8)[:most]
        if self.several:
            return np.concatenate([self._as_whole(spool, small) for small in self.several])[:most]
        if self.kept_piece is not None:
            return read_piece(self.kept_piece, self.start, self.stop)[:most]
        stop = self.stop if most is None else min(self.stop, self.start + most)
        if self.own is not None:
            return spool.read_streamed(self.own, self.start, stop)
        return spool.read(self.start, stop)

    def carrying(self, spool: SpoolReader) -> Slice:
        """Put the bytes into the slice, for tasks that cannot read the spool; they can read the lake."""
        return self if self.kept_piece is not None else replace(self, data=self.read(spool).tobytes())

    def _as_whole(self, spool: SpoolReader, small: SmallTransaction) -> Bytes:
        assert self.decoder.running is not None  # it was streamed while it ran
        return self.decoder.running.whole(spool.read_streamed(small.own, 0, small.length), small.context)


class KeptDamaged(Definite):
    """The kept stream is not what was written."""

    codes = ("LATE_DAMAGED",)


def open_kept(store: Store, key: str) -> Any:
    """A file of what was kept; one that is gone is as good as damaged."""
    try:
        return store.open_input(key)
    except Definite as error:
        raise damaged_file(key) from error


def read_piece(piece: KeptPiece, start: int, stop: int) -> Bytes:
    """The bytes of a piece, verified."""
    with open_kept(piece.lake.open(), piece.key) as file:
        file.seek(start)
        data = file.read(stop - start)
    verify(piece.crc, piece.key, data, stop - start)
    return np.frombuffer(data, np.uint8)


def verify(crc: int, key: str, data: bytes, size: int) -> None:
    """Refuse a piece of the file `key` that is not what was written."""
    if len(data) != size or zlib.crc32(data) != crc:
        raise damaged_file(key)


def damaged_file(key: str) -> KeptDamaged:
    return KeptDamaged(
        "LATE_DAMAGED",
        "what was kept of the stream for a table that is being copied is damaged",
        detail=f'"{key}"',
        hint="headrace tables resync copies the table anew",
    )
