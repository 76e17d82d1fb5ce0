"""Tables whose columns changed, out of the lake: their rows are written again under the columns of today.

    the old version of the folder ─► bundles of its files ─► `tasks.convert`, on Spark ─► files of the folder

The rows are those of the epoch in which the table left the marks (`stream.rewriting`), so the stream holds
all that came later, and nothing that came before. The source is not read. What was not finished when a run
ends is begun again by the next; files of an unfinished table are orphans.

A version that cannot be read any more (a retention of minutes) is no misfortune: the table is copied from
its source then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from headrace.core.errors import Definite, ShapeChanged
from headrace.core.failpoint import failpoint
from headrace.core.handoff import ByPosition
from headrace.core.names import TableName
from headrace.lake.log.table import LakeTable, LiveFile
from headrace.pipeline.copy.context import Copied, Progress, Refused, Site
from headrace.pipeline.copy.thread import CopyThread
from headrace.pipeline.state.records import OldRows, TableRecord
from headrace.pipeline.tasks.convert import Converted, ConvertTask, convert
from headrace.pipeline.tasks.table_task import TableTask, pack, unpack
from headrace.spark.jobs import Jobs

BUNDLE_BYTES = 32 << 20  # of files, for one task
ROUND_TASKS = 16  # between two rounds it can be stopped


@dataclass(frozen=True, slots=True)
class _Table:
    """A table, and what it is made of again."""

    record: TableRecord
    old: OldRows
    task: TableTask


class Rewriting(CopyThread):
    """One attempt to write the rows of some tables again, one table after another."""

    reads_source = False

    def __init__(
        self,
        site: Site,
        records: Sequence[TableRecord],
        tasks: Callable[[TableRecord], TableTask],
        fit: Callable[[int], Jobs],
    ) -> None:
        super().__init__(site, frozenset(record.name for record in records))
        self._tables = [_Table(each, each.old_rows, tasks(each)) for each in records if each.old_rows]
        self._fit = fit

    def _attempt(self) -> None:
        for table in self._tables:
            name = table.record.name
            failpoint("evolve.rewrite.before", str(name))
            try:
                copied = self._rewritten(table)
            except Definite as error:
                self.site.finished.put(Refused(name, table.task.folder, _unreadable(name, error)))
                continue
            failpoint("evolve.rewrite.after", str(name))
            if copied is not None:
                self.site.finished.put(copied)

    def _rewritten(self, table: _Table) -> Copied | None:
        """The table under its new columns; None where it is not wanted any more."""
        files = LakeTable(self.site.lake.open(), table.task.folder).at(table.old.version).files().values()
        count = sum(file.rows for file in files)
        progress = Progress(count, sum(file.size for file in files))
        self.site.progress[table.record.name] = progress
        jobs, found = self._fit(count), Converted((), 0)
        old = replace(table.task, schema=table.old.schema)
        tasks = (self._task(table, old, bundle) for bundle in _bundles(files))
        while batch := list(islice(tasks, ROUND_TASKS)):
            self.site.check_stop()
            if table.record.name not in self.names:
                return None
            for answer in jobs.run(convert, [pack(task) for task in batch]):
                done = unpack(answer, object)
                if isinstance(done, Definite):
                    raise done
                assert isinstance(done, Converted)
                found = Converted(found.files + done.files, found.rows + done.rows)
            progress.rows_done = found.rows
        progress.bytes_done = progress.bytes_known
        return _copied(table, found)

    def _task(self, table: _Table, old: TableTask, paths: tuple[str, ...]) -> ConvertTask:
        site = self.site
        return ConvertTask(site.epoch, site.lake, old, table.task, table.old.conversion, paths)


def _bundles(files: Iterable[LiveFile]) -> Iterator[tuple[str, ...]]:
    """The files by their names' order, some megabytes at a time."""
    paths: list[str] = []
    size = 0
    for file in sorted(files, key=lambda file: file.path):
        if paths and size + file.size > BUNDLE_BYTES:
            yield tuple(paths)
            paths, size = [], 0
        paths.append(file.path)
        size += file.size
    if paths:
        yield tuple(paths)


def _copied(table: _Table, found: Converted) -> Copied:
    assert table.record.applied is not None
    return Copied(
        name=table.record.name,
        folder=table.task.folder,
        files=found.files,
        rows=found.rows,
        errors=(),
        raw_columns=(),
        handoff=ByPosition(table.record.applied),
    )


def _unreadable(name: TableName, error: Definite) -> ShapeChanged:
    return ShapeChanged(
        "TABLE_NOT_REWRITTEN",
        f"the rows that {name} had before its columns changed can't be read any more",
        detail=f"{error.code}: {error.primary}",
        hint=f"headrace tables resync {name} copies it from the source; a run does so by itself",
    )
