"""The details of a lake that its status does not hold: newest marks, columns, when a table can be read.

They come from plans and the catalog: small JSON records that never change once they are written, so each is
read once and remembered. A run deletes plans older than the last checkpoint. So nothing is known of their
marks, and of tables only what the checkpoints say. Neither Arrow nor delta-rs is loaded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from threading import Lock
from typing import Any

from headrace.core.position import Position
from headrace.lake.format import layout
from headrace.lake.log import catalog, horizon
from headrace.lake.log.catalog import Catalog
from headrace.lake.log.horizon import Reach
from headrace.lake.read.positions import show_position, spelling_of
from headrace.lake.store.contract import Store
from headrace.lake.store.many import at_once

MOST_MARKS = 200
_REMEMBERED = 4 * MOST_MARKS
_TABLE = "table/"  # the prefix of tables' keys in the catalog
_CHECKPOINTS = 50  # at most so many, the newest, are read for intervals
_TABLES = 64  # remember the intervals of so many tables
_STEPS = 20  # if more plans than this are new, read the catalog anew


@dataclass(frozen=True, slots=True)
class MarkSummary:
    """The record of a mark in its plan."""

    epoch: int
    kind: str
    frontier: str
    committed_at: str | None  # the latest commit in it, by the source's clock
    transactions: int
    changes: int
    tables: tuple[str, ...]  # whose rows it changed
    versions: Mapping[str, int]  # of the Delta tables that are exact at it
    time: int
    since: Mapping[str, int | None]  # the `since` of tables whose record it changed


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """A column of a mirrored table."""

    name: str
    source_type: str
    lake_type: str  # Spark's name
    nullable: bool
    in_key: bool


@dataclass(frozen=True, slots=True)
class ReadableInterval:
    """An interval in which a table can be read; its ends are positions of the source."""

    since: str
    last_epoch: int  # of the last mark that is known to hold the table
    until: str | None  # the position of that mark; None if only a checkpoint is known
    goes_on: bool


@dataclass(frozen=True, slots=True)
class _Sight:
    """A table at one mark: its `since`, and whether the mark holds it."""

    epoch: int
    since: int | None
    is_named: bool
    mark: MarkSummary | None = None  # if its plan still exists


@dataclass(slots=True)
class Details:
    """The details of one lake; any thread may call."""

    store: Store
    _marks: OrderedDict[tuple[str, int], MarkSummary] = field(default_factory=OrderedDict)
    _catalogs: dict[str, Catalog] = field(default_factory=dict)
    _sights: OrderedDict[tuple[str, str], dict[int, _Sight]] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def marks(self, source: str, newest: int, count: int = MOST_MARKS) -> Sequence[MarkSummary]:
        """The newest marks, the newest first, as far as their plans still exist."""
        epochs = range(newest, max(0, newest - count), -1)
        with self._lock:
            absent = [epoch for epoch in epochs if (source, epoch) not in self._marks]
        for epoch, found in zip(absent, at_once(lambda each: self._read(source, each), absent), strict=True):
            if found is not None:
                with self._lock:
                    self._marks[source, epoch] = found
        with self._lock:
            while len(self._marks) > _REMEMBERED:
                self._marks.popitem(last=False)
            return [self._marks[source, epoch] for epoch in epochs if (source, epoch) in self._marks]

    def columns(self, source: str, epoch: int, table: str) -> Sequence[ColumnSummary]:
        """The columns of a table as of a mark; none if the table is not mirrored."""
        record = self._catalog(source, epoch).records.get(f"table/{table}")
        if not isinstance(record, dict):
            return ()
        schema: Mapping[str, Any] = record.get("schema", {})
        key = schema.get("key", ())
        return [
            ColumnSummary(
                str(column.get("name")),
                str(column.get("source_type")),
                str(column.get("lake_type", "")),
                bool(column.get("nullable")),
                column.get("name") in key,
            )
            for column in schema.get("columns", ())
        ]

    def intervals(self, source: str, epoch: int, table: str) -> Sequence[ReadableInterval]:
        """The intervals in which a table can be read, the newest first.

        The end is exact for marks whose plans exist; for older marks it lies at the checkpoint or after it.
        """
        sights = self._at_checkpoints(source, epoch, table)
        oldest = sights[-1].epoch if sights else 0
        since = sights[-1].since if sights else None
        marks = self.marks(source, epoch, min(max(1, epoch - oldest), MOST_MARKS))
        for mark in reversed(marks):
            since = mark.since.get(table, since)
            sights.append(_Sight(mark.epoch, since, table in mark.versions, mark))
        if not marks:
            return ()
        near = Position(marks[0].time + 1, marks[0].frontier)
        spelling = spelling_of(self._catalog(source, epoch).records)
        return _intervals(
            sights, horizon.read(self.store, source), lambda time: show_position(spelling, time, near)
        )

    def _at_checkpoints(self, source: str, epoch: int, table: str) -> list[_Sight]:
        """The table at each of the newest checkpoints, the oldest first."""
        keys = self.store.list(layout.checkpoints_folder(source))
        epochs = [number for key in keys if (number := layout.plan_of(key)[0]) <= epoch][-_CHECKPOINTS:]
        with self._lock:
            known = dict(self._sights.get((source, table), {}))
        absent = [number for number in epochs if number not in known]
        read = at_once(lambda number: _sight(catalog.load(self.store, source, number), table), absent)
        known |= dict(zip(absent, read, strict=True))
        with self._lock:
            self._sights[source, table] = {number: known[number] for number in epochs}
            self._sights.move_to_end((source, table))
            while len(self._sights) > _TABLES:
                self._sights.popitem(last=False)
        return [known[number] for number in epochs]

    def _read(self, source: str, epoch: int) -> MarkSummary | None:
        plan = catalog.final_plan(self.store, source, epoch)
        if plan is None:
            return None
        changed = [layout.place(step.path) for step in plan.steps if step.path.startswith("tables/")]
        return MarkSummary(
            plan.epoch,
            plan.kind,
            plan.frontier,
            plan.upstream_commit_ts,
            plan.transactions,
            plan.changes,
            tuple(sorted(changed)),
            plan.versions,
            plan.time,
            {
                key.removeprefix(_TABLE): record.get("since")
                for key, record in plan.state.items()
                if key.startswith(_TABLE) and record is not None
            },
        )

    def _catalog(self, source: str, epoch: int) -> Catalog:
        with self._lock:
            known = self._catalogs.get(source)
        if known is None or not 0 <= epoch - known.epoch <= _STEPS:
            known = catalog.load(self.store, source, epoch)
        while known.epoch < epoch:
            plan = catalog.final_plan(self.store, source, known.epoch + 1)
            known = catalog.load(self.store, source, epoch) if plan is None else known.after(plan)
        with self._lock:
            self._catalogs[source] = known
        return known


def _sight(known: Catalog, table: str) -> _Sight:
    record = known.records.get(f"{_TABLE}{table}") or {}
    return _Sight(known.epoch, record.get("since"), record.get("state") == "live")


def _intervals(
    sights: Sequence[_Sight], reach: Reach | None, spell: Callable[[int], str]
) -> list[ReadableInterval]:
    """Join the marks at which the table has the same `since` into intervals; the newest first.

    History before the source's reach is gone, so an interval begins after it, or is gone too.
    """
    found: list[ReadableInterval] = []
    first = -1 if reach is None else reach.time
    for since, group in groupby((each for each in sights if each.is_named), key=lambda each: each.since):
        last = list(group)[-1]
        if since is not None and (last.mark is None or last.mark.time > first):
            until = None if last.mark is None else last.mark.frontier
            begins = spell(max(since, first + 1))
            found.append(ReadableInterval(begins, last.epoch, until, last.epoch == sights[-1].epoch))
    return found[::-1]
