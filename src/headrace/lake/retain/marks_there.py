"""The marks that are there: kept ones, and those that were thinned out and whose files are still to be read.

    kept       the log of the marks holds its file
    gone       the log holds it no more, and its file is there, for the grace time

A reader may have opened either, so that the sweep takes nothing that one of them names. Marks that are young,
from less than the grace time ago, are left out: nothing that they name was removed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.names import TableName
from headrace.lake.format import datafile, layout
from headrace.lake.format.vector import FileRows
from headrace.lake.log.marks import MARKS, Marks
from headrace.lake.log.table import LakeTable
from headrace.lake.retain import mark_files
from headrace.lake.store.contract import Store

_PAIRS = pa.schema([("name", pa.string()), ("version", pa.int64()), ("epoch", pa.int64())])


@dataclass(frozen=True, slots=True)
class There:
    """The marks that are there: those that are kept, and those that went less than a grace time ago."""

    old: tuple[int, ...]  # epochs of kept marks from before the time in which nothing is removed
    gone_epochs: tuple[int, ...]  # epochs of marks that are no longer kept
    # Of each table the versions that all of those name, each with the epoch of the last one that does.
    versions: Mapping[str, Mapping[int, int]]


def marks_there(store: Store, source: str, before: datetime) -> There:
    """Find every mark of which a file is there, but for those published after `before`."""
    marks = Marks(store, source)
    kept = marks.index()
    first = mark_files.first_young(kept, before)
    end = bisect_left(kept, first, key=lambda mark: mark.epoch)
    old = kept.between(0, end)
    epochs = old["epoch"].to_pylist()
    left = [row for row in _left_behind(marks.table, first) if row["epoch"] not in set(epochs)]
    return There(
        tuple(epochs),
        tuple(sorted({row["epoch"] for row in left})),
        _versions(source, pa.concat_tables([old, pa.Table.from_pylist(left, schema=MARKS)])),
    )


def _versions(source: str, marks: pa.Table) -> dict[str, dict[int, int]]:
    """The versions that marks name, by the folders of tables."""
    named = pa.concat_tables(map(_pairs, marks.to_batches())) if marks.num_rows else _PAIRS.empty_table()
    newest = named.group_by(["name", "version"]).aggregate([("epoch", "max")])
    found: dict[str, dict[int, int]] = {}
    for name, version, epoch in zip(
        *(newest[column].to_pylist() for column in ("name", "version", "epoch_max")), strict=True
    ):
        found.setdefault(layout.table_folder(source, TableName.parse(name)), {})[version] = epoch
    return found


def _pairs(marks: pa.RecordBatch) -> pa.Table:
    """A row for each table that a mark names."""
    versions = marks["versions"]
    counts = np.diff(versions.offsets.to_numpy())
    start, stop = versions.offsets[0].as_py(), versions.offsets[-1].as_py()
    epochs = pa.array(np.repeat(marks["epoch"].to_numpy(), counts))
    names, numbers = (each.slice(start, stop - start) for each in (versions.keys, versions.items))
    return pa.table([names, numbers, epochs], schema=_PAIRS)


def _left_behind(table: LakeTable, first: int) -> Iterator[dict[str, Any]]:
    """The marks in files that the log holds no more and that are still there, but for young ones."""
    live = table.live()
    for key in table.store.list(table.folder):
        path = key.removeprefix(f"{table.folder}/")
        left = path.endswith(".parquet") and "/" not in path and path not in live
        if left and not mark_files.young(path, first):
            yield from datafile.read(table.store, table.folder, FileRows(path), schema=MARKS).to_pylist()
