"""Masking: values of columns that must not leave are overwritten before a read of the binlog is handed on.

    the server ─► a read: frames ─► `ColumnMask` ─► the spool, and all that comes of it

A row event has every column of its table, so the values reach this process. They go no further: neither the
spool has one, nor pieces of the stream that the lake keeps, nor what is sent to tasks.

    left out    bytes of zeros. Lengths and NULLs stay, so the frames are read like any others. No decoder
                reads such a value: it skips the columns that a rule leaves out
    hashed      the hash of the value's text (`core.hashing`), as a short text, so the frames get other sizes.
                A field at the end of the table map names these columns. The map keeps their own types, which
                the decoder compares with the record of the table

The constant default of an ALTER TABLE that adds either is overwritten by zeros. If no text is known of a type
that is to be hashed, its values count as left out, and the decoder refuses the table.

A read may begin within a transaction: the mask remembers the table maps that hold there, as they came.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headrace.core.hashing import HashKey
from headrace.core.names import TableName
from headrace.decode.kernel import Bytes, Ints
from headrace.decode.mysql import table_map
from headrace.decode.mysql.forms import bad_texts, decode_image
from headrace.decode.mysql.framing import (
    ALTERED,
    HEADER,
    EventFrames,
    behind_names,
    newest,
    scan,
    table_named,
)
from headrace.decode.mysql.rows import BadEvent, blank, values_of
from headrace.decode.mysql.table_map import LayoutColumn, TableMapLayout, hashed_field
from headrace.decode.text import TEXT, TextColumn
from headrace.sources.contract.column_rules import ColumnRules
from headrace.sources.contract.stream import StreamRead
from headrace.sources.mysql.ddl.steps import AlterStatement
from headrace.sources.mysql.types.columns import hashable_kind
from headrace.sources.mysql.types.printing import print_values

_Maps = tuple[bytes, ...]
_SIZE = struct.Struct("<I")
_SIZE_AT = 9  # of an event's size, from its first byte


@dataclass(frozen=True, slots=True)
class _Replacement:
    """Bytes that take the place of others."""

    start: int
    stop: int
    data: bytes

    @property
    def growth(self) -> int:
        return len(self.data) - (self.stop - self.start)


@dataclass(frozen=True, slots=True)
class _MaskedFrames:
    """Masked frames, and where the edges of the frames stand by now."""

    data: Bytes
    stops: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # of replacements, before them
    growth: Ints = field(default_factory=lambda: np.zeros(1, np.int64))  # of all bytes up to each of those

    @classmethod
    def of(cls, data: Bytes, replacements: Sequence[_Replacement]) -> _MaskedFrames:
        if not replacements:
            return cls(data)
        pieces, done = list[bytes](), 0
        for each in replacements:
            pieces += [data[done : each.start].tobytes(), each.data]
            done = each.stop
        growth = np.cumsum([0, *(each.growth for each in replacements)])
        joined = np.frombuffer(b"".join([*pieces, data[done:].tobytes()]), np.uint8)
        return cls(joined, np.array([each.stop for each in replacements], np.int64), growth)

    def places(self, edges: Ints) -> Ints:
        """Convert places at edges of frames; -1 stays."""
        moved = edges + self.growth[np.searchsorted(self.stops, edges, side="right")]
        return np.where(edges < 0, edges, moved)


@dataclass(slots=True)
class ColumnMask:
    """The mask of one stream."""

    rules: ColumnRules
    mariadb: bool
    folds: bool  # names mean the same in any case
    key: HashKey | None = None  # if a rule hashes values
    _maps: _Maps = ()
    _running: dict[int, _Maps] = field(default_factory=dict)  # by the number of the transaction

    def apply(self, read: StreamRead) -> StreamRead:
        """Return the read with its bytes masked; those of the given one may be overwritten."""
        masked, self._maps = self._mask(read.data, self._maps)
        running = {}
        for number, data in read.running.items():
            part, self._running[number] = self._mask(data, self._running.get(number, ()))
            running[number] = part.data
        ended = read.transactions["number"][read.transactions["ran"]].tolist()
        for number in (*read.rolled_back, *ended):
            self._running.pop(number, None)
        transactions, opened = read.transactions.copy(), read.open
        for edge in ("start", "stop"):
            transactions[edge] = masked.places(transactions[edge])
        if opened is not None:
            opened = replace(opened, start=int(masked.places(np.array([opened.start]))[0]))
        return replace(read, data=masked.data, running=running, transactions=transactions, open=opened)

    def _mask(self, data: Bytes, maps: _Maps) -> tuple[_MaskedFrames, _Maps]:
        """Mask these frames, and return also the table maps that hold behind them, as they came."""
        if not len(data):
            return _MaskedFrames(data), maps
        events = scan(data, maps)
        last = int(events.transaction[-1]) if len(events) else -1
        behind = newest(events, data, maps, last)
        replacements: list[_Replacement] = []
        for number, frame in enumerate(events.maps):
            layout = table_map.layout(frame[HEADER:], mariadb=self.mariadb)
            name = self._name(TableName(layout.database, layout.table))
            if name is not None:
                mine = np.flatnonzero(events.map == number)
                replacements += self._mask_table(data, events, mine, layout, name)
        for row in np.flatnonzero(events.kind == ALTERED).tolist():
            self._mask_statement(data, events, row)
        return _MaskedFrames.of(data, _with_sizes(data, events, replacements)), behind

    def _mask_table(
        self, data: Bytes, events: EventFrames, mine: Ints, layout: TableMapLayout, name: TableName
    ) -> Iterator[_Replacement]:
        """Blank what must not leave in the events of a layout, and yield its hashes."""
        hashed = [number for number, column in enumerate(layout.columns) if self._hashes(name, column)]
        # A column without a name may be any.
        out = [
            number
            for number, column in enumerate(layout.columns)
            if number not in hashed and (column.name is None or not self.rules.shows(name, column.name))
        ]
        rows = mine[events.is_rows[mine]]
        if (out or hashed) and len(rows):
            blank(data, events, rows, layout, out)
        if not hashed or self.key is None:
            return
        for at in events.stop[mine[~events.is_rows[mine]]].tolist():
            yield _Replacement(at, at, hashed_field(hashed))
        for number, values in zip(hashed, _values(data, events, rows, layout, hashed), strict=True):
            column = layout.columns[number]
            prefix = max(0, -column.width)
            for at, text in zip(np.flatnonzero(values.kinds == TEXT), _texts(values, column), strict=True):
                start = int(values.starts[at])
                digits = self.key.hash(text.encode()).encode()
                stop = start + int(values.lengths[at])
                yield _Replacement(start - prefix, stop, bytes([len(digits)]) + digits)

    def _hashes(self, table: TableName, column: LayoutColumn) -> bool:
        """Tell whether the values of a column are hashed here."""
        wanted = column.name is not None and self.rules.hashes(table, column.name)
        return wanted and self.key is not None and hashable_kind(column) is not None

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
            statement = AlterStatement.parse(steps).blank(lambda column: self.rules.shows(name, column))
            # JSON may end in spaces: the frame keeps its size.
            data[stop - len(steps) : stop] = np.frombuffer(statement.pack().ljust(len(steps)), np.uint8)


def _values(
    data: Bytes, events: EventFrames, rows: Ints, layout: TableMapLayout, columns: Sequence[int]
) -> list[TextColumn]:
    """The values of these columns; events whose rows come in part have none, for all of theirs are blank."""
    while True:
        try:
            return values_of(data, events, rows, layout, columns)
        except BadEvent as error:
            rows = rows[rows != error.event]


def _texts(values: TextColumn, column: LayoutColumn) -> list[str]:
    """The texts of all values that are there, as the source prints them."""
    kind = hashable_kind(column)
    assert kind is not None
    there = values.take(np.flatnonzero(values.kinds == TEXT))
    arrow, form = kind
    decoded = decode_image(there, form, arrow, column)
    texts: list[str] = print_values(decoded.array).to_pylist()
    if len(decoded.bad):
        for row, text in zip(
            decoded.bad.tolist(), bad_texts(there, column, decoded.bad).to_pylist(), strict=True
        ):
            texts[row] = text
    return texts


def _with_sizes(
    data: Bytes, events: EventFrames, replacements: Sequence[_Replacement]
) -> Sequence[_Replacement]:
    """The replacements in their order, with the new sizes of the events that they are in."""
    if not replacements:
        return ()
    starts = np.array([each.start for each in replacements], np.int64)
    # One at the end of an event belongs to it, and the next event begins at the same place.
    ends = np.array([each.stop for each in replacements], np.int64)
    owners = np.where(
        starts == ends, np.searchsorted(events.stop, ends), np.searchsorted(events.start, starts, "right") - 1
    )
    growth = np.bincount(owners, [each.growth for each in replacements], len(events)).astype(np.int64)
    sizes = [
        _Replacement(at, at + _SIZE.size, _SIZE.pack(size + more))
        for at, size, more in zip(
            (events.start + _SIZE_AT).tolist(),
            (events.stop - events.start).tolist(),
            growth.tolist(),
            strict=True,
        )
        if more
    ]
    return sorted([*replacements, *sizes], key=lambda each: (each.stop, each.start))


def _fold(name: TableName) -> tuple[str, str]:
    return name.schema.lower(), name.name.lower()
