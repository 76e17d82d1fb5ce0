"""The decoder of MySQL's and MariaDB's streams: `contract.decoder.Decoder`, over `changes`.

It cuts and picks bytes of the stream without decoding a row:

    split    the place where a large transaction may be cut, and the context of the piece after it
    select   the bytes that some tables need: their changes, their maps, and the transactions' heads
    whole    a transaction that came while it ran, as an ordinary one

To split, select or join never changes what is decoded (`tests/laws/sources/mysql`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from headrace.core.names import TableName
from headrace.core.records import from_record
from headrace.core.schema import Column
from headrace.core.truncation import Truncations
from headrace.decode.kernel import Bytes, Flags, Ints
from headrace.decode.mysql.framing import BEGIN, TABLE_MAP, TRUNCATE, EventFrames, newest
from headrace.sources.contract.decoder import (
    Context,
    RunningTransaction,
    SelectedBytes,
    TableChanges,
    TableFailure,
    TableFilter,
)
from headrace.sources.contract.values import Json, StatementEffect
from headrace.sources.mysql.catalog.table_def import table_number
from headrace.sources.mysql.decode import changes
from headrace.sources.mysql.decode.changes import MysqlSliceData
from headrace.sources.mysql.decode.context import MysqlOpenTransaction, MysqlStreamContext, number_of, own
from headrace.sources.mysql.flavour import Flavour
from headrace.sources.mysql.stream import frames
from headrace.sources.mysql.types import printing


def split(stretch: MysqlSliceData) -> tuple[int, MysqlStreamContext]:
    """Count the bytes that are whole frames, and return the context of the bytes after them."""
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
    """Pick the frames that the tables need, and the begins of their transactions."""
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
    """The events with effects on the tables that no row shows, and those tables; an empty name means all."""
    found, met = np.zeros(len(stretch.events), np.bool_), set[int]()
    for row, _, database, table in stretch.altered_events:
        of = set(tables) if not table else {table_number(TableName(database, table))} & set(tables)
        found[row] = bool(of)
        met |= of
    return found, frozenset(met)


def _with_begins(events: EventFrames, changed: Flags) -> Flags:
    """Flag these events and the begins of their transactions."""
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
    """All of a running transaction's bytes, after a BEGIN."""
    inside = context.inside
    assert inside is not None
    head = frames.frame(frames.BEGIN, 0, 0, frames.begin(inside.time, inside.commit_ts, inside.name))
    return np.concatenate([np.frombuffer(head, np.uint8), data])


_BEGIN_HEAD = frames.HEADER.size + 18


@dataclass(frozen=True, slots=True)
class MysqlDecoder:
    """Decodes binlog events, as the spool keeps them, of one kind of server."""

    as_text: ClassVar[None] = None
    transaction_id: ClassVar[None] = None  # GTIDs are no numbers

    flavour: Flavour

    @property
    def running(self) -> MysqlDecoder:
        return self

    def between(self, layouts: Iterable[bytes]) -> MysqlStreamContext:
        # Each transaction writes the maps of its tables before their rows.
        return MysqlStreamContext()

    def within(self, transaction: RunningTransaction) -> MysqlStreamContext:
        name = self.transaction_name(transaction)
        return MysqlStreamContext(
            MysqlOpenTransaction(transaction.time or 0, name, transaction.commit_ts, {})
        )

    def restore(self, record: Json) -> MysqlStreamContext:
        return from_record(MysqlStreamContext, record)

    def whole(self, data: Bytes, context: Context) -> Bytes:
        return whole(data, own(context))

    def split(self, data: Bytes, context: Context) -> tuple[int, MysqlStreamContext]:
        return split(self._stretch(data, context))

    def select(self, data: Bytes, context: Context, tables: Collection[int]) -> SelectedBytes | None:
        return select(self._stretch(data, context), tables)

    def truncations(self, data: Bytes, context: Context, tables: Mapping[int, int]) -> dict[int, Truncations]:
        return changes.truncations(self._stretch(data, context), tables)

    def statements(
        self, data: Bytes, context: Context, tables: Mapping[int, TableFilter]
    ) -> dict[int, list[StatementEffect]]:
        return changes.statements(self._stretch(data, context), tables)

    def decode(
        self, data: Bytes, context: Context, tables: Mapping[int, TableFilter]
    ) -> Iterator[TableChanges | TableFailure]:
        return changes.decode(self._stretch(data, context), tables)

    def transaction_name(self, transaction: RunningTransaction) -> str:
        """The GTID in the BEGIN that marks its end; "" while it runs."""
        return transaction.end[_BEGIN_HEAD:].decode("ascii")

    def print_values(self, values_: pa.Array) -> pa.Array:
        return printing.print_values(values_)

    def cast(self, column: Column, text: str) -> str:
        return printing.cast(column, text)

    def _stretch(self, data: Bytes, context: Context) -> MysqlSliceData:
        return MysqlSliceData(data, own(context), self.flavour is Flavour.MARIADB)
