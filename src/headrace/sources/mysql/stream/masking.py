"""Masking: values of columns that must not leave are overwritten before a read of the binlog is handed on.

    the server ─► a read: frames ─► `ColumnMask` ─► the spool, and all that comes of it

A row event has every column of its table, so the values reach this process. They go no further: their bytes
are zeros in the spool, in pieces of the stream that the lake keeps, and in what is sent to tasks. Lengths and
NULLs stay as they are, so the frames are read like any others. No decoder reads a masked value: it skips the
columns that a rule leaves out. Of an ALTER TABLE that adds such a column the constant default is masked.

A read may begin within a transaction: the mask remembers the table maps that hold there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headrace.core.names import TableName
from headrace.decode.kernel import Bytes
from headrace.decode.mysql import table_map
from headrace.decode.mysql.framing import (
    ALTERED,
    HEADER,
    EventFrames,
    behind_names,
    newest,
    scan,
    table_named,
)
from headrace.decode.mysql.rows import blank
from headrace.decode.mysql.table_map import TableMapLayout
from headrace.sources.contract.column_rules import ColumnRules
from headrace.sources.contract.stream import StreamRead
from headrace.sources.mysql.ddl.steps import AlterStatement

_Maps = tuple[bytes, ...]


@dataclass(slots=True)
class ColumnMask:
    """The mask of one stream."""

    rules: ColumnRules
    mariadb: bool
    folds: bool  # names mean the same in any case
    _maps: _Maps = ()
    _running: dict[int, _Maps] = field(default_factory=dict)  # by the number of the transaction

    def apply(self, read: StreamRead) -> None:
        """Mask the bytes of a read, in place."""
        self._maps = self._mask(read.data, self._maps)
        for number, data in read.running.items():
            self._running[number] = self._mask(data, self._running.get(number, ()))
        ended = read.transactions["number"][read.transactions["ran"]].tolist()
        for number in (*read.rolled_back, *ended):
            self._running.pop(number, None)

    def _mask(self, data: Bytes, maps: _Maps) -> _Maps:
        """Mask these frames, and return the table maps that hold behind them."""
        if not len(data):
            return maps
        events = scan(data, maps)
        for number, frame in enumerate(events.maps):
            layout = table_map.layout(frame[HEADER:], mariadb=self.mariadb)
            out = self._columns(TableName(layout.database, layout.table), layout)
            rows = np.flatnonzero(events.is_rows & (events.map == number))
            if out and len(rows):
                blank(data, events, rows, layout, out)
        for row in np.flatnonzero(events.kind == ALTERED).tolist():
            self._mask_statement(data, events, row)
        last = int(events.transaction[-1]) if len(events) else -1
        return newest(events, data, maps, last)

    def _columns(self, table: TableName, layout: TableMapLayout) -> Sequence[int]:
        """The columns of a layout that must not leave; one without a name may be any."""
        name = self._name(table)
        return [
            number
            for number, column in enumerate(layout.columns)
            if name is not None and (column.name is None or not self.rules.sends(name, column.name))
        ]

    def _name(self, table: TableName) -> TableName | None:
        """The name under which a table has a rule; None if it has none."""
        if table in self.rules.tables:
            return table
        alike = (each for each in self.rules.tables if self.folds and _fold(each) == _fold(table))
        return next(alike, None)

    def _mask_statement(self, data: Bytes, events: EventFrames, row: int) -> None:
        at, stop = int(events.body[row]) + 1, int(events.stop[row])
        name, steps = self._name(TableName(*table_named(data, at, stop))), behind_names(data, at, stop)
        if name is not None and steps:
            statement = AlterStatement.parse(steps).blank(lambda column: self.rules.sends(name, column))
            # JSON may end in spaces: the frame keeps its size.
            data[stop - len(steps) : stop] = np.frombuffer(statement.pack().ljust(len(steps)), np.uint8)


def _fold(name: TableName) -> tuple[str, str]:
    return name.schema.lower(), name.name.lower()
