"""A merge with deletion vectors: the events of a whole table, without a read of any file as a whole.

    keys of the events ─► routes ─► row cache ─► the rows that are there, each with its file and position
                                                   │ fold, history, vouching: as in `merge_keyed`
    the rows that stay ─► one new file             ▼
    the positions that go ─► `merge_choice`: a vector, or the file is written anew

A group is the whole table, so whoever holds a row is found here, and no key needs a home.

**A file that is written anew** takes in its share of the rows that stay, and what smaller files hold between
its first and last key: updated rows go back to where their neighbours are. Else rows of random keys would
collect in small files that each cover all keys, and each lookup and each query would look into all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from headrace.core.columns import Flags, Ints, column, wide_schema
from headrace.core.keycode import keycode
from headrace.lake.format import datafile
from headrace.lake.format.vector import FileRows, Vector
from headrace.lake.store.contract import Store
from headrace.pipeline.tasks.files import Writing, write_sorted
from headrace.pipeline.tasks.merge_choice import RULES, FileLoad, FileWay, choose
from headrace.pipeline.tasks.merge_keyed import MergedRows, fold_onto
from headrace.pipeline.tasks.routing import FileRange, prefixes
from headrace.pipeline.tasks.row_cache import DataFileName, KeyedRows, cache_of
from headrace.pipeline.tasks.table_task import NewFile, Outcome, TableTask

_NONE = np.empty(0, np.int64)
_AT_ONCE = 3  # files that are read into the cache
_ON_THE_DISK = 0.5  # so much of their size in memory rows take in a file, about


@dataclass(slots=True)
class _TableFile:
    """A file of the table, as the merge finds it and changes it."""

    file: FileRange
    rows: KeyedRows | None = None
    dead: Ints | None = None  # its vector's positions so far
    losses: Ints = field(default_factory=lambda: _NONE)  # positions that go by this epoch

    @property
    def rows_left(self) -> int:
        """The number of rows that stay in it."""
        return self.file.alive - len(self.losses)


class TableFiles:
    """The files of a table by number, each read when it is first asked for."""

    def __init__(self, store: Store, task: TableTask) -> None:
        self._store = store
        self._task = task
        self._schema = wide_schema(task.schema.arrow())
        self._files = [_TableFile(file) for file in task.routes.files]

    def __iter__(self) -> Iterator[_TableFile]:
        return iter(self._files)

    def find(self, codes: pa.Array) -> pa.Table:
        """The rows under these keys, and note that they go."""
        places = self._task.routes.places(prefixes(codes))
        found = [self._schema.empty_table()]
        numbers = np.unique(places.files) if self._files else _NONE
        with ThreadPoolExecutor(_AT_ONCE) as pool:  # after a restart, all may have to be read
            list(pool.map(self.rows, (self._files[number] for number in numbers)))
        for number in numbers:
            each = self._files[number]
            own = codes.take(pa.array(places.rows[places.files == number]))
            matches = self.rows(each).find(own)
            alive = ~np.isin(matches.positions, self.dead(each))
            if alive.any():
                found.append(self.rows(each).take(matches.numbers[alive]))
                each.losses = np.concatenate([each.losses, matches.positions[alive]])
        return pa.concat_tables(found)

    def rows(self, each: _TableFile) -> KeyedRows:
        """All rows that stand in a file, those that its vector deletes among them."""
        if each.rows is None:
            each.rows = cached_rows(self._store, self._task, each.file.path)
        return each.rows

    def dead(self, each: _TableFile) -> Ints:
        """The positions that a file's vector deletes."""
        if each.dead is None:
            each.dead = deleted_positions(self._task, each.file.path, each.file.vector)
        return each.dead

    def alive(self, each: _TableFile, numbers: range | None = None) -> Ints:
        """The rows of a file that stay, all or those among some."""
        rows = self.rows(each)
        some = np.arange(rows.rows.num_rows) if numbers is None else np.arange(numbers.start, numbers.stop)
        return some[~np.isin(rows.positions(some), np.concatenate([self.dead(each), each.losses]))]

    def take(self, each: _TableFile) -> pa.Table:
        """The rows of a file that stay."""
        return self.rows(each).take(self.alive(each))

    def move_out(self, each: _TableFile, low: bytes, high: bytes) -> pa.Table:
        """Take the rows between two keys out of a file."""
        numbers = self.alive(each, self.rows(each).between(low, high))
        each.losses = np.concatenate([each.losses, self.rows(each).positions(numbers)])
        return self.rows(each).take(numbers)

    def vector(self, each: _TableFile) -> Vector:
        """The vector of a file from now on."""
        return Vector.of(np.concatenate([self.dead(each), each.losses]))


def deleted_positions(task: TableTask, path: str, vector: Vector | None) -> Ints:
    """The positions that the vector of a file deletes."""
    return _NONE if vector is None else vector.positions(f"{task.folder}/{path}")


def cached_rows(store: Store, task: TableTask, path: str) -> KeyedRows:
    """All rows that stand in a data file, from the row cache of this machine or read into it."""
    schema = wide_schema(task.schema.arrow())
    name = DataFileName(store.url, task.folder, path, schema, task.schema.key)
    cache = cache_of(task.row_cache)
    if cache is not None and (found := cache.get(name)) is not None:
        return found
    made = KeyedRows.of(datafile.read(store, task.folder, FileRows(path), schema=schema), task.schema.key)
    return made if cache is None else cache.put(name, made)


def merge_vectors(writing: Writing, task: TableTask, events: pa.Table) -> Outcome:
    """The events of a whole table."""
    files = TableFiles(writing.store, task)
    present = files.find(column(events, "_key").unique())
    merged = fold_onto(writing, task, present, events)
    if isinstance(merged, Outcome):
        return merged
    # Rows whose events cancel out are as they were, and move to the new file like all that were looked up.
    new = pa.concat_tables([merged.rest, merged.stay, merged.gone_rows])
    return _write_files(writing, task, files, merged, new)


def _write_files(
    writing: Writing, task: TableTask, files: TableFiles, merged: MergedRows, new: pa.Table
) -> Outcome:
    every = list(files)
    loads = [FileLoad(e.file.size, e.file.rows, e.file.rows - e.file.alive, len(e.losses)) for e in every]
    ways = choose(loads, int(new.nbytes * _ON_THE_DISK), RULES[task.merge_rule])
    absorbed = [files.take(each) for each, way in zip(every, ways, strict=True) if way is FileWay.ABSORB]
    whole = [FileWay.ABSORB, FileWay.REWRITE, FileWay.EMPTY]
    others = [each for each, way in zip(every, ways, strict=True) if way not in whole]
    added: list[NewFile] = []
    for each, way in zip(every, ways, strict=True):
        if way is FileWay.REWRITE:
            rows, new = _gather_rows(task, files, each, others, new)
            added += write_sorted(writing, task, rows)
    added += write_sorted(writing, task, pa.concat_tables([*absorbed, new]))
    changed = [each for each in others if len(each.losses)]
    return replace(
        merged.outcome,
        add=tuple(added),
        remove=tuple(
            each.file.path
            for each, way in zip(every, ways, strict=True)
            if way in whole or (each in changed and not each.rows_left)
        ),
        vectors=tuple((each.file.path, files.vector(each)) for each in changed if each.rows_left),
        file_ways=_counts(ways),
        rows=merged.growth,
    )


def _gather_rows(
    task: TableTask, files: TableFiles, each: _TableFile, others: list[_TableFile], new: pa.Table
) -> tuple[pa.Table, pa.Table]:
    """The rows of a file with all that belongs between them, and the new rows that do not."""
    low, high = each.file.low, each.file.high
    mine = _between(task, new, low, high)
    moved = [
        files.move_out(other, low, high)
        for other in others
        if other.file.size < each.file.size // 2 and other.file.low <= high and low <= other.file.high
    ]
    rows = pa.concat_tables([files.take(each), *moved, new.filter(pa.array(mine))])
    return rows, new.filter(pa.array(~mine))


def _between(task: TableTask, rows: pa.Table, low: bytes, high: bytes) -> Flags:
    """Tell of each row whether its key lies between these, as `routing` compares them."""
    keys = prefixes(keycode([rows.column(name) for name in task.schema.key]))
    bounds = np.array([low, high], keys.dtype)
    return np.asarray((keys >= bounds[0]) & (keys <= bounds[1]))


def _counts(ways: list[FileWay]) -> tuple[tuple[str, int], ...]:
    return tuple((way.value, ways.count(way)) for way in FileWay if way in ways)
