"""From a slice of the stream to change batches, one table at a time.

A slice is the frames of whole transactions, or of a piece of a very large one; its context says in which
transaction it begins, and which table maps hold there. Each row gets the time, GTID and commit timestamp of
the BEGIN before it, and its ordinal: its number within its transaction and table, in log order.

    BEGIN ─ MAP t ─ INSERT t (3 rows) ─ TRUNCATE t ─ UPDATE t (1 row)
                     t,0 t,1 t,2         t,3          t,4                ordinals

A TRUNCATE is no row change, but takes an ordinal; `truncations` finds them without reading a row.

Rows from before a followed statement have the columns of that time. The time of the statement decides which
these are, never a name: all rows between two statements have one layout, or fail.

These are failures of a table at its time: a table map that differs from the record, a change that was logged
without its rows, an image that lacks columns. A failure is a value and not an exception, so that the other
tables of the slice go on. Changes of the table before the failure still count. Bytes that can't be read at
all raise: that concerns the whole source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from headrace.core.conversion import Conversion
from headrace.core.errors import Definite, LayoutUnknown, RowsUntold, ShapeChanged
from headrace.core.names import TableName
from headrace.core.records import from_record
from headrace.core.truncation import Truncation, Truncations
from headrace.decode.kernel import Bytes, Ints
from headrace.decode.mysql import table_map
from headrace.decode.mysql.framing import (
    ALTERED,
    HEADER,
    TRUNCATE,
    EventFrames,
    begins,
    behind_names,
    scan,
    table_named,
)
from headrace.decode.mysql.rows import BadEvent, Before, MysqlChangeMeta, changes, counts
from headrace.decode.mysql.table_map import TableMapLayout
from headrace.sources.contract.decoder import TableChanges, TableFailure, TableFilter
from headrace.sources.contract.values import StatementEffect
from headrace.sources.mysql.catalog.table_def import ColumnRow, table_number
from headrace.sources.mysql.ddl.known_statements import columns_before, explained_times
from headrace.sources.mysql.ddl.volatile import volatile_stored
from headrace.sources.mysql.decode.context import MysqlOpenTransaction, MysqlStreamContext, number_of
from headrace.sources.mysql.types.columns import positions, positions_in


@dataclass(frozen=True)
class MysqlSliceData:
    """A slice's frames, and the facts that need no row; each is computed when first used."""

    data: Bytes
    context: MysqlStreamContext
    mariadb: bool

    @cached_property
    def events(self) -> EventFrames:
        return scan(self.data, self.context.maps)

    @cached_property
    def tables(self) -> Ints:
        """The table number of each event of rows and each TRUNCATE; -1 for other events."""
        found = np.full(len(self.events), -1, np.int64)
        if self.events.maps:
            of_map = np.array([number_of(frame) for frame in self.events.maps], np.int64)
            rows = self.events.is_rows
            found[rows] = of_map[self.events.map[rows]]
        for row in np.flatnonzero(self.events.kind == TRUNCATE):
            found[row] = table_number(TableName(*self._names_at(int(row), 0)))
        return found

    @cached_property
    def layouts(self) -> list[TableMapLayout | Definite]:
        """The layout of each distinct table map, or the error if it cannot be read."""
        return [_layout(frame, self.mariadb) for frame in self.events.maps]

    @cached_property
    def heads(self) -> _Heads:
        found = begins(self.data, self.events)
        inside = self.context.inside or MysqlOpenTransaction(-1, "", 0, {})
        return _Heads(
            np.concatenate([np.array([inside.time], np.int64), found.time]),
            np.concatenate([np.array([inside.commit_ts], np.int64), found.commit_ts]),
            pa.concat_arrays([pa.array([inside.name], pa.string()), found.name.binary(pa.string())]),
        )

    @cached_property
    def altered_events(self) -> list[tuple[int, int, str, str]]:
        """The effects that no row shows: event, reason, database, table. An empty name means all."""
        rows = np.flatnonzero(self.events.kind == ALTERED)
        return [
            (int(row), int(self.data[self.events.body[row]]), *self._names_at(int(row), 1)) for row in rows
        ]

    def _names_at(self, row: int, at: int) -> tuple[str, str]:
        return table_named(self.data, int(self.events.body[row]) + at, int(self.events.stop[row]))

    def steps(self, row: int) -> bytes | None:
        """The steps behind the names in an ALTERED frame, if its statement has them."""
        return behind_names(self.data, int(self.events.body[row]) + 1, int(self.events.stop[row])) or None

    def time(self, row: int) -> int:
        """The time of an event's transaction."""
        return int(self.heads.time[self.events.transaction[row] + 1])

    def sizes(self, rows: Ints) -> tuple[Ints, dict[int, Definite]]:
        """The number of ordinals that each event takes, and the errors of layouts with unreadable events."""
        sizes = np.ones(len(rows), np.int64)
        failed: dict[int, Definite] = {}
        of_rows = self.events.is_rows[rows]
        maps = self.events.map[rows]
        for number in np.flatnonzero(np.bincount(maps[of_rows])):
            mine = of_rows & (maps == number)
            layout = self.layouts[number]
            try:
                if isinstance(layout, Definite):
                    raise layout
                sizes[mine] = counts(self.data, self.events, rows[mine], layout)
            except Definite as error:
                failed[int(number)] = error
                sizes[mine] = 0
                if isinstance(error, BadEvent) and isinstance(layout, TableMapLayout):
                    fine = mine & (rows < error.event)
                    sizes[fine] = counts(self.data, self.events, rows[fine], layout)
        return sizes, failed


@dataclass(frozen=True, slots=True)
class _Heads:
    """The heads of transactions; the first is that of the transaction that was open before."""

    time: Ints
    commit_ts: Ints
    name: pa.StringArray

    def name_of(self, number: int) -> str:
        return str(self.name[number])


def _layout(frame: bytes, mariadb: bool) -> TableMapLayout | Definite:
    try:
        return table_map.layout(frame[HEADER:], mariadb=mariadb)
    except Definite as error:
        return error


def decode(
    stretch: MysqlSliceData, tables: Mapping[int, TableFilter]
) -> Iterator[TableChanges | TableFailure]:
    """Decode all changes of the wanted tables."""
    for number, wanted in tables.items():
        yield from _Table(stretch, number, wanted).decode()


def statements(
    stretch: MysqlSliceData, tables: Mapping[int, TableFilter]
) -> dict[int, list[StatementEffect]]:
    """Find the statements on these tables, or on all tables, that are not explained yet."""
    found: dict[int, list[StatementEffect]] = {}
    for row, reason, database, table in stretch.altered_events:
        time = stretch.time(row)
        for number, wanted in tables.items():
            if not (concerns(wanted, database, table) and _counts(wanted, time)):
                continue
            if reason != _REBUILT or _has_volatile_stored(wanted):
                told = StatementEffect(time, stretch.steps(row), reason in _REPLACED)
                found.setdefault(number, []).append(told)
    return found


def _counts(wanted: TableFilter, time: int) -> bool:
    return time >= max(wanted.since, wanted.history_start) and time not in explained_times(wanted.details)


def _has_volatile_stored(wanted: TableFilter) -> bool:
    """Tell whether stored columns of the table may change when a session has it copied."""
    columns = wanted.details.get("columns", ())
    return bool(volatile_stored([from_record(ColumnRow, each) for each in columns]))


def concerns(table_filter: TableFilter, database: str, table: str) -> bool:
    """Tell whether an event with these names concerns the table; an empty name means all."""
    return database in ("", table_filter.name.schema) and table in ("", table_filter.name.name)


def truncations(stretch: MysqlSliceData, tables: Mapping[int, int]) -> dict[int, Truncations]:
    """Find the truncations of tables; `tables` has by number the time from which on they count."""
    emptied = stretch.events.kind == TRUNCATE
    found: dict[int, Truncations] = {}
    for number in tables if emptied.any() else ():
        if not (emptied & (stretch.tables == number)).any():
            continue
        rows, first, _, _ = _number_events(stretch, number)
        chosen = emptied[rows] & (stretch.heads.time[stretch.events.transaction[rows] + 1] >= tables[number])
        if chosen.any():
            found[number] = tuple(
                _truncation(stretch, int(row), int(ordinal))
                for row, ordinal in zip(rows[chosen], first[chosen], strict=True)
            )
    return found


def _truncation(stretch: MysqlSliceData, row: int, ordinal: int) -> Truncation:
    heads, at = stretch.heads, int(stretch.events.transaction[row]) + 1
    return Truncation(int(heads.time[at]), ordinal, heads.name_of(at), int(heads.commit_ts[at]))


def _number_events(stretch: MysqlSliceData, number: int) -> tuple[Ints, Ints, Ints, dict[int, Definite]]:
    """The events of a table, the first ordinal of each, the number of its ordinals, and bad layouts."""
    rows = np.flatnonzero(stretch.tables == number)
    sizes, failed = stretch.sizes(rows)
    inside = stretch.context.inside
    before = inside.ordinals.get(number, 0) if inside else 0
    return rows, ordinals(stretch.events.transaction[rows], sizes, before), sizes, failed


def ordinals(transaction: Ints, sizes: Ints, before: int) -> Ints:
    """The first ordinal of each event; the open transaction had `before` already."""
    begun = np.cumsum(sizes) - sizes
    edges = np.flatnonzero(np.diff(transaction, prepend=-2))
    started = np.repeat(begun[edges], np.diff(edges, append=len(transaction)))
    return np.asarray(begun - started + np.where(transaction == -1, before, 0))


@dataclass(frozen=True)
class _Table:
    """The changes of one table in a slice."""

    stretch: MysqlSliceData
    number: int
    table_filter: TableFilter

    @property
    def since(self) -> int:
        """The time from which on effects on the table count."""
        return max(self.table_filter.since, self.table_filter.history_start)

    def decode(self) -> Iterator[TableChanges | TableFailure]:
        """Decode the changes, one run of a layout after another, up to the first failure."""
        rows, first, sizes, failed = _number_events(self.stretch, self.number)
        events = self.stretch.events
        new = events.is_rows[rows] & (self._time(rows) >= self.since)
        end, failure = self._end()
        new &= rows < end
        rows, first, sizes = rows[new], first[new], sizes[new]
        for low, high in self._fine_runs(rows, failed):
            number = int(events.map[rows[low]])
            error = failed.get(number)
            if isinstance(error, BadEvent) and rows[low] < error.event:
                error = None  # the bad event is in a later run
            found = self._run(rows[low:high], first[low:high], sizes[low:high], number, error)
            yield found
            if isinstance(found, TableFailure):
                return
        if failure is not None:
            yield failure

    def _runs(self, rows: Ints) -> Iterator[tuple[int, int]]:
        """The runs of events that share a layout and a version of the table."""
        maps = self.stretch.events.map[rows]
        versions = np.searchsorted(self._ends, self._time(rows), "right")
        edges = [np.diff(each, prepend=-2, append=-2) != 0 for each in (maps, versions)]
        return pairwise(map(int, np.flatnonzero(edges[0] | edges[1]))) if len(rows) else iter(())

    def _fine_runs(self, rows: Ints, failed: Mapping[int, Definite]) -> Iterator[tuple[int, int]]:
        """The runs, cut before each event that cannot be read: the events before it still count."""
        bad = [error.event for error in failed.values() if isinstance(error, BadEvent)]
        for low, high in self._runs(rows):
            cuts = sorted(cut for cut in map(int, np.searchsorted(rows, bad)) if low < cut < high)
            yield from pairwise((low, *cuts, high))

    @cached_property
    def _earlier(self) -> list[Conversion]:
        return sorted(self.table_filter.schema.earlier, key=lambda known: known.until)

    @cached_property
    def _ends(self) -> Ints:
        return np.array([known.until for known in self._earlier], np.int64)

    def _version(self, time: int) -> Conversion | None:
        """The conversion from the columns of a time to those of now; None if they are the same."""
        place = int(np.searchsorted(self._ends, time, "right"))
        return self._earlier[place] if place < len(self._earlier) else None

    def _time(self, rows: Ints) -> Ints:
        return self.stretch.heads.time[self.stretch.events.transaction[rows] + 1]

    def _end(self) -> tuple[int, TableFailure | None]:
        """The event at which the table fails, and its failure; without one, the end and None."""
        for row, reason, database, table in self.stretch.altered_events:
            time = self.stretch.time(row)
            if not (concerns(self.table_filter, database, table) and _counts(self.table_filter, time)):
                continue
            if reason not in _HARMLESS or _has_volatile_stored(self.table_filter):
                return row, TableFailure(self.number, _happened_error(self.table_filter, reason, time))
        return len(self.stretch.events), None

    def _run(
        self, rows: Ints, first: Ints, sizes: Ints, number: int, failed: Definite | None
    ) -> TableChanges | TableFailure:
        """Decode the events of a run."""
        time = int(self._time(rows[:1])[0])
        layout = self.stretch.layouts[number]
        if isinstance(layout, Definite) or failed is not None:
            error = layout if isinstance(layout, Definite) else failed
            assert error is not None
            return TableFailure(self.number, _within(error, self.table_filter, time))
        if not layout.is_full:
            return TableFailure(self.number, _bare(self.table_filter, time))
        version = self._version(time)
        way = (
            _way_of_now(layout, self.table_filter)
            if version is None
            else _way(layout, self.table_filter, version)
        )
        if way is None:
            return TableFailure(self.number, _altered_error(self.table_filter, time))
        try:
            taken = changes(
                self.stretch.data,
                self.stretch.events,
                rows,
                layout,
                way.positions,
                self.table_filter.schema,
                sizes,
                self._meta(rows, first, sizes),
                way.before,
            )
        except Definite as error:  # a value can't be read
            return TableFailure(self.number, _within(error, self.table_filter, time))
        return TableChanges(self.number, taken.batch, taken.bad)

    def _meta(self, rows: Ints, first: Ints, sizes: Ints) -> MysqlChangeMeta:
        each = np.repeat(np.arange(len(rows)), sizes)
        head = (self.stretch.events.transaction[rows] + 1)[each]
        within = np.arange(len(each)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        heads = self.stretch.heads
        return MysqlChangeMeta(
            time=heads.time[head],
            ordinal=first[each] + within,
            transaction=heads.name.take(pa.array(head)),
            commit_ts=heads.commit_ts[head],
        )


@dataclass(frozen=True, slots=True)
class _Way:
    """The conversion from rows of a layout to those of the table."""

    positions: Ints
    before: Before | None = None


def _way_of_now(layout: TableMapLayout, wanted: TableFilter) -> _Way | None:
    found = positions(layout, wanted.schema, wanted.details.get("left_out", ()))
    return None if found is None else _Way(found)


def _way(layout: TableMapLayout, wanted: TableFilter, version: Conversion) -> _Way | None:
    """The conversion from rows of a version; None unless the table had this layout then."""
    columns = columns_before(wanted.details, version.until)
    if columns is None:
        return None
    taken = np.array(version.places, np.int64)
    schema = wanted.schema
    key = [
        name
        for name, at in zip(version.names, taken, strict=True)
        if at >= 0 and schema.names[at] in schema.key
    ]
    found = positions_in(layout, version.names, columns, key, wanted.details.get("left_out", ()))
    if found is None:
        return None
    known = {int(at): column for at, column in zip(taken, columns, strict=True) if at >= 0 and column}
    return _Way(np.where(found >= 0, taken[found], -1), Before(known, version.values))


# ── failures of a table ─────────────────────────────────────────────────────────────────────────────

# By the reason in the stream's frame (`ddl.steps.Reason`).
_DEFAULTS, _REBUILT = 10, 11
_HARMLESS = (_DEFAULTS, _REBUILT)  # except for stored columns that are computed again
_SHAPED = {
    1: "was dropped",
    2: "was renamed, or another table to its name",
    3: "was altered",
    5: "had partitions that were dropped, emptied or exchanged",
    7: "was created anew",
    10: "may have had its stored generated columns computed anew",
    11: "may have had its stored generated columns computed anew",
}
_UNTOLD = {
    4: "was changed by a statement that was logged instead of its rows",
    6: "may have been changed by a statement that cannot be told",
    8: "lost or got its tablespace",
    9: "had changes that were taken back after they were logged",
}


_REPLACED = frozenset((1, 2, 7))  # of `_SHAPED`


class ChangesUntold(RowsUntold):
    """The log has a change of a table without the rows."""

    codes = ("MY_CHANGES_UNTOLD",)


def _happened_error(wanted: TableFilter, reason: int, time: int) -> Definite:
    """The error of an effect on a table. DDL is followed; unlogged rows may recur, so a person must know."""
    seen = f"seen in the transaction of _time {time}"
    if reason in _SHAPED:
        return ShapeChanged(
            "TABLE_ALTERED",
            f"{wanted.name} {_SHAPED[reason]}",
            detail=seen,
            hint=f"headrace tables resync {wanted.name}",
        )
    return ChangesUntold(
        "MY_CHANGES_UNTOLD",
        f"{wanted.name} {_UNTOLD.get(reason, 'was changed otherwise than by rows')}",
        detail=seen,
        hint=f"headrace tables resync {wanted.name}",
    )


def _altered_error(wanted: TableFilter, time: int) -> Definite:
    return LayoutUnknown(
        "TABLE_LAYOUT_UNKNOWN",
        f"the log describes {wanted.name} by other columns, or another key, than were recorded",
        detail=f"seen in the transaction of _time {time}",
        hint=f"headrace tables resync {wanted.name}",
    )


def _bare(wanted: TableFilter, time: int) -> Definite:
    return Definite(
        "MY_ROW_METADATA_BARE",
        f"changes of {wanted.name} were logged without the names of its columns",
        detail=f"seen in the transaction of _time {time}: binlog_row_metadata was not FULL",
        hint=f"SET GLOBAL binlog_row_metadata = FULL; headrace tables resync {wanted.name}",
    )


def _within(error: Definite, wanted: TableFilter, time: int) -> Definite:
    """The error of an event, with its table."""
    detail = f"{wanted.name}, in the transaction of _time {time}"
    return Definite(
        error.code,
        error.primary,
        detail=f"{detail}; {error.detail}" if error.detail else detail,
        hint=error.hint,
    )
