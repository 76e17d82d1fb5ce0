"""Bytes of the stream, cut and chosen: events are counted, and no row is looked into.

    split    where a large tick may be cut, and what the piece behind must be told
    select   what a stretch of bytes has for some tables: their events, and the heads of their ticks

Cutting and choosing never change what is decoded (`tests/laws/sources/queue`).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from headrace.decode.kernel import Bytes, Ints
from headrace.decode.queue.framing import EMPTIED
from headrace.sources.contract.decoder import SelectedBytes
from headrace.sources.queue.decode.changes import QueueSliceData
from headrace.sources.queue.decode.context import OpenTick, QueueStreamContext


def split(stretch: QueueSliceData) -> tuple[int, QueueStreamContext]:
    """Count the bytes that are whole frames, and give the context behind them."""
    heads, inside = stretch.events.heads, stretch.context.inside
    if len(heads.time):
        inside = OpenTick(int(heads.time[-1]), int(heads.commit_ts[-1]))
    return stretch.events.tail, QueueStreamContext(inside)


def select(stretch: QueueSliceData, tables: Collection[int]) -> SelectedBytes | None:
    """The events of the tables, and the heads of their ticks."""
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
