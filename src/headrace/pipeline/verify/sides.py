"""Both sides of one table, each reduced to sums: where verify's two halves meet.

    C(S)  =  C(mark)  −  Σ { history of transactions that the snapshot S does not show }
    checksum of the source under S   =?=   checksum of the mark's files  −  checksum of that history

The mark lies behind all that S shows, so it holds all of S and perhaps more; what more is told by the names
of transactions, which history has. Where they are numbers, only files of history that reach the lowest one
that S may not show are read: all below it are shown.

Nothing here decides what is to be compared, or when: see `proof`. Who looks into a difference:
`drill_down`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from headrace.core.checksum import Sums
from headrace.core.errors import Definite, HeadraceError
from headrace.core.handoff import AnySnapshot
from headrace.core.names import TableName
from headrace.lake.format import layout
from headrace.lake.format.vector import FileRows, file_rows
from headrace.lake.log import histories
from headrace.lake.log.marks import Mark
from headrace.lake.log.table import LakeTable
from headrace.lake.read import travel
from headrace.lake.store.contract import Store
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.tasks.compare.checksums import LakeFile
from headrace.pipeline.tasks.compare.proofs import (
    Answer,
    FileTask,
    HistoryTask,
    KeysTask,
    LakeTask,
    MatchedRows,
    Projection,
    ProofPiecesTask,
    RowSums,
    answers,
    read_file,
    read_history,
    read_keys,
    read_lake_tables,
    read_pieces,
    unite,
)
from headrace.pipeline.tasks.source_access import SourceAccess, SourceDoor
from headrace.pipeline.tasks.table_task import LakeAddress, pack, unpack
from headrace.sources.contract.copying import Key as KeyTexts
from headrace.sources.contract.copying import Piece
from headrace.sources.contract.decoder import Decoder
from headrace.sources.shared.copying import SMALL_BYTES
from headrace.spark.jobs import Jobs
from headrace.spark.secrets import Key

Keys = tuple[KeyTexts, ...]
MOST_FILES = 8  # of a small table
SHARED = 16  # small tables of the lake that a task reads


@dataclass(slots=True)
class ComparedTable:
    """One table, as far as it is."""

    record: TableRecord
    projection: Projection
    pieces: list[Piece]
    parts: dict[int, RowSums] = field(default_factory=dict)  # of the source, by the number of the piece
    mark: Mark | None = None
    files: list[FileTask] = field(default_factory=list)
    history: list[HistoryTask] = field(default_factory=list)
    lake: RowSums | None = None  # as of the snapshot
    error: HeadraceError | None = None

    @property
    def name(self) -> TableName:
        return self.record.name

    @property
    def small(self) -> bool:
        """Tell whether it shares its tasks with others."""
        few = len(self.pieces) == 1 and len(self.files) + len(self.history) <= MOST_FILES
        return few and self.pieces[0].bytes <= SMALL_BYTES

    @property
    def source(self) -> RowSums:
        return unite(self.parts.values(), self.projection.buckets)

    def difference(self) -> Sums:
        """The source's sums over the lake's."""
        assert self.lake is not None
        return self.source.sums - self.lake.sums


@dataclass(frozen=True, slots=True)
class ProofContext:
    """The context of a comparison: a lake, a snapshot of its source, and who does the work."""

    store: Store
    name: str
    jobs: Jobs
    door: SourceDoor
    connections: int
    decoder: Decoder  # prints what differs
    snapshot: AnySnapshot | None = None  # whom the snapshot shows; not known before it is read

    # --- the source -----------------------------------------------------------------------------

    def pieces(self, pieces: Sequence[tuple[Projection, Piece]]) -> tuple[Answer, ...]:
        """Pieces of tables, read one after another."""

        def job(access: SourceAccess, key: Key) -> tuple[Answer, ...]:
            task = ProofPiecesTask(access, tuple(pieces))
            [answer] = self.jobs.run(partial(read_pieces, key), [pack(task)])
            return answers(answer)

        return self.door.run(job)

    def piece(self, table: ComparedTable, projection: Projection, number: int) -> RowSums:
        """A piece of the table."""
        [answer] = self.pieces([(projection, table.pieces[number])])
        if isinstance(answer, HeadraceError):
            raise answer
        return answer

    def rows_of(self, table: ComparedTable, projection: Projection, keys: Keys) -> Mapping[int, RowSums]:
        """The rows of these keys, by the piece that they are in."""

        def job(access: SourceAccess, key: Key) -> Mapping[int, RowSums]:
            task = KeysTask(access, projection, tuple(table.pieces), keys)
            [answer] = self.jobs.run(partial(read_keys, key), [pack(task)])
            return dict(unpack(answer, MatchedRows).parts)

        return self.door.run(job)

    # --- the lake -------------------------------------------------------------------------------

    def place(self, table: ComparedTable, mark: Mark, since: int) -> None:
        """Find what the lake has of the table at a mark, and of its history; no row is read yet."""
        assert self.snapshot is not None
        record, lake = table.record, LakeAddress(self.store.url)
        folder = layout.table_folder(self.name, record.name)
        live = LakeTable(self.store, folder).at(mark.versions[str(record.name)]).files()
        parts = histories.parts(self.store, self.name, record.name, (since - 1, mark.time))
        if not travel.fits(record.schema.arrow(), parts):
            raise travel.incompatible(str(record.name))
        table.mark = mark
        table.files = [
            FileTask(table.projection, LakeFile(lake, folder, file_rows(live[path]))) for path in sorted(live)
        ]
        table.history = [
            HistoryTask(
                table.projection,
                LakeFile(lake, part.table.folder, FileRows(path)),
                part.schema,
                part.own,
                since - 1,
                mark.time,
                self.snapshot,
            )
            for part in parts
            for path in self._reaching(part)
        ]

    def _reaching(self, part: histories.HistoryPart) -> Sequence[str]:
        """The files that may have what the snapshot does not show."""
        assert self.snapshot is not None
        floor = self.snapshot.floor
        return part.paths if floor is None else part.reaching(floor)

    def lake(self, table: ComparedTable, projection: Projection) -> RowSums:
        """Reduce the lake's side of the table, without what the snapshot does not show."""
        files = [pack(replace(task, projection=projection)) for task in table.files]
        history = [pack(replace(task, projection=projection)) for task in table.history]
        answers: Iterable[bytes] = [*self.jobs.run(read_file, files), *self.jobs.run(read_history, history)]
        return unite((unpack(answer, RowSums) for answer in answers), projection.buckets)

    def lakes(self, tables: Sequence[ComparedTable]) -> list[Answer]:
        """Sum small tables in one job."""
        tasks = [LakeTask(t.projection.buckets, tuple(t.files), tuple(t.history)) for t in tables]
        items = [pack(tuple(tasks[at : at + SHARED])) for at in range(0, len(tasks), SHARED)]
        return [answer for item in self.jobs.run(read_lake_tables, items) for answer in answers(item)]


def untold_error(name: TableName) -> Definite:
    """The error for a table that changed and has no history of it."""
    return Definite(
        "VERIFY_NO_HISTORY",
        f"what happened to {name} since its source was looked at is not in its history, or not any more",
        hint="keep history for longer than a verification takes: retention in the configuration",
    )
