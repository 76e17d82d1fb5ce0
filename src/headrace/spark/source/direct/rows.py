"""The executors' half of a direct stream: a task's slice of bytes, or its piece of the snapshot, as rows.

    raw      oid bigint, row_data array<string>, _time bigint, _diff bigint
    typed    one table's columns as a lake has them, _time bigint, _diff bigint

The first batch is the table at the stream's beginning: the rows of the snapshot, and, taken back, the changes
of those transactions of the stream that the snapshot holds already. All its rows have one time.

A task reads the state folder and nothing else: no source, no password.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.columns import column
from headrace.core.errors import Definite
from headrace.core.handoff import AnySnapshot
from headrace.core.history import free_names, history, own_names
from headrace.lake.store.contract import Store
from headrace.lake.store.open import open_store
from headrace.sources import registry
from headrace.sources.contract.decoder import TableFailure, TableFilter, TextDecoder, TextRows
from headrace.sources.contract.values import TableDef
from headrace.spark.source.direct.state import DirectTable, SliceRecord, lost_files_error
from headrace.spark.source.table_read import BATCH_ROWS, under
from headrace.spark.source.types import batch_schema

RAW = pa.schema(
    [
        pa.field("oid", pa.int64()),
        pa.field("row_data", pa.list_(pa.field("element", pa.string()))),
        pa.field("_time", pa.int64()),
        pa.field("_diff", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class DirectPlan:
    """A direct stream as Spark's plan carries it; the address holds no password."""

    url: str
    state: str
    tables: tuple[str, ...]
    options: Mapping[str, str]  # the source's own
    max_bytes: int
    max_wal: int | None
    columns: pa.Schema | None = None  # of the one table of a typed stream, as a lake has them

    def batch_schema(self) -> pa.Schema:
        """The schema of the batches that the tasks give."""
        if self.columns is None:
            return RAW
        ours = free_names(self.columns.names, ("_time", "_diff"))
        return pa.schema([*batch_schema(self.columns), *(pa.field(name, pa.int64()) for name in ours)])


@dataclass(frozen=True, slots=True)
class SnapshotTask:
    """A task of a piece of the snapshot."""

    key: str
    table: int
    time: int


@dataclass(frozen=True, slots=True)
class SliceTask:
    """A task of a slice; with a handoff, of what the snapshot holds of it, taken back at `time`."""

    kind: str  # of the source
    reference: int
    key: str
    slice: SliceRecord
    tables: tuple[int, ...]
    typed_table: DirectTable | None = None  # the table of a typed stream
    snapshot: AnySnapshot | None = None
    time: int = 0


DirectTask = SnapshotTask | SliceTask


def read(plan: DirectPlan, task: DirectTask) -> Iterator[pa.RecordBatch]:
    """The rows of a task; runs on an executor, perhaps more than once."""
    store = open_store(plan.state)
    if isinstance(task, SnapshotTask):
        yield from _snapshot(store, plan, task)
    elif task.typed_table is not None:
        for rows in _typed_rows(store, task, task.typed_table.definition):
            yield from under(plan.batch_schema(), rows.columns).to_batches(max_chunksize=BATCH_ROWS)
    else:
        yield from _texts(store, task)


def _snapshot(store: Store, plan: DirectPlan, task: SnapshotTask) -> Iterator[pa.RecordBatch]:
    with _open(store, task.key) as file, pa.ipc.open_stream(file) as found:
        for batch in found:
            count = batch.num_rows
            time = pa.repeat(pa.scalar(task.time, pa.int64()), count)
            diff = pa.repeat(pa.scalar(1, pa.int64()), count)
            if plan.columns is None:
                yield _with_table(task.table, batch.column(0), time, diff)
                continue
            columns = [pa.chunked_array([each]) for each in (*batch.columns, time, diff)]
            yield from under(plan.batch_schema(), columns).to_batches(max_chunksize=BATCH_ROWS)


def _texts(store: Store, task: SliceTask) -> Iterator[pa.RecordBatch]:
    for found in _decode(store, task):
        rows = found.rows
        if task.snapshot is not None:
            rows = _taken_back(rows, task, "_time", "_diff", found.transactions)
        for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
            yield _with_table(found.table, batch.column(2), batch.column(0), batch.column(1))


def _with_table(table: int, row_data: pa.Array, time: pa.Array, diff: pa.Array) -> pa.RecordBatch:
    oid = pa.repeat(pa.scalar(table, pa.int64()), len(time))
    return pa.RecordBatch.from_arrays([oid, row_data.cast(RAW.field(1).type), time, diff], schema=RAW)


def _decode(store: Store, task: SliceTask) -> Iterator[TextRows]:
    decoder = registry.by_kind(task.kind).decoder(task.reference)
    data = np.frombuffer(read_slice(store, task.key, task.slice), np.uint8)
    return as_text(decoder.as_text).rows(data, decoder.restore(task.slice.context), task.tables)


def _typed_rows(store: Store, task: SliceTask, table: TableDef) -> Iterator[pa.Table]:
    """The table's rows that came and went, then their `_time` and `_diff`."""
    decoder = registry.by_kind(task.kind).decoder(task.reference)
    data = np.frombuffer(read_slice(store, task.key, task.slice), np.uint8)
    own = own_names(table.schema.names, table.schema.transaction)
    time, diff = own["_time"], own["_diff"]
    for found in decoder.decode(data, decoder.restore(task.slice.context), filter_of(table)):
        if isinstance(found, TableFailure):  # the check before the batch was offered lets none pass
            raise found.failure
        rows = history(table.schema, pa.Table.from_batches([found.batch]))
        if task.snapshot is not None:
            rows = _taken_back(rows, task, time, diff, column(rows, own["_transaction"]))
        yield rows.select([*table.schema.names, time, diff])


def filter_of(table: TableDef) -> dict[int, TableFilter]:
    """The filter for all changes of a typed stream's table."""
    return {table.number: TableFilter(table.name, table.schema, 0, details=table.details)}


def as_text(decoder: TextDecoder | None) -> TextDecoder:
    """The decoder's part for texts, which was asked for before the stream began."""
    assert decoder is not None
    return decoder


def read_slice(store: Store, key: str, part: SliceRecord) -> bytes:
    """The bytes of a slice, verified."""
    with _open(store, key) as file:
        file.seek(part.start)
        data: bytes = file.read(part.stop - part.start)
    if zlib.crc32(data) != part.crc:
        raise Definite(
            "DIRECT_BATCH_DAMAGED",
            "a batch of the state is not what was written",
            detail=f'"{key}" in "{store.url}"',
            hint="restore the state from a backup; or begin anew with a new state and a new checkpoint",
        )
    return data


def _open(store: Store, key: str) -> Any:
    """Open a file of the state; a state that lacks it is no lake that could be mended."""
    try:
        return store.open_input(key)
    except Definite as error:
        if store.exists(key):
            raise
        raise lost_files_error(store.url, f'the file "{key}"') from error


def _taken_back(rows: pa.Table, task: SliceTask, time: str, diff: str, transactions: pa.Array) -> pa.Table:
    """Take back those of these rows that the snapshot holds, at the time of the snapshot."""
    assert task.snapshot is not None
    held = rows.filter(task.snapshot.holds(column(rows, time), transactions))
    times = pa.repeat(pa.scalar(task.time, pa.int64()), held.num_rows)
    held = held.set_column(held.schema.get_field_index(time), time, times)
    return held.set_column(held.schema.get_field_index(diff), diff, pc.negate(column(held, diff)))
