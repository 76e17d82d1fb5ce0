"""Row events: their rows as the columns of a change batch, for all events of one layout.

    table id 6 │ flags 2 │ [v2: 2 + extra] │ n │ bitmap of columns, of an update two │ rows

    row = null bits │ value │ value │ ...         an update's rows come in pairs: before, after

A first walk counts the rows of each event. A second one notes where every value lies, column by column.
Nothing is copied. The layout tells how wide a value is: either its number of bytes, or how many bytes before
it hold its length. A column of the layout goes to its position in the table's schema; at position -1 it is
skipped.

An event that lacks columns was written under `binlog_row_image = MINIMAL` or NOBLOB, and a partial update of
JSON under `binlog_row_value_options`. We cannot know what they leave out, so each of the two is an error of
its own. So is a last row that does not end where its event ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numba import types

from headrace.core.change_batch import BAD, TIMESTAMP, Image, Op, bad_values, change_schema
from headrace.core.errors import Definite
from headrace.core.schema import Column, TableSchema
from headrace.decode.kernel import Bytes, Flags, Ints, Lengths, input_array, kernel, output_array, several
from headrace.decode.mysql.forms import bad_texts, decode_image
from headrace.decode.mysql.framing import DELETES, HEADER, INSERTS, PARTIAL_UPDATE, UPDATES, EventFrames
from headrace.decode.mysql.table_map import LayoutColumn, TableMapLayout
from headrace.decode.text import NULL, TEXT, TextColumn

_POST_HEADER = 8
_V1_LAST = 25  # events from here on have extra data
_IS_UPDATE = np.zeros(256, np.uint8)
_IS_UPDATE[[*UPDATES, PARTIAL_UPDATE]] = 1
_IS_INSERT = np.zeros(256, np.uint8)
_IS_INSERT[list(INSERTS)] = 1
_IS_DELETE = np.zeros(256, np.uint8)
_IS_DELETE[list(DELETES)] = 1
_OPS, _IMAGES = np.zeros(256, np.uint8), np.full(256, int(Image.FULL), np.uint8)
for _kinds, _op in ((INSERTS, Op.INSERT), (UPDATES, Op.UPDATE), (DELETES, Op.DELETE)):
    _OPS[list(_kinds)] = int(_op)
_IMAGES[list(INSERTS)] = int(Image.NONE)

_FINE, _TOO_SHORT, _COLUMN_COUNT, _PARTIAL_IMAGE, _PARTIAL_JSON = range(5)
_WORDS = {
    _TOO_SHORT: "its rows do not end where the event ends",
    _COLUMN_COUNT: "its number of columns is not that of its table map",
}


@dataclass(frozen=True, slots=True)
class MysqlChangeMeta:
    """The facts about each row change that come from its transaction."""

    time: Ints
    ordinal: Ints
    transaction: pa.Array
    commit_ts: Ints  # microseconds since 1970


class BadEvent(Definite):
    """An event whose rows cannot be read."""

    codes = ("MY_ROW_IMAGE_PARTIAL", "MY_ROW_JSON_PARTIAL", "MY_BAD_ROW")
    event: int = -1  # its number among the events that were scanned


@dataclass(frozen=True, slots=True)
class MysqlChanges:
    """A change batch, and the values that it could not hold."""

    batch: Any
    bad: Any


@dataclass(frozen=True, slots=True)
class Before:
    """The rows from before a change of the table's columns, by the schema's positions."""

    columns: Mapping[int, Column] = field(default_factory=dict)  # the old columns, for decoding their values
    values: Mapping[int, pa.Scalar] = field(default_factory=dict)  # of columns that the layout lacks


@dataclass(frozen=True, slots=True)
class _Side:
    """The values of one side of the changes: row `c` is the column at position `c` of the schema."""

    kinds: Bytes
    starts: Ints
    lengths: Lengths

    @classmethod
    def empty(cls, width: int, rows: int) -> _Side:
        shape = (width, rows)
        return cls(np.full(shape, NULL, np.uint8), np.empty(shape, np.int64), np.empty(shape, np.int32))

    @property
    def is_absent(self) -> bool:
        """Tell whether no change has this side."""
        return not self.kinds.size


def counts(data: Bytes, events: EventFrames, rows: Ints, layout: TableMapLayout) -> Ints:
    """Count the rows that each of these events changes."""
    found = np.zeros(len(rows), np.int64)
    none = _Side.empty(0, 0)
    _check(
        *_walk(
            data,
            events.start[rows] + HEADER,
            events.stop[rows],
            events.kind[rows],
            _widths(layout),
            np.empty(0, np.int64),
            False,
            found,
            *(none.kinds, none.starts, none.lengths),
            *(none.kinds, none.starts, none.lengths),
        ),
        events.start,
        rows,
    )
    return found


def changes(
    data: Bytes,
    events: EventFrames,
    rows: Ints,
    layout: TableMapLayout,
    positions: Ints,
    schema: TableSchema,
    event_rows: Ints,
    meta: MysqlChangeMeta,
    before: Before | None = None,
) -> MysqlChanges:
    """Decode events of one layout; `event_rows` are their `counts`.

    `positions[i]` is the schema's position of the layout's column `i`, or -1 where it is not mirrored.
    """
    before = before or Before()
    total, kinds = int(event_rows.sum()), events.kind[rows]
    has_old, has_new = not _IS_INSERT[kinds].all(), not _IS_DELETE[kinds].all()
    width = len(schema.columns)
    new, old = _Side.empty(width, total if has_new else 0), _Side.empty(width, total if has_old else 0)
    _find_values(data, events, rows, layout, positions, event_rows, new, old)
    layouts = _by_position(layout, positions)
    then = replace(schema, columns=tuple(before.columns.get(i, c) for i, c in enumerate(schema.columns)))
    news, new_bad = _decode(new, "n", data, then, layouts, meta)
    olds, old_bad = _decode(old, "o", data, then, layouts, meta)
    each = np.repeat(kinds, event_rows)
    news = _as_now(news, schema, before, _IS_DELETE[each] == 0)
    olds = _as_now(olds, schema, before, _IS_INSERT[each] == 0)
    arrays = [
        pa.array(meta.time, pa.int64()),
        pa.array(meta.ordinal, pa.int64()),
        meta.transaction,
        pa.array(meta.commit_ts, pa.int64()).view(TIMESTAMP),
        pa.array(_OPS[each]),
        pa.array(_IMAGES[each]),
        *news,
        *olds,
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=change_schema(schema))
    return MysqlChanges(batch, pa.concat_tables([BAD.empty_table(), *new_bad, *old_bad]))


def blank(data: Bytes, events: EventFrames, rows: Ints, layout: TableMapLayout, out: Sequence[int]) -> None:
    """Overwrite the values of these columns with zeros, in place: the events stay as long as they are."""
    image = _Side.empty(len(out), 1)
    found = _blank(
        data,
        events.start[rows] + HEADER,
        events.stop[rows],
        events.kind[rows],
        _widths(layout),
        _number_columns(layout, out),
        *(image.kinds, image.starts, image.lengths),
    )
    _check(*found, events.start, rows)


def values_of(
    data: Bytes, events: EventFrames, rows: Ints, layout: TableMapLayout, columns: Sequence[int]
) -> list[TextColumn]:
    """The places of these columns' values in all images of events: new rows first, then old ones."""
    event_rows = counts(data, events, rows, layout)
    new, old = (_Side.empty(len(columns), int(event_rows.sum())) for _ in range(2))
    _find_values(data, events, rows, layout, _number_columns(layout, columns), event_rows, new, old)
    return [
        TextColumn(
            np.concatenate([new.kinds[at], old.kinds[at]]),
            np.concatenate([new.starts[at], old.starts[at]]),
            np.concatenate([new.lengths[at], old.lengths[at]]),
            data,
        )
        for at in range(len(columns))
    ]


def _find_values(
    data: Bytes,
    events: EventFrames,
    rows: Ints,
    layout: TableMapLayout,
    positions: Ints,
    event_rows: Ints,
    new: _Side,
    old: _Side,
) -> None:
    """Write the places of the columns at `positions` into both sides of events; raises for a bad event."""
    found = _walk(
        data,
        events.start[rows] + HEADER,
        events.stop[rows],
        events.kind[rows],
        _widths(layout),
        positions,
        True,
        event_rows,
        *(new.kinds, new.starts, new.lengths),
        *(old.kinds, old.starts, old.lengths),
    )
    _check(*found, events.start, rows)


def _number_columns(layout: TableMapLayout, columns: Sequence[int]) -> Ints:
    """Number these columns of a layout in their order; -1 stands for all others."""
    positions = np.full(len(layout.columns), -1, np.int64)
    positions[list(columns)] = np.arange(len(columns))
    return positions


def _widths(layout: TableMapLayout) -> Ints:
    return np.array([column.width for column in layout.columns], np.int64)


def _by_position(layout: TableMapLayout, positions: Ints) -> dict[int, LayoutColumn]:
    return {int(at): column for at, column in zip(positions, layout.columns, strict=True) if at >= 0}


def _check(trouble: int, at: int, starts: Ints, rows: Ints) -> None:
    """Raise the error of the event at this place among `rows`."""
    if trouble != _FINE:
        error = _bad_event(trouble, f"event at byte {starts[rows[at]]} of the buffer")
        error.event = int(rows[at])
        raise error


def _bad_event(trouble: int, where: str) -> BadEvent:
    if trouble == _PARTIAL_IMAGE:
        return BadEvent(
            "MY_ROW_IMAGE_PARTIAL",
            "a change of the binlog holds not every column",
            detail=f"{where}: its session had binlog_row_image MINIMAL or NOBLOB, or the release leaves out "
            "generated columns, as MariaDB 11.8 does",
            hint="SET GLOBAL binlog_row_image = FULL, see who sets it, and headrace tables resync; headrace "
            "check says whether the release logs all columns",
        )
    if trouble == _PARTIAL_JSON:
        return BadEvent(
            "MY_ROW_JSON_PARTIAL",
            "a change of the binlog holds only parts of a JSON value",
            detail=f"{where}: its session had binlog_row_value_options PARTIAL_JSON",
            hint="SET GLOBAL binlog_row_value_options = '', see who sets it, and headrace tables resync",
        )
    return BadEvent(
        "MY_BAD_ROW",
        "a change of the binlog can't be read",
        detail=f"{where}: {_WORDS[trouble]}",
        hint="report it with the server's version, and resynchronise the table",
    )


def _decode(
    side: _Side,
    name: str,
    data: Bytes,
    schema: TableSchema,
    layouts: dict[int, LayoutColumn],
    meta: MysqlChangeMeta,
) -> tuple[list[Any], list[Any]]:
    """The columns of one side, and the tables of their bad values."""
    if side.is_absent:
        return [pa.nulls(len(meta.time), column.type) for column in schema.columns], []
    arrays: list[Any] = []
    bad: list[Any] = []
    for position, column in enumerate(schema.columns):
        values = TextColumn(side.kinds[position], side.starts[position], side.lengths[position], data)
        array, rows, texts = _column(values, column, layouts.get(position))
        arrays.append(array)
        if texts is not None:
            bad.append(bad_values(name, position, texts, meta.time[rows], meta.ordinal[rows]))
    return arrays, bad


def _as_now(arrays: list[Any], schema: TableSchema, before: Before, there: Flags) -> list[Any]:
    """Turn the columns of then into those of now, in the rows that are there."""
    held = {i: pa.repeat(value, 1).take(_first_where(there)) for i, value in before.values.items()}
    return [
        held[i] if i in held else array.cast(column.type) if array.type != column.type else array
        for i, (array, column) in enumerate(zip(arrays, schema.columns, strict=True))
    ]


def _first_where(there: Flags) -> pa.Array:
    return pa.array(np.zeros(len(there), np.int64), mask=~there)


def _column(values: TextColumn, column: Column, layout: LayoutColumn | None) -> tuple[Any, Ints, Any | None]:
    nothing = np.empty(0, np.int64)
    if layout is None or not (values.kinds == TEXT).any():
        return pa.nulls(len(values), column.type), nothing, None
    decoded = decode_image(values, column.form, column.type, layout)
    if not len(decoded.bad):
        return decoded.array, nothing, None
    return decoded.array, decoded.bad, bad_texts(values, layout, decoded.bad)


# ── kernels ─────────────────────────────────────────────────────────────────────────────────────────


_HOP = several(types.int64, types.int64)


@kernel(_HOP, input_array(types.uint8), types.int64, types.int64, types.int64, types.int64)
def _head(data: Bytes, at: int, stop: int, kind: int, ncols: int) -> tuple[int, int]:
    """Read the head of an event. Returns what is wrong with it, and where its rows begin."""
    at += _POST_HEADER
    if kind > _V1_LAST:
        if stop - at < 2:
            return _TOO_SHORT, at
        extra = int(np.int64(data[at])) | (int(np.int64(data[at + 1])) << 8)
        at += extra if extra > 2 else 2
    if stop - at < 1:
        return _TOO_SHORT, at
    count = int(np.int64(data[at]))
    at += 1
    if count == 0xFC:
        if stop - at < 2:
            return _TOO_SHORT, at
        count = int(np.int64(data[at])) | (int(np.int64(data[at + 1])) << 8)
        at += 2
    if count != ncols:
        return _COLUMN_COUNT, at
    size = (ncols + 7) // 8
    for _ in range(2 if _IS_UPDATE[kind] == 1 else 1):
        if stop - at < size:
            return _TOO_SHORT, at
        for i in range(ncols):
            if (int(np.int64(data[at + i // 8])) >> (i % 8)) & 1 == 0:
                return _PARTIAL_IMAGE, at
        at += size
    return _FINE, at


@kernel(
    _HOP,
    input_array(types.uint8),
    types.int64,
    types.int64,
    input_array(types.int64),
    input_array(types.int64),
    types.boolean,
    output_array(types.uint8, 2),
    output_array(types.int64, 2),
    output_array(types.int32, 2),
    types.int64,
)
def _row(
    data: Bytes,
    at: int,
    stop: int,
    widths: Ints,
    positions: Ints,
    write: bool,
    kinds: Bytes,
    starts: Ints,
    lengths: Lengths,
    row: int,
) -> tuple[int, int]:
    """Walk one image. Returns what is wrong with it, and where it ends."""
    nulls = at
    at += (len(widths) + 7) // 8
    if at > stop:
        return _TOO_SHORT, at
    for i in range(len(widths)):
        if (int(np.int64(data[nulls + i // 8])) >> (i % 8)) & 1:
            continue
        length = widths[i]
        if length < 0:
            size = -length
            if size > stop - at:
                return _TOO_SHORT, at
            length = 0
            for j in range(size):
                length |= int(np.int64(data[at + j])) << (8 * j)
            at += size
        if length > stop - at:
            return _TOO_SHORT, at
        if write and positions[i] >= 0:
            column = positions[i]
            kinds[column, row], starts[column, row], lengths[column, row] = TEXT, at, length
        at += length
    return _FINE, at


@kernel(
    _HOP,
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int64),
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int64),
    types.boolean,
    output_array(types.int64),
    output_array(types.uint8, 2),
    output_array(types.int64, 2),
    output_array(types.int32, 2),
    output_array(types.uint8, 2),
    output_array(types.int64, 2),
    output_array(types.int32, 2),
)
def _walk(
    data: Bytes,
    bodies: Ints,
    stops: Ints,
    event_kinds: Bytes,
    widths: Ints,
    positions: Ints,
    write: bool,
    found: Ints,
    new_kinds: Bytes,
    new_starts: Ints,
    new_lengths: Lengths,
    old_kinds: Bytes,
    old_starts: Ints,
    old_lengths: Lengths,
) -> tuple[int, int]:
    """Count the rows of each event; or, if they were counted, write where their values lie."""
    row = 0
    for event in range(len(bodies)):
        kind, stop = event_kinds[event], stops[event]
        if kind == PARTIAL_UPDATE:
            return _PARTIAL_JSON, event
        trouble, at = _head(data, bodies[event], stop, kind, len(widths))
        if trouble != _FINE:
            return trouble, event
        while at < stop:
            if _IS_INSERT[kind] == 0:
                trouble, at = _row(
                    data, at, stop, widths, positions, write, old_kinds, old_starts, old_lengths, row
                )
                if trouble != _FINE:
                    return trouble, event
            if _IS_INSERT[kind] == 1 or _IS_UPDATE[kind] == 1:
                trouble, at = _row(
                    data, at, stop, widths, positions, write, new_kinds, new_starts, new_lengths, row
                )
                if trouble != _FINE:
                    return trouble, event
            if not write:
                found[event] += 1
            row += 1
    return _FINE, 0


@kernel(
    _HOP,
    output_array(types.uint8),
    input_array(types.int64),
    input_array(types.int64),
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int64),
    output_array(types.uint8, 2),
    output_array(types.int64, 2),
    output_array(types.int32, 2),
)
def _blank(
    data: Bytes,
    bodies: Ints,
    stops: Ints,
    event_kinds: Bytes,
    widths: Ints,
    positions: Ints,
    kinds: Bytes,
    starts: Ints,
    lengths: Lengths,
) -> tuple[int, int]:
    """Overwrite values in all rows of events. An event whose rows come in part loses all of them."""
    for event in range(len(bodies)):
        kind, stop = event_kinds[event], stops[event]
        trouble, at = _PARTIAL_JSON, bodies[event] + _POST_HEADER
        if kind != PARTIAL_UPDATE:
            trouble, at = _head(data, bodies[event], stop, kind, len(widths))
        if trouble in (_PARTIAL_JSON, _PARTIAL_IMAGE):
            for i in range(at, stop):
                data[i] = 0
            continue
        while trouble == _FINE and at < stop:
            kinds[:, 0] = NULL
            trouble, at = _row(data, at, stop, widths, positions, True, kinds, starts, lengths, 0)
            for column in range(len(kinds)):
                if kinds[column, 0] == TEXT:
                    for i in range(starts[column, 0], starts[column, 0] + lengths[column, 0]):
                        data[i] = 0
        if trouble != _FINE:
            return trouble, event
    return _FINE, 0
