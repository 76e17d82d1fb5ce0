"""Bytes of the stream, cut and chosen: rows are counted, and none is decoded.

    split    where a large transaction may be cut, and what the piece behind must be told
    select   what a stretch of bytes has for some tables: their changes, maps, and the transactions' heads
    whole    a transaction that came while it ran, as if it had come in one

Cutting, choosing and joining never change what is decoded (`tests/laws/sources/mysql`).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from headrace.core.names import TableName
from headrace.decode.kernel import Bytes, Flags, Ints
from headrace.decode.mysql.framing import BEGIN, TABLE_MAP, TRUNCATE, EventFrames, newest
from headrace.sources.contract.decoder import SelectedBytes
from headrace.sources.mysql.catalog.table_def import table_number
from headrace.sources.mysql.decode.changes import MysqlSliceData
from headrace.sources.mysql.decode.context import MysqlOpenTransaction, MysqlStreamContext, number_of
from headrace.sources.mysql.stream import frames


def split(stretch: MysqlSliceData) -> tuple[int, MysqlStreamContext]:
    """Count the bytes that are whole frames, and give the context behind them."""
    events = stretch.events
    last = int(events.transaction[-1]) if len(events) else -1
    inside = stretch.context.inside
    if last < 0 and inside is None and not events.is_rows.any():
        return events.tail, MysqlStreamContext()
    heads = stretch.heads
    counted = dict(inside.ordinals) if inside is not None and last < 0 else {}
    rows = np.flatnonzero((stretch.tables >= 0) & (events.transaction == last))
    sizes, _ = stretch.sizes(rows)
    for table in np.unique(stretch.tables[rows]):
        counted[int(table)] = counted.get(int(table), 0) + int(sizes[stretch.tables[rows] == table].sum())
    behind = MysqlOpenTransaction(
        time=int(heads.time[last + 1]),
        name=heads.name_of(last + 1),
        commit_ts=int(heads.commit_ts[last + 1]),
        ordinals=counted,
        maps=newest(events, stretch.data, stretch.context.maps, last),
    )
    return events.tail, MysqlStreamContext(behind)


def select(stretch: MysqlSliceData, tables: Collection[int]) -> SelectedBytes | None:
    """The frames that say something of the tables, and the begins of their transactions."""
    events = stretch.events
    ours = np.isin(stretch.tables, np.array(sorted(tables), np.int64))
    altered, met = _altered_events(stretch, tables)
    if not ours.any() and not met:
        return None
    rows = np.flatnonzero(ours & events.is_rows)
    sizes, _ = stretch.sizes(rows)
    of_map = np.array([number_of(frame) in tables for frame in events.maps], np.bool_)
    maps = np.zeros(len(events), np.bool_)
    told = events.kind == TABLE_MAP
    maps[told] = of_map[events.map[told]]
    return SelectedBytes(
        data=_only(stretch.data, events, _with_begins(events, ours | altered) | maps),
        context=stretch.context.only(tables),
        tables=frozenset(map(int, np.unique(stretch.tables[ours]))) | met,
        changes=int(sizes.sum()),
        truncates=bool((ours & (events.kind == TRUNCATE)).any()),
    )


def _altered_events(stretch: MysqlSliceData, tables: Collection[int]) -> tuple[Flags, frozenset[int]]:
    """The events that tell of the tables what rows do not, and the tables; an empty name stands for all."""
    found, met = np.zeros(len(stretch.events), np.bool_), set[int]()
    for row, _, database, table in stretch.altered_events:
        of = set(tables) if not table else {table_number(TableName(database, table))} & set(tables)
        found[row] = bool(of)
        met |= of
    return found, frozenset(met)


def _with_begins(events: EventFrames, changed: Flags) -> Flags:
    """These events, and the begins of their transactions."""
    concerned = np.zeros(int(events.transaction[-1]) + 2 if len(events) else 1, np.bool_)
    concerned[events.transaction[changed] + 1] = True
    return np.asarray(changed | ((events.kind == BEGIN) & concerned[events.transaction + 1]), np.bool_)


def _only(data: Bytes, events: EventFrames, wanted: Flags) -> Bytes:
    """The bytes of these events, by one running sum over all bytes."""
    edges = np.zeros(len(data) + 1, np.int8)
    starts: Ints = events.start[wanted]
    edges[starts] += 1
    edges[events.stop[wanted]] -= 1
    return data[np.cumsum(edges[:-1], dtype=np.int8).astype(np.bool_)]


def whole(data: Bytes, context: MysqlStreamContext) -> Bytes:
    """All of a transaction's bytes behind a BEGIN of its own."""
    inside = context.inside
    assert inside is not None
    head = frames.frame(frames.BEGIN, 0, 0, frames.begin(inside.time, inside.commit_ts, inside.name))
    return np.concatenate([np.frombuffer(head, np.uint8), data])
