"""The Delta tables of one source in the lake, each opened once, and the facts about their files.

    table(folder)     the handle, which reads on from where it was
    ranges(folder)    its files with their key ranges, by which an epoch's rows are routed
    folders_of        the folders of a table, or of a new copy: rows, history and errors

This module writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from headrace.lake.format import datafile, layout
from headrace.lake.log import foreign
from headrace.lake.log.table import LakeTable, LiveFile
from headrace.lake.store.contract import Store
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.tasks.routing import WIDTH, FileRange
from headrace.pipeline.tasks.table_task import NewFile, Outcome


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a table's current state in the lake."""

    rows: int
    files: int
    size: int  # bytes


class LiveTables:
    """The tables of one source as they are in the lake now."""

    def __init__(self, store: Store, source: str) -> None:
        self.store = store
        self.source = source
        self._open: dict[str, LakeTable] = {}
        self._files: dict[str, dict[str, FileRange]] = {}  # by folder
        self._extents: dict[str, Extent] = {}  # by folder, of tables that this run has not changed

    def table(self, folder: str) -> LakeTable:
        """Return a Delta table, opened once. The acknowledging thread calls this, too."""
        if folder not in self._open:
            self._open[folder] = foreign.open_table(self.store, self.source, folder)
        return self._open[folder]

    def extent(self, folder: str) -> Extent:
        """Count the rows of a table, its files and their bytes."""
        if folder in self._files:
            return _extent(self._files[folder].values())
        if folder not in self._extents:  # not changed in this run, so the log's figures stay true
            self._extents[folder] = _extent(self.table(folder).files().values())
        return self._extents[folder]

    def ranges(self, folder: str) -> dict[str, FileRange]:
        """Return the files of a current state, with their key ranges."""
        if folder not in self._files:
            live = self.table(folder).files()
            self._files[folder] = {path: self._range_of(folder, file) for path, file in live.items()}
        return self._files[folder]

    def move_on(self, folder: str, outcome: Outcome) -> None:
        """Note a task's changes to a current state, once their epoch is published."""
        known = self.ranges(folder)
        for path in outcome.remove:
            known.pop(path, None)
        known.update({new.file.path: _range(new) for new in outcome.add})
        known.update({path: replace(known[path], vector=vector) for path, vector in outcome.vectors})

    def leave(self, folder: str) -> None:
        """Forget a table that no later mark names; if it comes back, its files are listed anew."""
        self._files.pop(folder, None)
        self._extents.pop(folder, None)

    def forget(self, folder: str) -> None:
        """Forget the files of a folder: they are gone."""
        for path in [path for path in tuple(self._open) if _lies_in(path, folder)]:
            self._open.pop(path)
        for path in [path for path in (*self._files, *self._extents) if _lies_in(path, folder)]:
            self.leave(path)

    def _range_of(self, folder: str, file: LiveFile) -> FileRange:
        # A file that another program rewrote carries no range: any key may lie in it.
        low, high = datafile.read_range(self.store, folder, file.path) or (b"", b"\xff" * WIDTH)
        return FileRange(file.path, file.size, file.rows, low, high, file.vector)


def _extent(files: Iterable[FileRange | LiveFile]) -> Extent:
    rows = count = size = 0
    for file in files:
        rows, count, size = rows + file.alive, count + 1, size + file.size
    return Extent(rows, count, size)


def _lies_in(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")


def _range(new: NewFile) -> FileRange:
    return FileRange(new.file.path, new.file.size, new.file.rows, new.low, new.high, new.file.vector)


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of a table's rows, history and errors."""

    rows: str
    history: str
    errors: str


def folders_of(source: str, record: TableRecord) -> Folders:
    if record.copy_id is not None:
        folder = layout.staged_folder(source, record.copy_id)
        return Folders(f"{folder}/rows", f"{folder}/history", f"{folder}/errors")
    return Folders(
        layout.table_folder(source, record.name),
        layout.history_folder(source, record.name, record.schema.version),
        layout.errors_folder(source),
    )
