"""The rewrite of tables whose columns changed: rows of the lake are written again under the new columns.

    the old version of the folder ─► bundles of its files ─► `tasks.convert`, on Spark ─► files of the folder

The rows are those of the epoch in which the table left the marks (`stream.ddl`), so the stream holds all
later changes and no earlier ones. The source is not read. Files are rewritten in the order of their names,
some bundles at a time, and each such portion is committed with the name of its last file
(`OldRows.last_file`): there the next run goes on. Files of a portion that was not finished are orphans.

If the old version cannot be read any more (a retention of minutes), the table is copied from its source. The
same happens if a bug of ours ends the work, since it would end it in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from headrace.core.errors import Definite, HeadraceError, ShapeChanged, is_fault, place_of
from headrace.core.failpoint import failpoint
from headrace.core.handoff import ByPosition
from headrace.core.names import TableName
from headrace.core.portions import portions
from headrace.lake.format.vector import FileRows, file_rows
from headrace.lake.log.table import LakeTable, LiveFile
from headrace.pipeline.copy.context import (
    CopiedTable,
    CopyContext,
    CopyProgress,
    CopyRefused,
    CopyThread,
    RewriteDone,
)
from headrace.pipeline.state.records import OldRows, TableRecord
from headrace.pipeline.tasks.convert import ConvertedFiles, ConvertTask, convert
from headrace.pipeline.tasks.files import ROWS_PER_FILE
from headrace.pipeline.tasks.table_task import TableTask, pack, unpack
from headrace.spark.jobs import Jobs

BUNDLE_BYTES = 32 << 20  # of files, for one task
ROUND_TASKS = 8  # a portion: in between it can be stopped


@dataclass(frozen=True, slots=True)
class _Table:
    """A table, and the old rows that it is rewritten from."""

    record: TableRecord
    old: OldRows
    task: TableTask


class Rewriting(CopyThread):
    """One attempt to write the rows of some tables again, one table after another."""

    reads_source = False

    def __init__(
        self,
        site: CopyContext,
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
                for portion in self._portions(table):
                    self.site.events.put(portion)
                    failpoint("evolve.rewrite.between", str(name))
            except Exception as error:
                if not (isinstance(error, Definite) or is_fault(error)):
                    raise
                self.site.events.put(CopyRefused(name, table.task.folder, _unreadable(name, error)))
                continue
            failpoint("evolve.rewrite.after", str(name))
            if name in self.names:
                self.site.events.put(_copy_done(table))

    def _portions(self, table: _Table) -> Iterator[RewriteDone]:
        """Yield the missing portions of the table under its new columns, as long as it is wanted."""
        files = LakeTable(self.site.lake.open(), table.task.folder).at(table.old.version).files().values()
        missing = [file for file in files if file.path > table.old.last_file]
        fit, progress = self._fit(sum(file.alive for file in missing)), _progress(files)
        self.site.await_started(fit)
        jobs = self.site.beside(fit, spare=True)
        self.site.progress[table.record.name] = progress
        _advance(progress, [file for file in files if file.path <= table.old.last_file])
        bundles = _bundles(missing)
        while portion := list(islice(bundles, ROUND_TASKS)):
            self.site.check_stop()
            if table.record.name not in self.names:
                return
            yield self._portion(table, jobs, portion)
            _advance(progress, chain(*portion))

    def _portion(self, table: _Table, jobs: Jobs, bundles: Sequence[Sequence[LiveFile]]) -> RewriteDone:
        old = replace(table.task, schema=table.old.schema)
        tasks = [self._task(table, old, tuple(map(file_rows, bundle))) for bundle in bundles]
        written: list[ConvertedFiles] = []
        for answer in jobs.run(convert, [pack(task) for task in tasks]):
            done = unpack(answer, object)
            if isinstance(done, Definite):
                raise done
            assert isinstance(done, ConvertedFiles)
            written.append(done)
        return RewriteDone(
            name=table.record.name,
            folder=table.task.folder,
            files=tuple(file for each in written for file in each.files),
            rows=sum(each.rows for each in written),
            last_file=bundles[-1][-1].path,
        )

    def _task(self, table: _Table, old: TableTask, live: tuple[FileRows, ...]) -> ConvertTask:
        site = self.site
        return ConvertTask(site.epoch, site.lake, old, table.task, table.old.conversion, live)


def _bundles(files: Iterable[LiveFile]) -> Iterator[list[LiveFile]]:
    """Bundle the files in the order of their names: small ones together, a large one by itself."""
    in_order = sorted(files, key=lambda file: file.path)
    bounds = (BUNDLE_BYTES, lambda file: file.size), (ROWS_PER_FILE, lambda file: file.rows)
    return portions(in_order, *bounds)


def _progress(files: Collection[LiveFile]) -> CopyProgress:
    return CopyProgress(sum(file.alive for file in files), sum(file.size for file in files))


def _advance(progress: CopyProgress, files: Iterable[LiveFile]) -> None:
    for file in files:
        progress.rows_done += file.alive
        progress.bytes_done += file.size


def _copy_done(table: _Table) -> CopiedTable:
    """Make the event of the table's end, after all its portions."""
    assert table.record.frontier is not None
    return CopiedTable(
        name=table.record.name,
        folder=table.task.folder,
        files=(),
        rows=0,
        errors=(),
        raw_columns=(),
        handoff=ByPosition(table.record.frontier),
    )


def _unreadable(name: TableName, error: Exception) -> ShapeChanged:
    said = f"{error.code}: {error.primary}" if isinstance(error, HeadraceError) else place_of(error)
    return ShapeChanged(
        "TABLE_NOT_REWRITTEN",
        f"the rows that {name} had before its columns changed can't be read any more",
        detail=said,
        hint=f"headrace tables resync {name} copies it from the source; a run does so by itself",
    )
