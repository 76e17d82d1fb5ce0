"""Small files put together: of tables, of their histories, of errors. The survey, and the task.

    survey    Delta's logs ──► bundles of neighbours        in a thread, nothing is changed
    bundled   a bundle ──► one file, or a few               a task: on Spark where there is much, else here

Files of a table are put together in the order of their keys and keep their ranges, so that routing finds them
as before; those of history in the order of `_time`, so that what lies outside of the times wanted is skipped
as before. A bundle holds some megabytes: a task's memory is bounded by it.

A stream epoch may have removed one of the files meanwhile: then that bundle is dropped, and its new file is
an orphan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headrace.lake.format import datafile, layout
from headrace.lake.format.plan import DataFile
from headrace.lake.format.vector import FileRows
from headrace.lake.log import errors_table, histories, horizon
from headrace.lake.log.table import LakeTable, figures
from headrace.lake.retain import compaction
from headrace.lake.retain.compaction import SmallFile
from headrace.lake.store.contract import Store
from headrace.pipeline.tasks.files import Writing, write_sorted
from headrace.pipeline.tasks.routing import WIDTH
from headrace.pipeline.tasks.table_task import LakeAddress, NewFile, TableTask, pack, unpack


@dataclass(frozen=True, slots=True)
class Bundle:
    """Files that become one; `table` where they hold a current state, else `order` says how rows stand."""

    epoch: int
    lake: LakeAddress
    folder: str
    live: tuple[FileRows, ...]
    size: int
    table: TableTask | None = None
    order: tuple[str, ...] = ()
    errors: bool = False  # of `errors/`, where rows that cancel out go
    until: int | None = None  # up to this time also those that did so later: they hold all of their keys

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(file.path for file in self.live)


@dataclass(frozen=True, slots=True)
class BundleResult:
    """The outcome of a bundle; of a current state the new files' ranges are known."""

    bundle: Bundle
    keyed_files: tuple[NewFile, ...] = ()
    plain: tuple[DataFile, ...] = ()

    @property
    def files(self) -> tuple[DataFile, ...]:
        return self.plain or tuple(new.file for new in self.keyed_files)


@dataclass(frozen=True, slots=True)
class Survey:
    """The places where small files are looked for."""

    source: str
    epoch: int
    lake: LakeAddress
    tables: tuple[TableTask, ...]
    least: int

    def bundles(self) -> list[Bundle]:
        """All that is worth it, as of now."""
        store = self.lake.open()
        return list(self._find_bundles(store))

    def _find_bundles(self, store: Store) -> Iterator[Bundle]:
        for task in self.tables:
            yield from self._state(store, task)
            for folder in _histories(task.history_folder):
                yield from self._log(store, folder)
        yield from self._errors(store, layout.errors_folder(self.source))

    def _state(self, store: Store, task: TableTask) -> Iterator[Bundle]:
        table = LakeTable(store, task.folder)
        if table.refresh() < 0:
            return
        live = table.files().values()
        if sum(file.size < compaction.SMALL for file in live) < self.least:
            return
        lows = {file.path: _low(store, task.folder, file.path) for file in live}
        ordered = sorted(live, key=lambda file: (lows[file.path], file.path))
        smalls = (
            replace(_small(store, task.folder, f.path, f.size, f.rows), vector=f.vector) for f in ordered
        )
        for group in compaction.groups(smalls, self.least):
            yield self._bundle(task.folder, group, table=task)

    def _log(self, store: Store, folder: str) -> Iterator[Bundle]:
        table = LakeTable(store, folder)
        if table.refresh() < 0:
            return
        order = _order(table)
        files = figures(table, "size_bytes", f"min.{order[0]}")
        files.sort(key=lambda file: (file.get(f"min.{order[0]}") or 0, file["path"]))
        if sum(file["size_bytes"] < compaction.SMALL for file in files) < 2 * self.least:
            return
        described = ((file["path"], file["size_bytes"], file["num_records"] or 0) for file in files)
        smalls = (_small(store, folder, *file) for file in described)
        for group in compaction.groups(smalls, 2 * self.least):
            yield self._bundle(folder, group, order=order)

    def _errors(self, store: Store, folder: str) -> Iterator[Bundle]:
        """Small files, in the order of keys; and with all that is of their keys, files that are spent.

        A file is spent when all that it takes back was taken back before history begins.
        """
        table = LakeTable(store, folder)
        if table.refresh() < 0:
            return
        found = horizon.read(store, self.source)
        until = None if found is None else found.gone_before
        files = table.describe().to_pylist()
        files.sort(key=lambda file: (file.get("min.table") or "", file.get("min.key") or "", file["path"]))
        spent = [] if until is None else [file for file in files if _is_spent(file, until)]
        meeting = [file for file in files if any(_meet(file, other) for other in spent)]
        if meeting:
            bundle = self._bundle(folder, [_small_file(file) for file in meeting])
            yield replace(bundle, errors=True, until=until)
        rest = [file for file in files if file not in meeting]
        if sum(file["size_bytes"] < compaction.SMALL for file in rest) >= 2 * self.least:
            smalls = (
                _small(store, folder, each.path, each.size, each.rows) for each in map(_small_file, rest)
            )
            for group in compaction.groups(smalls, 2 * self.least):
                yield replace(self._bundle(folder, group), errors=True)

    def _bundle(
        self,
        folder: str,
        group: Sequence[SmallFile],
        *,
        table: TableTask | None = None,
        order: tuple[str, ...] = (),
    ) -> Bundle:
        live = tuple(FileRows(file.path, file.vector) for file in group)
        size = sum(file.size for file in group)
        return Bundle(self.epoch, self.lake, folder, live, size, table, order)


def _histories(folder: str) -> tuple[str, ...]:
    """The history of a table, and the one before, which may have got files since it was put in order."""
    root, _, number = folder.rpartition("/")
    return (folder,) if number == "1" else (folder, f"{root}/{int(number) - 1}")


def batches(bundles: Iterable[Bundle], most: int) -> Iterator[list[Bundle]]:
    """The bundles in portions of about so many bytes, each for an epoch of its own."""
    portion: list[Bundle] = []
    for bundle in bundles:
        if portion and sum(each.size for each in portion) + bundle.size > most:
            yield portion
            portion = []
        portion.append(bundle)
    if portion:
        yield portion


def write_bundle(item: bytes) -> bytes:
    """The task: read the files of a bundle, write their rows as one."""
    bundle = unpack(item, Bundle)
    store = bundle.lake.open()
    if bundle.table is not None:
        rows = _rows(store, bundle, bundle.table.schema.arrow())
        return pack(
            BundleResult(bundle, keyed_files=write_sorted(Writing(store, bundle.epoch), bundle.table, rows))
        )
    if bundle.errors:
        parts = errors_table.rewritten(store, bundle.folder, bundle.paths, bundle.until)
        written = (
            errors_table.write(store, bundle.folder, layout.file_name(bundle.epoch), rows) for rows in parts
        )
        return pack(BundleResult(bundle, plain=tuple(written)))
    table = LakeTable(store, bundle.folder)
    table.refresh()
    rows = _rows(store, bundle, table.schema())
    rows = rows.sort_by([(name, "ascending") for name in bundle.order])
    known = [datafile.read_ids(store, bundle.folder, path) for path in bundle.paths]
    named = next((ids for ids in known if ids), {})
    ids = [named[column] for column in rows.column_names] if named else []
    name = layout.file_name(bundle.epoch)
    return pack(BundleResult(bundle, plain=(datafile.write(store, bundle.folder, name, rows, ids=ids),)))


def outline(bundle: Bundle) -> Bundle:
    """The bundle without what its task does not need."""
    return bundle if bundle.table is None else replace(bundle, table=replace(bundle.table, handoff=None))


def _rows(store: Store, bundle: Bundle, schema: pa.Schema) -> pa.Table:
    return pa.concat_tables(
        [datafile.read(store, bundle.folder, file, schema=schema) for file in bundle.live]
    )


def _small_file(file: Mapping[str, Any]) -> SmallFile:
    return SmallFile(file["path"], file["size_bytes"], file["num_records"] or 0)


def _is_spent(file: Mapping[str, Any], until: int) -> bool:
    """Tell whether a file takes something back, and all in it is from before history begins."""
    least, latest = file.get("min.diff"), file.get("max.time")
    return least is not None and least < 0 and latest is not None and latest <= until


def _meet(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two files may hold rows of one key."""
    return all(
        (one.get(f"min.{name}") or "") <= (other.get(f"max.{name}") or "\U0010ffff")
        and (other.get(f"min.{name}") or "") <= (one.get(f"max.{name}") or "\U0010ffff")
        for name in ("table", "key")
    )


def _order(table: LakeTable) -> tuple[str, ...]:
    """Order the rows of a history as they stand in a file."""
    own = histories.HistoryPart(table, table.schema(), (), (None, 0)).own
    return (own["_time"], own["_ordinal"], own["_diff"])


def _small(store: Store, folder: str, path: str, size: int, rows: int) -> SmallFile:
    """Read what decides about a file; a large one is not looked into."""
    return SmallFile(
        path, size, rows, datafile.read_bytes(store, folder, path) if size < compaction.SMALL else 0
    )


def _low(store: Store, folder: str, path: str) -> bytes:
    found = datafile.read_range(store, folder, path)
    return b"" if found is None else found[0][:WIDTH]
