"""A task: files of a table become files of the same rows under other columns.

Called by `copy.from_lake`. The files are those of one version of the table's folder; what is written is named
by a plan, or is an orphan. A task holds the rows of its files, and those that they become.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.core.columns import wide_schema
from headrace.core.conversion import Conversion
from headrace.core.errors import Definite
from headrace.pipeline.tasks.files import Writing, read_file, write_sorted
from headrace.pipeline.tasks.table_task import LakeAddress, NewFile, TableTask, pack, unpack


@dataclass(frozen=True, slots=True)
class ConvertTask:
    """Files of a table as it was, and the table as it is."""

    epoch: int
    lake: LakeAddress
    old: TableTask
    now: TableTask
    conversion: Conversion
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Converted:
    """The files that became of them."""

    files: tuple[NewFile, ...]
    rows: int


def convert(item: bytes) -> bytes:
    """Write the rows of some files again; an error that comes back is true of the table."""
    task = unpack(item, ConvertTask)
    try:
        return pack(_converted(task))
    except Definite as error:
        return pack(error)


def _converted(task: ConvertTask) -> Converted:
    writing = Writing(task.lake.open(), task.epoch)
    rows = pa.concat_tables([read_file(writing.store, task.old, path) for path in task.paths])
    new = task.conversion.apply(rows, wide_schema(task.now.schema.arrow()))
    return Converted(write_sorted(writing, task.now, new), new.num_rows)
