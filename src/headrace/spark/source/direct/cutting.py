"""From the spool to a batch: which transactions, and their bytes in slices that a task can decode alone.

    spool     (tx)(tx)(tx) │ (tx)(tx)(       tx of any size        ) (tx ...
    batch     ─ max_bytes ─▶ cut behind a transaction; the first one is in it, however large it is
    slices    SLICE_BYTES each, of one session and under the layouts at its start; a larger transaction is cut
              where its decoder says

The bytes go to the store slice by slice, so memory does not grow with a transaction.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headrace.core.records import to_record
from headrace.lake.store.contract import Store
from headrace.sources.contract.decoder import Bytes, Context, Decoder
from headrace.spark.source.direct.state import SliceRecord
from headrace.spool.layout import Records, damaged_error
from headrace.spool.reader import SpoolReader

SLICE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class BatchPiece:
    """The bytes of a slice, and the context of their decoder."""

    data: Bytes
    context: Context


def within(transactions: Records, max_bytes: int) -> Records:
    """Take as many transactions as fit into a batch, at least one."""
    sizes = np.cumsum(transactions["stop"] - transactions["start"])
    return transactions[: max(1, int(np.searchsorted(sizes, max_bytes, side="right")))]


def pieces(reader: SpoolReader, decoder: Decoder, transactions: Records) -> Iterator[BatchPiece]:
    """Cut transactions into pieces, in their order."""
    for first, last in _neighbours(transactions):
        start, stop = int(transactions["start"][first]), int(transactions["stop"][last])
        context = decoder.between(reader.layouts_before(start))
        if last == first and stop - start > 2 * SLICE_BYTES:
            yield from _parts(reader, decoder, context, start, stop)
        else:
            yield BatchPiece(reader.read(start, stop), context)


def _neighbours(transactions: Records) -> Iterator[tuple[int, int]]:
    """Find the first and the last of the transactions that share a slice: of one session, not too large."""
    sessions = np.flatnonzero(np.diff(transactions["session"]))
    first = 0
    for end in [*sessions.tolist(), len(transactions) - 1]:
        while first <= end:
            edge = transactions["start"][first] + SLICE_BYTES
            last = min(max(int(np.searchsorted(transactions["stop"], edge, side="right")) - 1, first), end)
            yield first, last
            first = last + 1


def _parts(
    reader: SpoolReader, decoder: Decoder, context: Context, start: int, stop: int
) -> Iterator[BatchPiece]:
    """Cut one large transaction where its decoder allows it."""
    while start < stop:
        size, length = 0, 0
        while length == 0:  # a message may be larger than a slice
            if start + size >= stop:
                raise damaged_error("transaction: it ends within a message", 0)
            size = min(size + SLICE_BYTES, stop - start)
            data = reader.read(start, start + size)
            length, behind = decoder.split(data, context)
        yield BatchPiece(data[:length], context)
        start, context = start + length, behind


def noting_rows(
    cut: Iterator[BatchPiece], decoder: Decoder, tables: Sequence[int], filled_tables: set[int]
) -> Iterator[BatchPiece]:
    """The pieces; tables whose first rows are in them are added to `filled_tables`."""
    for piece in cut:
        for number in tables:
            if number not in filled_tables:
                found = decoder.select(piece.data, piece.context, (number,))
                if found is not None and found.changes > 0:
                    filled_tables.add(number)
        yield piece


def store_pieces(store: Store, key: str, cut: Iterator[BatchPiece]) -> tuple[SliceRecord, ...]:
    """Write the pieces into a file, one behind the other."""
    found: list[SliceRecord] = []
    at = 0
    with store.open_output(key) as sink:
        for piece in cut:
            data = piece.data.tobytes()
            sink.write(data)
            crc, start, at = zlib.crc32(data), at, at + len(data)
            found.append(SliceRecord(start, at, crc, to_record(piece.context)))
    return tuple(found)
