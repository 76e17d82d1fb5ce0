"""The catalogs of a lake's marks, remembered by whoever reads it for longer than one look.

A catalog is the fold of up to a hundred plans (`headrace.lake.log.catalog`). Of a mark it is always the same,
and somebody who goes through the history of a lake comes to the same few marks again and again, in a cut each
time. A lake that was restored may have another plan at an epoch: a mark is known by its plan as well.

One for each `Lake`, which its cuts share. It keeps so many records, and lets go of the catalog first that was
asked for the longest time ago. Nobody may write into what it gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.lake.log import catalog
from headrace.lake.log.marks import Mark
from headrace.lake.store.contract import Store

RECORDS = 10_000  # a kilobyte or two each


class Catalogs:
    """The records of each source at its marks."""

    def __init__(self, store: Store, most: int = RECORDS) -> None:
        self._store = store
        self._most = most
        self._kept: dict[tuple[str, int, str], Mapping[str, Any]] = {}  # by the last use

    def at(self, source: str, mark: Mark) -> Mapping[str, Any]:
        """The source's records as of a mark of it."""
        named = (source, mark.epoch, mark.plan_id)
        records = self._kept.pop(named, None)
        if records is None:
            records = catalog.load(self._store, source, mark.epoch).records
        self._kept[named] = records
        self._shrink()
        return records

    def _shrink(self) -> None:
        held = sum(map(len, self._kept.values()))
        while held > self._most and len(self._kept) > 1:
            held -= len(self._kept.pop(next(iter(self._kept))))
