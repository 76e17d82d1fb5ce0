"""The beginning of a direct stream: the objects upstream, then the snapshot, while the receiver runs.

    tables examined ─► folder's record ─► objects upstream ─► stream received ─► snapshot ─► `Beginning`

The record comes first, so that `headrace drop --state` finds what a killed process made. A process that finds
a folder without `beginning.json` removes those objects and begins anew: nothing was offered from them.

The snapshot's rows are written as the texts that the source hands over, or in the lake's types where one
table is streamed in its own columns; a file for each piece. Readers are threads here: the password never
leaves this machine.

`plan_direct` comes before all that, when Spark asks for the columns: of one table the state knows them, or a
look at the source.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from headrace.core.columns import across, column
from headrace.core.errors import Misconfigured
from headrace.core.handoff import Handoff
from headrace.core.schema import Column
from headrace.decode.copyrows import CopiedRows
from headrace.lake.store.open import open_store
from headrace.sources import registry
from headrace.sources.contract.copying import CopyOrder, Piece, Snapshot
from headrace.sources.contract.findings import CheckReport, Wish, refuse
from headrace.sources.contract.mirror import Address, StreamOrder, StreamOrigin
from headrace.sources.contract.source import Source
from headrace.sources.contract.values import ALONE, TableDef
from headrace.spark.source.direct.reception import SourceLink
from headrace.spark.source.direct.refusals import unfit_error
from headrace.spark.source.direct.rows import DirectPlan
from headrace.spark.source.direct.state import SNAPSHOT, SnapshotFile, StateFolder, read_state
from headrace.spark.source.options import DirectOptions, secret_error
from headrace.spark.source.types import batch_schema

READERS = 2
PIECE_BYTES = 64 << 20
AWAKE_SECONDS = 30.0  # between two questions to a snapshot that is being read
_ROW = pa.schema([pa.field("row_data", pa.list_(pa.string()))])


def plan_direct(options: DirectOptions) -> DirectPlan:
    """Make the plan of a query; raises if the columns of its table cannot be found.

    Refuses an address with a password in it. Only for a typed stream the state or the source is asked.
    """
    kind = registry.kind_of(options.url)
    source = registry.by_kind(kind)
    address = source.address(options.url)
    if address.text != address.without_secrets():
        raise secret_error("url")
    tables = options.tables if options.table is None else (options.table,)
    own = dict(options.own)
    plan = DirectPlan(options.url, options.state, tables, own, options.max_bytes, options.max_wal)
    if options.table is None:
        return plan
    return replace(plan, columns=_columns_of(source, address, plan, options.table))


def _columns_of(source: Source, address: Address, plan: DirectPlan, table: str) -> pa.Schema:
    state = read_state(open_store(plan.state))
    if state is not None and state.record.is_typed:
        state.load()
        if state.beginning is not None:
            return state.beginning.tables[0].schema.arrow()
    report = _report(source, address, plan)
    if len(report.tables) != 1 or report.tables[0].name not in report.named_tables:
        raise Misconfigured(
            "DIRECT_TABLE_NOT_ONE",
            f'"{table}" does not name one table',
            detail=f"it matches {', '.join(str(each.name) for each in report.tables[:5])}",
            hint='.option("table", "schema.table") streams one table in its columns; '
            '.option("tables", "schema.*") streams several as texts',
        )
    return report.tables[0].schema.arrow()


def require_columns(tables: Sequence[TableDef], columns: pa.Schema) -> None:
    """Refuse to begin a stream of a table that has other columns than the query."""
    if [table.schema.arrow() for table in tables] != [columns]:
        raise Misconfigured(
            "DIRECT_COLUMNS_CHANGED",
            "the table's columns changed after the query's load()",
            hint="call load() again, and start the new query",
        )


def examine(source: Source, address: Address, plan: DirectPlan, title: str) -> CheckReport:
    """Find the tables of a new stream; raises if it cannot be had."""
    if plan.columns is None and source.decoder().as_text is None:
        raise Misconfigured(
            "DIRECT_NO_TEXTS",
            f"{title} has no stream of texts, which several tables need",
            hint='.option("table", "schema.table") streams one table in its columns; or mirror the source '
            'into a lake, and .option("lake", PATH).option("as", "changes") streams a table',
        )
    return _report(source, address, plan)


def _report(source: Source, address: Address, plan: DirectPlan) -> CheckReport:
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
    is_typed: bool
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
                with reader.read(self._columns(table), piece, table.details) as reading:
                    found.append(self._write(table, reading.rows))
        return found

    def _columns(self, table: TableDef) -> Sequence[Column]:
        if self.is_typed:
            return table.schema.columns
        return [Column(each.name, pa.string(), "text", "text") for each in table.schema.columns]

    def _write(self, table: TableDef, parts: Iterator[CopiedRows]) -> SnapshotFile:
        key, count = self.state.file(SNAPSHOT, next(self._numbers), "arrow"), 0
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        schema = batch_schema(table.schema.arrow()) if self.is_typed else _ROW
        with (
            self.state.store.open_output(key) as sink,
            pa.ipc.new_stream(sink, schema, options=options) as writer,
        ):
            for part in parts:
                if self.is_typed and part.unrepresentable:
                    raise unfit_error(table, part.unrepresentable[0].column)
                for batch in _batches(part.rows, schema, is_typed=self.is_typed):
                    writer.write_batch(batch)
                count += part.rows.num_rows
        return SnapshotFile(table.number, key, count)


def _batches(rows: pa.Table, schema: pa.Schema, *, is_typed: bool) -> Iterator[pa.RecordBatch]:
    if is_typed:
        yield from rows.cast(schema).to_batches()
        return
    texts = across([column(rows, name) for name in rows.column_names], rows.num_rows)
    yield pa.RecordBatch.from_arrays([texts], schema=schema)


def _gather(snapshot: Snapshot, started: Sequence[Future[list[SnapshotFile]]]) -> list[SnapshotFile]:
    """Collect the files of all readers; ask the snapshot meanwhile, so that its connection stays awake."""
    left, files = set(started), []
    while left:
        ended, left = wait(left, AWAKE_SECONDS, FIRST_COMPLETED)
        snapshot.alive()
        files += [file for future in ended for file in future.result() if file.rows]
    return files
