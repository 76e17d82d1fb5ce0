"""The marks that are there: kept ones, and those that were thinned out and whose files are still to be read.

    kept       the log of the marks holds its file
    gone       the log holds it no more, and its file is there, for the grace time

A reader may have opened either, so that the sweep takes nothing that one of them names. Marks that are young,
from less than the grace time ago, are left out: nothing that they name was removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Any

from headrace.core.names import TableName
from headrace.lake.format import datafile, layout
from headrace.lake.log.marks import MARKS, Marks
from headrace.lake.log.table import LakeTable
from headrace.lake.retain import mark_files
from headrace.lake.store.contract import Store


@dataclass(frozen=True, slots=True)
class There:
    """The marks that are there: those that are kept, and those that went less than a grace time ago."""

    old: tuple[int, ...]  # epochs of kept marks from before the time in which nothing is removed
    gone: tuple[int, ...]  # epochs of marks that are no longer kept
    versions: Mapping[str, Collection[int]]  # of each table, what all of those name


def marks_there(store: Store, source: str, before: datetime) -> There:
    """Find every mark of which a file is there, but for those published after `before`."""
    marks = Marks(store, source)
    kept = marks.kept()
    first = mark_files.first_young(kept, before)
    old = list(takewhile(lambda mark: mark.epoch < first, kept))
    versions: dict[str, set[int]] = {}
    for mark in old:
        _add(source, mark.versions.items(), versions)
    epochs = {mark.epoch for mark in old}
    gone: set[int] = set()
    for row in _left_behind(marks.table, first):
        _add(source, row["versions"], versions)
        gone.update({row["epoch"]} - epochs)
    return There(tuple(sorted(epochs)), tuple(sorted(gone)), versions)


def _add(source: str, named: Iterable[tuple[str, int]], versions: dict[str, set[int]]) -> None:
    for name, version in named:
        folder = layout.table_folder(source, TableName.parse(name))
        versions.setdefault(folder, set()).add(version)


def _left_behind(table: LakeTable, first: int) -> Iterator[dict[str, Any]]:
    """The marks in files that the log holds no more and that are still there, but for young ones."""
    live = table.live()
    for key in table.store.list(table.folder):
        path = key.removeprefix(f"{table.folder}/")
        left = path.endswith(".parquet") and "/" not in path and path not in live
        if left and not mark_files.young(path, first):
            yield from datafile.read(table.store, table.folder, path, schema=MARKS).to_pylist()
