"""The decoder of a queue's stream: `contract.decoder.Decoder`, over `changes`.

It cuts and picks bytes of the stream without decoding a row:

    split    the place where a large tick may be cut, and the context of the piece after it
    select   the bytes that some tables need: their events, and the heads of their ticks

To split or select never changes what is decoded (`tests/laws/sources/queue`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from headrace.core.records import from_record
from headrace.core.schema import Column
from headrace.core.truncation import Truncations
from headrace.decode import printing
from headrace.decode.kernel import Bytes, Ints
from headrace.decode.queue.framing import EMPTIED
from headrace.sources.contract.decoder import (
    Context,
    SelectedBytes,
    TableChanges,
    TableFailure,
    TableFilter,
)
from headrace.sources.contract.values import Json
from headrace.sources.postgres.types import casts
from headrace.sources.queue.decode import changes
from headrace.sources.queue.decode.changes import QueueSliceData
from headrace.sources.queue.decode.context import OpenTick, QueueStreamContext, own


def split(stretch: QueueSliceData) -> tuple[int, QueueStreamContext]:
    """Count the bytes that are whole frames, and return the context of the bytes after them."""
    heads, inside = stretch.events.heads, stretch.context.inside
    if len(heads.time):
        inside = OpenTick(int(heads.time[-1]), int(heads.commit_ts[-1]))
    return stretch.events.tail, QueueStreamContext(inside)


def select(stretch: QueueSliceData, tables: Collection[int]) -> SelectedBytes | None:
    """Pick the events of the tables, and the heads of their ticks."""
    events = stretch.events
    ours = np.isin(events.relation, np.array(sorted(tables), np.int64))
    if not ours.any():
        return None
    heads = np.unique(events.head[ours & (events.head >= 0)])
    starts = np.concatenate([events.start[ours], events.heads.start[heads]])
    stops = np.concatenate([events.stop[ours], events.heads.stop[heads]])
    return SelectedBytes(
        data=_only(stretch.data, np.sort(starts), np.sort(stops)),
        context=stretch.context,
        tables=frozenset(map(int, np.unique(events.relation[ours]))),
        changes=int((ours & events.changes).sum()),
        truncates=bool((ours & (events.diff == EMPTIED)).any()),
    )


def _only(data: Bytes, starts: Ints, stops: Ints) -> Bytes:
    """These frames, by one running sum over all bytes."""
    edges = np.zeros(len(data) + 1, np.int8)
    edges[starts] += 1
    edges[stops] -= 1
    return data[np.cumsum(edges[:-1], dtype=np.int8).astype(np.bool_)]


@dataclass(frozen=True, slots=True)
class QueueDecoder:
    """Decodes ticks. A tick is sent only when all its transactions have committed."""

    as_text: ClassVar[None] = None
    statements: ClassVar[None] = None
    transaction_id: ClassVar[None] = None  # a tick has many transactions
    running: ClassVar[None] = None

    def between(self, layouts: Iterable[bytes]) -> QueueStreamContext:
        # The table's record and the number of fields tell a row's layout.
        return QueueStreamContext()

    def restore(self, record: Json) -> QueueStreamContext:
        return from_record(QueueStreamContext, record)

    def split(self, data: Bytes, context: Context) -> tuple[int, QueueStreamContext]:
        return split(QueueSliceData(data, own(context)))

    def select(self, data: Bytes, context: Context, tables: Collection[int]) -> SelectedBytes | None:
        return select(QueueSliceData(data, own(context)), tables)

    def truncations(self, data: Bytes, context: Context, tables: Mapping[int, int]) -> dict[int, Truncations]:
        return changes.truncations(QueueSliceData(data, own(context)), tables)

    def decode(
        self, data: Bytes, context: Context, tables: Mapping[int, TableFilter]
    ) -> Iterator[TableChanges | TableFailure]:
        return changes.decode(QueueSliceData(data, own(context)), tables)

    def print_values(self, values: pa.Array) -> pa.Array:
        return printing.print_values(values)

    def cast(self, column: Column, text: str) -> str:
        return casts.value(column, text)
