"""The details of a lake that its status does not hold: the newest marks, and the columns of a table.

They are read from plans and from the catalog, small JSON records that never change once they are written, so
each is read once and remembered. Plans older than the last checkpoint are cleaned up by a run: of those marks
nothing is told here. Neither Arrow nor delta-rs is loaded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from headrace.lake.format import layout
from headrace.lake.log import catalog
from headrace.lake.log.catalog import Catalog
from headrace.lake.store.contract import Store
from headrace.lake.store.many import at_once

MOST_MARKS = 200
_REMEMBERED = 4 * MOST_MARKS
_STEPS = 20  # plans that are folded one by one before the catalog is read anew


@dataclass(frozen=True, slots=True)
class MarkSummary:
    """A mark, as its plan tells it."""

    epoch: int
    kind: str
    frontier: str
    committed_at: str | None  # the latest commit in it, by the source's clock
    transactions: int
    changes: int
    tables: tuple[str, ...]  # whose rows it changed
    versions: Mapping[str, int]  # of the Delta tables that are exact at it


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """A column of a mirrored table."""

    name: str
    source_type: str
    nullable: bool
    in_key: bool


@dataclass(slots=True)
class Details:
    """The details of one lake; any thread may ask."""

    store: Store
    _marks: OrderedDict[tuple[str, int], MarkSummary] = field(default_factory=OrderedDict)
    _catalogs: dict[str, Catalog] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def marks(self, source: str, newest: int, count: int = MOST_MARKS) -> Sequence[MarkSummary]:
        """The newest marks, the newest first, as far as their plans are there."""
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
        """The columns of a table as of a mark; none where it is not mirrored."""
        record = self._catalog(source, epoch).records.get(f"table/{table}")
        if not isinstance(record, dict):
            return ()
        schema: Mapping[str, Any] = record.get("schema", {})
        key = schema.get("key", ())
        return [
            ColumnSummary(
                str(column.get("name")),
                str(column.get("source_type")),
                bool(column.get("nullable")),
                column.get("name") in key,
            )
            for column in schema.get("columns", ())
        ]

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
