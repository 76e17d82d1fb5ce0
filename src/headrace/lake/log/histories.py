"""The history of a table: which files hold the updates between two times, and what is in them.

    history/<source>/<schema>/<table>/1/     one folder per incompatible schema, in their order
    history/<source>/<schema>/<table>/2/

A table's history is read as of now, always cut to times that a mark has reached: an epoch writes its
history before its mark, and a plan that was withdrawn took its rows with it. Files outside the times are
left out by what Delta's log says of their `_time`.

It never nets anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from operator import contains
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.change_batch import TIMESTAMP
from headrace.core.history import OWN
from headrace.core.names import TableName
from headrace.core.transaction_id import TransactionId, of_somebody
from headrace.lake.format import datafile, layout
from headrace.lake.format.vector import FileRows
from headrace.lake.log import catalog
from headrace.lake.log.marks import Mark
from headrace.lake.log.table import LakeTable, figures
from headrace.lake.store.contract import Store
from headrace.lake.store.many import at_once

_TRANSACTION = {way.column.lstrip("_") for way in TransactionId}

Covers = Callable[[pa.ChunkedArray], pa.BooleanArray]
OpenTable = Callable[[str], LakeTable]
Bounds = tuple[Any, Any]  # the first and the last time in a file; None: not known
Times = tuple[int | None, int]  # after < _time <= until; None: since the beginning


@dataclass(frozen=True, slots=True)
class HistoryPart:
    """The files of one schema that may hold updates of some times."""

    table: LakeTable
    schema: pa.Schema
    paths: tuple[str, ...]
    times: Times

    @property
    def own(self) -> dict[str, str]:
        """The names of our columns here, by their plain names."""
        return own_columns(self.schema)

    @property
    def columns(self) -> list[str]:
        """The user's columns."""
        ours = set(self.own.values())
        return [name for name in self.schema.names if name not in ours]

    def keys(self) -> list[str]:
        return [f"{self.table.folder}/{path}" for path in self.paths]

    def reaching(self, transaction: int) -> tuple[str, ...]:
        """Select the files that may hold updates of this transaction or of one with a higher number."""
        highest = f"max.{layout.lake_column(self.own['_transaction'])}"
        stated = {file["path"]: file.get(highest) for file in figures(self.table, highest)}
        return tuple(path for path in self.paths if (most := stated[path]) is None or most >= transaction)

    def rows(self) -> pa.Table:
        """The updates of these times, with all columns."""
        return self._rows(self.schema)

    def of_own(self, *names: str) -> pa.Table:
        """Columns of ours for the updates of these times, `_time` among them; no other column is read."""
        called = [self.own[name] for name in ("_time", *names)]
        return self._rows(pa.schema([self.schema.field(name) for name in called]))

    def _rows(self, schema: pa.Schema) -> pa.Table:
        read = [
            datafile.read(self.table.store, self.table.folder, FileRows(path), schema=schema)
            for path in self.paths
        ]
        rows = pa.concat_tables(read) if read else schema.empty_table()
        after, until = self.times
        time = pc.field(self.own["_time"])
        within = time <= until if after is None else (time > after) & (time <= until)
        return rows.filter(within)


def parts(
    store: Store, source: str, table: TableName, times: Times, open_table: OpenTable | None = None
) -> list[HistoryPart]:
    """The table's history of these times, one part for each schema; none where it has none."""
    found = (part_of(folder, times) for folder in folders(store, source, table, open_table))
    return [part for part in found if part.paths]


def part_of(folder: LakeTable, times: Times) -> HistoryPart:
    """The history of these times in one folder."""
    schema = folder.schema()
    time = layout.lake_column(own_columns(schema)["_time"])
    return HistoryPart(folder, schema, _within(folder, time, times), times)


def history_number(
    store: Store, source: str, table: TableName, k: int, open_table: OpenTable | None = None
) -> LakeTable | None:
    """The history under one of the incompatible schemas that the table had; None where it has none yet."""
    folder = layout.history_folder(source, table, k)
    found = LakeTable(store, folder) if open_table is None else open_table(folder)
    return found if found.refresh() >= 0 else None


def first_later(
    store: Store, source: str, limit: datetime, before: Mark | None, mark: Mark
) -> tuple[int, bool] | None:
    """The first transaction between the marks that committed after `limit`, and whether others precede it."""
    late: list[int] = []
    early: list[int] = []
    for table in _touched_tables(store, source, before, mark):
        for part in parts(store, source, table, (before.time if before else None, mark.time)):
            rows = part.of_own("_commit_ts")
            is_late = pc.greater(rows[part.own["_commit_ts"]], pa.scalar(limit, TIMESTAMP))
            times = rows[part.own["_time"]]
            late += _least(times.filter(is_late))
            early += _least(times.filter(pc.invert(is_late)))
    if not late:
        return None
    return min(late), bool(early) and min(early) < min(late)


def splits_at(store: Store, source: str, covers: Covers, time: int, before: Mark | None, mark: Mark) -> bool:
    """Tell whether of the transactions between the marks just those up to this time are covered."""
    for table in _touched_tables(store, source, before, mark):
        for part in parts(store, source, table, (before.time if before else None, mark.time)):
            rows = part.of_own("_transaction")
            rows = rows.filter(of_somebody(rows[part.own["_transaction"]]))
            earlier = pc.less_equal(rows[part.own["_time"]], time).combine_chunks()
            if pc.any(pc.xor(earlier, covers(rows[part.own["_transaction"]]))).as_py():
                return False
    return True


def _least(times: pa.ChunkedArray) -> list[int]:
    return [pc.min(times).as_py()] if len(times) else []


def _touched_tables(store: Store, source: str, before: Mark | None, mark: Mark) -> list[TableName]:
    """The tables whose history may have updates between the marks.

    Between neighbours the plan says which, but for tables that the mark does not name: the changes of a table
    that is being copied or rewritten are kept, and come into its history with a later epoch.
    """
    found = tables(store, source)
    neighbours = before is not None and before.epoch + 1 == mark.epoch
    plan = catalog.final_plan(store, source, mark.epoch) if neighbours else None
    if plan is None:
        return found
    changed = {layout.table_of_history(step.path) for step in plan.steps}
    return [table for table in found if table in changed or str(table) not in mark.versions]


def tables(store: Store, source: str) -> list[TableName]:
    """The tables of a source that have a history."""
    return tables_under(store, layout.histories_folder(source))


def tables_under(store: Store, root: str) -> list[TableName]:
    """The tables that have a folder under that of their source."""
    return [
        TableName(layout.unquote(schema), layout.unquote(name))
        for schema in store.folders(root)
        for name in store.folders(f"{root}/{schema}")
    ]


def folders(
    store: Store, source: str, table: TableName, open_table: OpenTable | None = None
) -> Iterator[LakeTable]:
    """The histories of a table, one for each incompatible schema, as of now.

    Who looks again and again keeps them open (`open_table`).
    """
    k = 1
    while (found := history_number(store, source, table, k, open_table)) is not None:
        yield found
        k += 1


def bounds(folder: LakeTable, time: str) -> dict[str, Bounds]:
    """The first and the last time in each file that has rows; `time` is the column as the lake spells it.

    Delta's readers take the statistics of a table's first 32 columns and no more, unless the table says
    otherwise, as histories do by now (`lake.log.table`). Of an older one the footers tell.
    """
    told: dict[str, Bounds] = {
        file["path"]: (file.get(f"min.{time}"), file.get(f"max.{time}"))
        for file in figures(folder, f"min.{time}", f"max.{time}")
        if file["num_records"] != 0  # nothing is known of its times either
    }
    untold = [path for path, ends in told.items() if None in ends]
    if untold:
        told |= zip(untold, at_once(partial(_by_footer, folder, layout.unquote(time)), untold), strict=True)
    return told


def _by_footer(folder: LakeTable, time: str, path: str) -> Bounds:
    ends = [group.bounds[time] for group in datafile.groups(folder.store, folder.folder, path, [time])]
    if any(None in each for each in ends):
        return (None, None)
    return min(low for low, _ in ends), max(high for _, high in ends)


def _within(folder: LakeTable, time: str, times: Times) -> tuple[str, ...]:
    """The files that may hold updates of these times."""
    after, until = times
    chosen = []
    for path, (low, high) in bounds(folder, time).items():
        known = low is not None and high is not None
        if not known or (low <= until and (after is None or high > after)):
            chosen.append(path)
    return tuple(sorted(chosen))


def own_columns(schema: pa.Schema) -> dict[str, str]:
    """The names of our columns in a history table, by their plain names."""
    start = _own_start(schema)
    return dict(zip(OWN, schema.names[start : start + len(OWN)], strict=True))


def _own_start(schema: pa.Schema) -> int:
    """Find where our columns stand in a history table: together, in their order."""
    called = [{"transaction": _TRANSACTION}.get(name, {name}) for name in (own.lstrip("_") for own in OWN)]
    names = [name.lstrip("_") for name in schema.names]
    # The last ones: the user may have columns of these very names and types, and ours stand behind them.
    return next(
        i
        for i in range(len(names) - len(OWN), -1, -1)
        if all(map(contains, called, names[i : i + len(OWN)])) and schema.types[i] == pa.int64()
    )
