"""The marks of a lake and their catalogs, remembered by whoever reads it for longer than one look.

A catalog is the fold of up to a hundred plans (`headrace.lake.log.catalog`). Of a mark it is always the same,
and somebody who goes through the history of a lake comes to the same few marks again and again, in a cut each
time. Somebody who follows a lake needs the next mark: its catalog is folded on from the one before. A lake
that was restored may have another plan at an epoch: a mark is known by its plan as well.

One for each `Lake`, which its cuts share, in whatever threads they are read. It keeps so many values (a
table of 1,600 columns has 30,000 of them), and lets go of the catalog first that was asked for the longest
time ago. Nobody may write into what it gives.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.lake.log import catalog
from headrace.lake.log.marks import Mark, MarkIndex, Marks
from headrace.lake.store.contract import Store

VALUES = 1_000_000  # numbers, texts and truths within records; a hundred bytes each


class Catalogs:
    """The records of each source at its marks."""

    def __init__(self, store: Store, most: int = VALUES) -> None:
        self._store = store
        self._most = most
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, int, str], _MarkRecords] = {}  # by the last use
        self._marks: dict[str, Marks] = {}

    def marks(self, source: str) -> MarkIndex:
        """The source's marks as of a look taken now."""
        with self._lock:
            marks = self._marks.setdefault(source, Marks(self._store, source))
        return marks.index()

    def at(self, source: str, mark: Mark) -> Mapping[str, Any]:
        """The source's records as of a mark of it."""
        named = (source, mark.epoch, mark.plan_id)
        with self._lock:
            known = self._kept.get(named)
        if known is None:  # two threads may read it at once, and both find the same
            records = self._load(source, mark.epoch)
            known = _MarkRecords(records, _values(records))
        with self._lock:
            self._kept.pop(named, None)
            self._kept[named] = known
            self._shrink()
        return known.records

    def _load(self, source: str, epoch: int) -> Mapping[str, Any]:
        earlier = self._earlier(source, epoch)
        found = None if earlier is None else catalog.fold(self._store, earlier, epoch)
        return (found or catalog.load(self._store, source, epoch)).records

    def _earlier(self, source: str, epoch: int) -> catalog.Catalog | None:
        """The nearest earlier catalog that is known, if its mark is still in this lake."""
        with self._lock:
            near = [named for named in self._kept if named[0] == source and named[1] < epoch]
            last = max(near, key=lambda named: named[1], default=None)
            known = None if last is None else self._kept[last]
        if last is None or known is None or epoch - last[1] > catalog.INTERVAL:
            return None
        plan = catalog.final_plan(self._store, source, last[1])
        still = plan is not None and plan.plan_id == last[2]
        return catalog.Catalog(source, last[1], known.records) if still else None

    def _shrink(self) -> None:
        held = sum(known.values for known in self._kept.values())
        while held > self._most and len(self._kept) > 1:
            held -= self._kept.pop(next(iter(self._kept))).values


@dataclass(frozen=True, slots=True)
class _MarkRecords:
    """A mark's records, and how many values are in them."""

    records: Mapping[str, Any]
    values: int


def _values(part: Any) -> int:
    if isinstance(part, Mapping):
        return sum(map(_values, part.values()))
    if isinstance(part, list):
        return sum(map(_values, part))
    return 1
