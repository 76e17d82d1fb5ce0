"""A task: pieces of tables, or ranges of their keys, become new files of their tables.

    reader ─► rows as the lake types them ─► files in the order of the key
         └──► values without a lake form ──► rows for `errors/`

Whichever piece it is, what was read tells which transactions it holds. A large piece is a task of its own;
small ones share one, and its connection. Nothing is committed here: the files are named by a plan, or are
orphans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from headrace.core.chunks import exact_from
from headrace.core.errors import Definite
from headrace.core.handoff import Handoff
from headrace.decode.copyrows import CopiedRows
from headrace.pipeline.tasks import raw_values
from headrace.pipeline.tasks.files import Writing, without_form, write_sorted
from headrace.pipeline.tasks.source_access import SourceAccess
from headrace.pipeline.tasks.table_task import Errors, LakeAddress, NewFile, TableTask, pack, unpack
from headrace.sources.contract.copying import Piece, PieceRead, Reader
from headrace.sources.contract.errors import TableBusy
from headrace.spark.secrets import Key

FILE_BYTES = 64 << 20  # of the source's text for one file; about a third of that as Parquet


@dataclass(frozen=True, slots=True)
class PiecesTask:
    """Pieces of tables, to be read one after another over one connection."""

    access: SourceAccess
    epoch: int
    lake: LakeAddress
    pieces: tuple[tuple[TableTask, Piece], ...]


@dataclass(frozen=True, slots=True)
class RangeDone:
    """The outcome of a reader."""

    files: tuple[NewFile, ...]
    rows: int
    size: int  # of the piece at the source, in bytes
    errors: Errors
    unfit_columns: tuple[int, ...]
    handoff: Handoff  # which transactions its rows hold


# What comes back of a piece. An error that comes back is true of its table; one that is raised, of the
# source.
Answer = RangeDone | TableBusy | Definite


def answers(item: bytes) -> tuple[Answer, ...]:
    """Read what a task brought back, in the order of its pieces."""
    found: tuple[Answer, ...] = unpack(item, tuple)
    return found


def copy_pieces(key: Key, item: bytes) -> bytes:
    """Copy pieces of tables into new files."""
    task = unpack(item, PiecesTask)
    with task.access.reader(key) as reader:
        return pack(tuple(_answer(partial(_piece, task, reader, *each)) for each in task.pieces))


def _answer(one: Callable[[], RangeDone]) -> Answer:
    try:
        return one()
    except (TableBusy, Definite) as error:
        return error


def _piece(task: PiecesTask, reader: Reader, table: TableTask, piece: Piece) -> RangeDone:
    with reader.read(table.schema.columns, piece, table.details) as reading:
        return _copy_piece(Writing(task.lake.open(), task.epoch), table, reading, piece.bytes)


def _copy_piece(writing: Writing, table: TableTask, reading: PieceRead, size: int) -> RangeDone:
    files: list[NewFile] = []
    rows = 0
    errors: Errors = ()
    met: set[int] = set()
    time = exact_from(reading.handoff).last
    for piece in _gather(_check_rows(table, copied, time) for copied in reading.rows):
        whole = pa.concat_tables([part for part, _ in piece])
        files += write_sorted(writing, table, whole)
        rows += whole.num_rows
        met.update(*(found.unfit_columns for _, found in piece))
        errors += writing.errors(table, *(each for _, found in piece for each in found.errors))
    return RangeDone(tuple(files), rows, size, errors, tuple(met), reading.handoff)


@dataclass(frozen=True, slots=True)
class UnfitValues:
    """Values without a lake form: in which columns, and their rows for `errors/`."""

    unfit_columns: tuple[int, ...] = ()
    errors: tuple[pa.Table, ...] = ()


_Checked = tuple[pa.Table, UnfitValues]


def _gather(pieces: Iterable[_Checked]) -> Iterator[list[_Checked]]:
    """Decoded pieces, gathered to what is written in one go: memory stays bounded by it."""
    held: list[_Checked] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += piece[0].nbytes
        if size >= 3 * FILE_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _check_rows(table: TableTask, copied: CopiedRows, time: int) -> _Checked:
    """The rows, and those for `errors/`; a value that its table may not lose is an error of it."""
    for values in copied.unrepresentable:
        name = table.schema.names[values.column]
        if table.strict or name in table.schema.key:
            raise without_form(table, name)
    errors = (
        raw_values.of_copied_rows(table, copied.those(values), values.column, values.texts, time)
        for values in copied.unrepresentable
    )
    return copied.rows, UnfitValues(tuple(values.column for values in copied.unrepresentable), tuple(errors))
