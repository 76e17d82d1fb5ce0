"""Small files put together: of tables, of their histories, of errors. The survey, and the task.

    survey    Delta's logs ──► bundles of neighbours        in a thread, nothing is changed
    bundled   a bundle ──► one file, or a few               a task: on Spark where there is much, else here

Files of a table are put together in the order of their keys and keep their ranges, so that routing finds them
as before; those of history in the order of `_time`, so that what lies outside of the times wanted is skipped
as before. A bundle holds some megabytes: a task's memory is bounded by it.

A stream epoch may have removed one of the files meanwhile: then that bundle is dropped, and its new file is
an orphan. If it only deleted rows of them, the new file gets a vector that deletes those, too (`carry_over`).

A worn file, of which a vector deletes many rows, is a bundle by itself. It takes back what smaller files hold
between its first and last key, as in `merge_vectors`; not from those that the stream has merged meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.columns import Ints
from headrace.lake.format import datafile, layout
from headrace.lake.format.plan import DataFile
from headrace.lake.format.vector import FileRows, Vector, file_rows
from headrace.lake.log import errors_table, histories, horizon
from headrace.lake.log.table import LakeTable, LiveFile, figures
from headrace.lake.retain import compaction
from headrace.lake.retain.compaction import SmallFile
from headrace.lake.store.contract import Store
from headrace.pipeline.tasks.files import Writing, write_sorted
from headrace.pipeline.tasks.merge_choice import RULES, FileLoad, is_worn
from headrace.pipeline.tasks.merge_vectors import cached_rows, deleted_positions
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
    smaller: tuple[FileRows, ...] = ()  # files that stay, without their rows between these two keys
    ends: tuple[bytes, bytes] = (b"", b"")

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(file.path for file in self.live)


@dataclass(frozen=True, slots=True)
class BundleResult:
    """The outcome of a bundle; of a current state the new files' ranges are known."""

    bundle: Bundle
    keyed_files: tuple[NewFile, ...] = ()
    plain: tuple[DataFile, ...] = ()
    moves: tuple[tuple[str, Vector], ...] = ()  # the rows of smaller files that are in the new ones

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
    plain: bool = False  # leave no file with a vector

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
        worn = {file.path for file in live if self._is_worn(file)}
        if sum(file.size < compaction.SMALL for file in live) < self.least and not worn:
            return
        ends = {file.path: _ends(store, task.folder, file.path) for file in live}
        ordered = sorted(live, key=lambda file: (ends[file.path], file.path))
        smalls = (
            replace(_small(store, task.folder, f.path, f.size, f.rows), vector=f.vector) for f in ordered
        )
        bundled = set(worn)
        for group in compaction.groups(smalls, self.least):
            grouped = {file.path for file in group}
            bundled, worn = bundled | grouped, worn - grouped
            yield self._bundle(task.folder, group, table=task)
        others = [file for file in ordered if file.path not in bundled]
        claimed: bytes | None = None  # up to this key, rows of smaller files go to another bundle
        for file in (each for each in ordered if each.path in worn):
            low, high = ends[file.path]
            free = not self.plain and (claimed is None or claimed < low)
            smaller = [file_rows(each) for each in others if free and _is_within(each, file, ends)]
            claimed = high if claimed is None else max(claimed, high)
            own = self._bundle(task.folder, (_small_of(file),), table=task)
            yield replace(own, smaller=tuple(smaller), ends=(low, high))

    def _is_worn(self, file: LiveFile) -> bool:
        if file.vector is None:
            return False
        return self.plain or is_worn(FileLoad(file.size, file.rows, file.vector.rows, 0), RULES["auto"])

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


def write_bundle(item: bytes) -> bytes:
    """The task: read the files of a bundle, write their rows as one."""
    bundle = unpack(item, Bundle)
    store = bundle.lake.open()
    if bundle.table is not None:
        rows, moved = [_rows(store, bundle, bundle.table.schema.arrow())], []
        for file in bundle.smaller:
            some, positions = _between(store, bundle.table, file, bundle.ends)
            rows.append(some.cast(rows[0].schema))
            moved += [(file.path, Vector.of(positions))] if len(positions) else []
        new = write_sorted(Writing(store, bundle.epoch), bundle.table, pa.concat_tables(rows))
        return pack(BundleResult(bundle, keyed_files=new, moves=tuple(moved)))
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


def _small_of(file: LiveFile) -> SmallFile:
    return SmallFile(file.path, file.size, file.rows, vector=file.vector)


def _is_within(file: LiveFile, larger: LiveFile, ends: Mapping[str, tuple[bytes, bytes]]) -> bool:
    """Tell whether a file is much smaller than another, and may hold keys between its ends."""
    (low, high), (least, most) = ends[larger.path], ends[file.path]
    return file.size < larger.size // 2 and least <= high and low <= most


def _between(
    store: Store, task: TableTask, file: FileRows, ends: tuple[bytes, bytes]
) -> tuple[pa.Table, Ints]:
    """The rows of a file between two keys that are not deleted, and their positions."""
    rows = cached_rows(store, task, file.path)
    some = rows.between(*ends)
    numbers = np.arange(some.start, some.stop)
    numbers = numbers[~np.isin(rows.positions(numbers), deleted_positions(task, file.path, file.vector))]
    return rows.take(numbers), rows.positions(numbers)


def carry_over(store: Store, result: BundleResult, live: Mapping[str, Vector | None]) -> BundleResult | None:
    """The result of a bundle without the rows that were deleted meanwhile; None if a file of it is gone.

    `live` are the table's files with their vectors as they are now. The deleted rows are found in the new
    files by their keys. The rows of a smaller file that is gone are in another file by now: all of them go.
    """
    task, moves = result.bundle.table, dict(result.moves)
    assert task is not None
    if not set(result.bundle.paths) <= live.keys():
        return None
    codes = [pa.array([], pa.large_binary())]
    for file in (*result.bundle.live, *(file for file in result.bundle.smaller if file.path in moves)):
        if file.path in live:
            now = deleted_positions(task, file.path, live[file.path])
            gone = np.setdiff1d(now, deleted_positions(task, file.path, file.vector))
        else:
            gone = deleted_positions(task, file.path, moves.pop(file.path))
        if len(gone):
            rows = cached_rows(store, task, file.path)
            codes.append(rows.codes(rows.numbers(gone)))
    gone_keys, files = pa.concat_arrays(codes), result.keyed_files
    if len(gone_keys):
        files = tuple(_without(store, task, files, gone_keys))
    return replace(result, keyed_files=files, moves=tuple(moves.items()))


def _without(store: Store, task: TableTask, files: Iterable[NewFile], gone: pa.Array) -> Iterator[NewFile]:
    """New files whose vectors delete the rows under these keys; none that has no other rows."""
    for new in files:
        positions = cached_rows(store, task, new.file.path).find(gone).positions
        if not len(positions):
            yield new
        elif len(positions) < new.file.rows:
            yield replace(new, file=replace(new.file, vector=Vector.of(positions)))


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


def _ends(store: Store, folder: str, path: str) -> tuple[bytes, bytes]:
    """The keys between which a file's rows lie; any key may lie in one that another program wrote."""
    low, high = datafile.read_range(store, folder, path) or (b"", b"\xff" * WIDTH)
    return low[:WIDTH], high[:WIDTH]
