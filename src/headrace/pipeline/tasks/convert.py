"""A task: files of a table become files of the same rows under other columns.

The files are those of one version of the table's folder; what is written is named by a plan, or is an orphan.

    the key is what it was ─► file by file, in their order: chunks are taken as they are (`column_chunks`)
    else                   ─► the rows of all files, sorted: a task holds them, and those that they become
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.core.columns import wide_schema
from headrace.core.conversion import Conversion
from headrace.core.errors import Definite
from headrace.core.schema import TableSchema
from headrace.lake.format import column_chunks, layout
from headrace.lake.format.vector import FileRows
from headrace.pipeline.tasks.files import BYTES_PER_FILE, Writing, read_file, write_sorted
from headrace.pipeline.tasks.table_task import LakeAddress, NewFile, TableTask, pack, unpack


@dataclass(frozen=True, slots=True)
class ConvertTask:
    """Files of a table as it was, and the table as it is."""

    epoch: int
    lake: LakeAddress
    old: TableTask
    now: TableTask
    conversion: Conversion
    live: tuple[FileRows, ...]


@dataclass(frozen=True, slots=True)
class ConvertedFiles:
    """The files that became of them."""

    files: tuple[NewFile, ...]
    rows: int


def convert(item: bytes) -> bytes:
    """Write the rows of some files again; an error that comes back is true of the table."""
    task = unpack(item, ConvertTask)
    try:
        return pack(_convert(task))
    except Definite as error:
        return pack(error)


def _convert(task: ConvertTask) -> ConvertedFiles:
    writing = Writing(task.lake.open(), task.epoch)
    files, others = [], list(task.live)
    if _keeps_order(task.old.schema, task.now.schema):
        as_they_stand = {file: _as_it_stands(writing, task, file) for file in task.live}
        files = [file for file in as_they_stand.values() if file is not None]
        others = [file for file, done in as_they_stand.items() if done is None]
    if others:
        files.extend(_sort_rows(writing, task, others))
    return ConvertedFiles(tuple(files), sum(each.file.rows for each in files))


def _keeps_order(old: TableSchema, new: TableSchema) -> bool:
    """Tell whether the rows' keys are coded as they were. Rows without a key are ordered by all columns."""
    before, after = ([schema.arrow().field(name).type for name in schema.key] for schema in (old, new))
    return bool(after) and before == after


def _as_it_stands(writing: Writing, task: ConvertTask, file: FileRows) -> NewFile | None:
    """A file whose rows stay where they are; None where that can't be, or some rows are deleted."""
    if file.vector is not None:
        return None
    old, now = task.old.schema, task.now.schema
    shape = column_chunks.Shape(old.arrow(), now.arrow(), task.conversion, now.ids)
    place = (task.now.folder, file.path, layout.file_name(writing.epoch))
    done = column_chunks.convert(writing.store, *place, shape, at_most=BYTES_PER_FILE)
    return None if done is None else NewFile(done[0], *done[1])


def _sort_rows(writing: Writing, task: ConvertTask, live: list[FileRows]) -> tuple[NewFile, ...]:
    rows = pa.concat_tables([read_file(writing.store, task.old, file) for file in live])
    return write_sorted(writing, task.now, task.conversion.apply(rows, wide_schema(task.now.schema.arrow())))
