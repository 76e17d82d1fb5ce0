"""The beginning of a direct stream: the objects upstream, then the snapshot, while the receiver runs.

    tables examined ─► folder's record ─► objects upstream ─► stream received ─► snapshot ─► `Beginning`

The record comes first, so that `headrace drop --state` finds what a killed process made. A process that finds
a folder without `beginning.json` removes those objects and begins anew: nothing was offered from them.

The snapshot's rows are written as the texts that the source hands over, a file for each piece. Readers are
threads here: the password never leaves this machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.core.columns import across, column
from headrace.core.errors import Misconfigured
from headrace.core.handoff import Handoff
from headrace.core.schema import Column
from headrace.sources.contract.copying import CopyOrder, Piece, Snapshot
from headrace.sources.contract.findings import CheckReport, Wish, refuse
from headrace.sources.contract.mirror import Address, StreamOrder, StreamOrigin
from headrace.sources.contract.source import Source
from headrace.sources.contract.values import ALONE, TableDef
from headrace.spark.source.direct.reception import SourceLink
from headrace.spark.source.direct.rows import DirectPlan
from headrace.spark.source.direct.state import SNAPSHOT, SnapshotFile, StateFolder

READERS = 2
PIECE_BYTES = 64 << 20
AWAKE_SECONDS = 30.0  # between two questions to a snapshot that is being read
_ROW = pa.schema([pa.field("row_data", pa.list_(pa.string()))])


def examine(source: Source, address: Address, plan: DirectPlan, title: str) -> CheckReport:
    """Find the tables of a new stream; raises if it cannot be had."""
    if source.decoder().as_text is None:
        raise Misconfigured(
            "DIRECT_NO_TEXTS",
            f"a stream straight from {title} cannot be read: its bytes are no texts",
            hint='mirror it into a lake, and .option("lake", PATH).option("as", "changes") streams a table',
        )
    report = source.examine(address, Wish(plan.tables, plan.options, READERS, whole_rows=True))
    refuse(report, named_any=bool(plan.tables))
    return report


def establish(link: SourceLink, state: StateFolder, report: CheckReport) -> StreamOrigin:
    """Make the objects upstream, new ones: an earlier attempt may have left some that are older."""
    if link.source.drop is not None:
        link.source.drop(link.connection.address, state.record.upstream, False)
    origin = link.mirror.establish(StreamOrder(report.tables, undo=True), ALONE)
    for error in origin.tables.errors.values():
        raise error
    if not origin.fresh:
        raise Misconfigured(
            "DIRECT_STREAM_NOT_FRESH",
            "the stream is older than the capture of its tables, so some of their changes may be missing",
            hint="leave out the objects of your own that are older than the tables in them",
        )
    return origin


@dataclass(slots=True)
class SnapshotCopy:
    """The copy of the tables into files of the state folder."""

    link: SourceLink
    state: StateFolder
    tables: Sequence[TableDef]
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def run(self, plan: DirectPlan) -> tuple[tuple[SnapshotFile, ...], Handoff]:
        """Copy all tables at one moment; the files, and which transactions that moment holds."""
        mirror = self.link.mirror
        measured = mirror.measure(self.tables)
        for busy in measured.busy.values():
            raise busy
        order = CopyOrder(self.tables, READERS, plan.options)
        pieces = measured.pieces([table.name for table in self.tables], PIECE_BYTES)
        with mirror.plan_copy(order).snapshot(self.tables, ALONE) as snapshot:
            shares = snapshot.shares(pieces)
            with ThreadPoolExecutor(max(1, min(len(shares), READERS)), "headrace-copy") as pool:
                started = [pool.submit(self._read, snapshot.ticket, share) for share in shares]
                _ = snapshot.handoff  # only now: its readers may have to be there first
                files = _gather(snapshot, started)
            return tuple(files), snapshot.settle()

    def _read(self, ticket: Any, share: Sequence[Piece]) -> list[SnapshotFile]:
        defs = {table.name: table for table in self.tables}
        with self.link.reader(ticket) as reader:
            found = []
            for piece in share:
                table = defs[piece.table]
                columns = [Column(each.name, pa.string(), "text", "text") for each in table.schema.columns]
                with reader.read(columns, piece, table.details) as reading:
                    found.append(self._write(table, (each.rows for each in reading.rows)))
        return found

    def _write(self, table: TableDef, parts: Iterator[pa.Table]) -> SnapshotFile:
        key, count = self.state.file(SNAPSHOT, next(self._numbers), "arrow"), 0
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with (
            self.state.store.open_output(key) as sink,
            pa.ipc.new_stream(sink, _ROW, options=options) as writer,
        ):
            for rows in parts:
                texts = across([column(rows, name) for name in rows.column_names], rows.num_rows)
                writer.write_batch(pa.RecordBatch.from_arrays([texts], schema=_ROW))
                count += rows.num_rows
        return SnapshotFile(table.number, key, count)


def _gather(snapshot: Snapshot, started: Sequence[Future[list[SnapshotFile]]]) -> list[SnapshotFile]:
    """Collect the files of all readers; ask the snapshot meanwhile, so that its connection stays awake."""
    left, files = set(started), []
    while left:
        ended, left = wait(left, AWAKE_SECONDS, FIRST_COMPLETED)
        snapshot.alive()
        files += [file for future in ended for file in future.result() if file.rows]
    return files
