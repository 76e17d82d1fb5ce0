"""From a slice of the stream to change batches, one table at a time.

Each event is a whole row that came or went. It gets the time and clock of the tick whose head precedes it,
and the xid of its transaction. Its ordinal is its own number. Within a tick the order of numbers means
nothing (`core.net_events`), except around a TRUNCATE.

    HEAD ─ +1 t (5) ─ -1 u (6) ─ 2 t (7) ─ 0 t (8) ─ +1 t (9)      5 and before: generation 0; 9: generation 1

A TRUNCATE makes two events, one before it begins (2) and one when the table is empty (0). In between,
triggers of the application may write to the table, and nothing tells whether they did so before or after the
rows went. The lock keeps all other transactions away. If our trigger sees such rows, its second event says
that the order is unclear (3): the table stops.

A row of a partition has the partition's layout: its columns are put into the root's order. Rows of a
partition that may not be complete are a failure of the root (`partitions`).

The number of a row's fields and its time tell which columns it has (`layouts`). A row is a failure of its
table, at its time, if its columns are not proven, if an enum no longer has its label
(`postgres.decode.labels`), or if it was printed under another type (`layouts`). The failure is a value and
not an exception, so the other tables of the slice go on. Bytes that can't be read at all raise: that concerns
the whole source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.core.change_batch import BAD, TIMESTAMP, Image, Op, change_schema
from headrace.core.columns import Flags
from headrace.core.errors import Definite, ShapeChanged
from headrace.core.schema import Column
from headrace.core.truncation import Truncation, Truncations
from headrace.decode.kernel import Bytes, Ints
from headrace.decode.queue import composite
from headrace.decode.queue.framing import EMPTIED, UNCLEAR, QueueEvents, scan
from headrace.decode.text import NULL, TEXT, TextColumn
from headrace.decode.values import decode_column, raw
from headrace.sources.contract.decoder import TableChanges, TableFailure, TableFilter
from headrace.sources.postgres.catalog.table_def import is_root, mirrored_columns
from headrace.sources.postgres.ddl.alteration import missing_value
from headrace.sources.postgres.decode import labels
from headrace.sources.queue.decode import layouts, partitions
from headrace.sources.queue.decode.context import QueueStreamContext
from headrace.sources.queue.decode.layouts import Layouts
from headrace.sources.queue.decode.partitions import Partition


@dataclass(frozen=True)
class QueueSliceData:
    """A slice's events, with the tick of each; computed when first used."""

    data: Bytes
    context: QueueStreamContext

    @cached_property
    def events(self) -> QueueEvents:
        return scan(self.data)

    @cached_property
    def time(self) -> Ints:
        return self._of_heads(self.events.heads.time, "time")

    @cached_property
    def commit_ts(self) -> Ints:
        return self._of_heads(self.events.heads.commit_ts, "commit_ts")

    def _of_heads(self, values: Ints, name: str) -> Ints:
        inside = self.context.inside
        before = -1 if inside is None else int(getattr(inside, name))
        return np.asarray(np.concatenate([np.array([before], np.int64), values])[self.events.head + 1])


def decode(
    stretch: QueueSliceData, tables: Mapping[int, TableFilter]
) -> Iterator[TableChanges | TableFailure]:
    """Decode all changes of the wanted tables."""
    events = stretch.events
    of_row = np.abs(events.diff) == 1
    for number, wanted in tables.items():
        mine = (
            of_row & (events.relation == number) & (stretch.time >= max(wanted.since, wanted.history_start))
        )
        if failure := _unclear(stretch, number, wanted):
            yield TableFailure(number, failure)
        elif mine.any():
            yield _changes(stretch, number, wanted, np.flatnonzero(mine))


def truncations(stretch: QueueSliceData, tables: Mapping[int, int]) -> dict[int, Truncations]:
    """Find the truncations of tables; `tables` has by number the time from which on they count."""
    events = stretch.events
    found: dict[int, list[Truncation]] = {}
    for row in np.flatnonzero(events.diff == EMPTIED).tolist():
        table, time = int(events.relation[row]), int(stretch.time[row])
        if table in tables and time >= tables[table]:
            place = Truncation(time, int(events.id[row]), int(events.tx[row]), int(stretch.commit_ts[row]))
            found.setdefault(table, []).append(place)
    return {table: tuple(sorted(places)) for table, places in found.items()}


def _changes(
    stretch: QueueSliceData, number: int, wanted: TableFilter, rows: Ints
) -> TableChanges | TableFailure:
    attributes = {each["number"]: each["name"] for each in wanted.details["attributes"]}
    numbers = [each["number"] for each in mirrored_columns(wanted.details)]
    time = int(stretch.time[rows].min())
    if [attributes[each] for each in numbers] != list(wanted.schema.names):
        return TableFailure(number, _altered_error(wanted, time))
    beneath = partitions.from_details(wanted.details) if is_root(wanted.details) else None
    leaf = stretch.events.layout[rows]
    if beneath is not None and (flaw := partitions.flaw(beneath, leaf, stretch.events.tx[rows])):
        row, what = flaw
        return TableFailure(number, _altered_error(wanted, int(stretch.time[rows[row]]), what))
    known = layouts.from_details(wanted.details)
    try:
        fields, counts = composite.fields(_rows(stretch, rows), known.most)
    except Definite as error:
        return TableFailure(number, _within(error, wanted, time))
    of_row = known.of_rows(counts, stretch.time[rows])
    if len(strange := np.flatnonzero(of_row < 0)):
        return TableFailure(number, _altered_error(wanted, int(stretch.time[rows[strange[0]]])))
    ways = _ways(known, of_row, numbers, beneath, leaf)
    if ways is None:
        return TableFailure(number, _altered_error(wanted, time, "a partition came with other columns"))
    values = _values(known, ways, numbers)
    changes = _batch(stretch, number, wanted, rows, _arrange(fields, ways), values)
    if not labels.stand(changes.batch, changes.bad, wanted.details):
        return TableFailure(number, labels.renamed_error(wanted.name, time))
    if layouts.printed_otherwise(changes.bad, wanted.details):
        return TableFailure(number, _altered_error(wanted, time, "a value was printed under another type"))
    return changes


def _rows(stretch: QueueSliceData, rows: Ints) -> TextColumn:
    events = stretch.events
    kinds = np.full(len(rows), TEXT, np.uint8)
    return TextColumn(kinds, events.row[rows], events.length[rows].astype(np.int32), stretch.data)


# By the places of the columns in a row (-1: the row lacks it), the rows that have them there.
_Ways = dict[tuple[int, ...], Flags]


def _ways(
    known: Layouts,
    of_row: Ints,
    numbers: Sequence[int],
    beneath: Mapping[int, Partition] | None,
    leaf: Ints,
) -> _Ways | None:
    """The places of these columns in each row; None if they are unknown for the partition of a row."""
    found: _Ways = {}
    for layout in np.unique(of_row).tolist():
        mine = of_row == layout
        there = known.layouts[layout].numbers
        orders = dict.fromkeys(np.unique(leaf[mine]).tolist(), there)
        if beneath is not None:
            orders = {oid: tuple(n for n in beneath[oid].numbers if n in there) for oid in orders}
        for oid, order in orders.items():
            if len(order) < len(there):
                return None
            places = tuple(order.index(each) if each in there else -1 for each in numbers)
            these = mine & (leaf == oid)
            found[places] = found[places] | these if places in found else these
    return found


def _arrange(texts: list[TextColumn], ways: _Ways) -> list[TextColumn]:
    """The columns, each with the field in its place of each row."""
    if len(ways) == 1:
        [places] = ways
        if -1 not in places:
            return [texts[place] for place in places]
    kinds, starts, lengths = (
        np.stack([getattr(each, name) for each in texts]) for name in ("kinds", "starts", "lengths")
    )
    arranged = []
    for column in range(len(next(iter(ways)))):
        place, absent = np.zeros(len(texts[0]), np.int64), np.zeros(len(texts[0]), np.bool_)
        for places, rows in ways.items():
            place[rows], absent[rows] = max(places[column], 0), places[column] < 0
        row = np.arange(len(place))
        kind = np.where(absent, np.uint8(NULL), kinds[place, row])
        arranged.append(TextColumn(kind, starts[place, row], lengths[place, row], texts[0].data))
    return arranged


def _values(known: Layouts, ways: _Ways, numbers: Sequence[int]) -> dict[int, tuple[Flags, str]]:
    """The columns, by place, that have a value in rows without them: those rows, and the value."""
    found = {}
    for place, number in enumerate(numbers):
        absent = [rows for places, rows in ways.items() if places[place] < 0]
        if absent and (text := known.missing.get(number)) is not None:
            found[place] = np.logical_or.reduce(absent), text
    return found


def _batch(
    stretch: QueueSliceData,
    number: int,
    wanted: TableFilter,
    rows: Ints,
    texts: list[TextColumn],
    values: Mapping[int, tuple[Flags, str]],
) -> TableChanges:
    """The batch of these rows, each as an old or a new row."""
    came = stretch.events.diff[rows] > 0
    new, old, bad = [], [], [BAD.empty_table()]
    for position, (column, text) in enumerate(zip(wanted.schema.columns, texts, strict=True)):
        decoded = decode_column(text, column.form, column.type)
        array = _fill(decoded.array, column, *values[position]) if position in values else decoded.array
        new.append(_side(array, came))
        old.append(_side(array, ~came))
        if len(decoded.bad):
            bad.append(_bad(stretch, rows[decoded.bad], came[decoded.bad], position, raw(text, decoded.bad)))
    meta = [
        pa.array(stretch.time[rows], pa.int64()),
        pa.array(stretch.events.id[rows], pa.int64()),
        pa.array(stretch.events.tx[rows], pa.int64()),
        pa.array(stretch.commit_ts[rows], pa.int64()).view(TIMESTAMP),
        pa.array(np.where(came, Op.INSERT, Op.DELETE).astype(np.uint8)),
        pa.array(np.where(came, Image.NONE, Image.FULL).astype(np.uint8)),
    ]
    batch = pa.RecordBatch.from_arrays([*meta, *new, *old], schema=change_schema(wanted.schema))
    return TableChanges(number, batch, pa.concat_tables(bad))


def _fill(values: pa.Array, column: Column, rows: Flags, text: str) -> pa.Array:
    """The values, with one value put into these rows."""
    given = missing_value(column, text)
    assert given is not None, "the look that followed the change had a value"
    both = pa.concat_arrays([values, given])
    return both.take(pa.array(np.where(rows, len(values), np.arange(len(values)))))


def _side(values: pa.Array, there: Flags) -> pa.Array:
    if there.all():
        return values
    if not there.any():
        return pa.nulls(len(values), values.type)
    return values.take(pa.array(np.arange(len(values)), mask=~there))


def _bad(stretch: QueueSliceData, rows: Ints, came: Flags, position: int, texts: pa.Array) -> pa.Table:
    columns = [
        pa.array(stretch.time[rows]),
        pa.array(stretch.events.id[rows]),
        pa.array(np.where(came, "n", "o").tolist(), pa.string()),
        pa.repeat(pa.scalar(position, pa.int32()), len(rows)),
        texts,
    ]
    return pa.Table.from_arrays(columns, schema=BAD)


# ── failures of a table ─────────────────────────────────────────────────────────────────────────────


def _unclear(stretch: QueueSliceData, number: int, wanted: TableFilter) -> Definite | None:
    """The error of a TRUNCATE during which its own transaction wrote to the table."""
    events = stretch.events
    found = (events.diff == UNCLEAR) & (events.relation == number)
    found &= stretch.time >= max(wanted.since, wanted.history_start)
    if not found.any():
        return None
    return Definite(
        "QUEUE_TRUNCATE_UNCLEAR",
        f"a trigger wrote to {wanted.name} while the table was being truncated",
        detail=f"in transaction {int(events.tx[found][0])}: nothing tells whether it wrote before or behind",
        hint=f"headrace tables resync {wanted.name}",
    )


def _altered_error(wanted: TableFilter, time: int, what: str = "") -> Definite:
    beneath = ", and the partitions" if is_root(wanted.details) else ""
    return ShapeChanged(
        "TABLE_ALTERED",
        f"{wanted.name} does not have the columns{beneath} that were recorded",
        detail=f"seen in the tick of _time {time}" + (f": {what}" if what else ""),
        hint=f"headrace tables resync {wanted.name}",
    )


def _within(error: Definite, wanted: TableFilter, time: int) -> Definite:
    """The error of a row, with its table."""
    detail = f"{wanted.name}, in the tick of _time {time}"
    return Definite(
        error.code,
        error.primary,
        detail=f"{detail}; {error.detail}" if error.detail else detail,
        hint=error.hint,
    )
