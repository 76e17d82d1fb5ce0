"""The executors' half of a direct stream: a task's slice of bytes, or its piece of the snapshot, as rows.

    oid bigint, row_data array<string>, _time bigint, _diff bigint

The first batch is the table at the stream's beginning: the rows of the snapshot, and, taken back, the changes
of those transactions of the stream that the snapshot holds already. All its rows have one time.

A task reads the state folder and nothing else: no source, no password.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.columns import column
from headrace.core.errors import Definite
from headrace.core.handoff import AnySnapshot
from headrace.lake.store.contract import Store
from headrace.lake.store.open import open_store
from headrace.sources import registry
from headrace.sources.contract.decoder import TextDecoder, TextRows
from headrace.spark.source.direct.state import SliceRecord
from headrace.spark.source.options import DirectOptions, secret_error
from headrace.spark.source.table_read import BATCH_ROWS

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

    def batch_schema(self) -> pa.Schema:
        """The schema of the batches that the tasks give."""
        return RAW


def plan_direct(options: DirectOptions) -> DirectPlan:
    """Make the plan; the source is not asked yet. Refuses an address with a password in it."""
    kind = registry.kind_of(options.url)
    address = registry.by_kind(kind).address(options.url)
    if address.text != address.without_secrets():
        raise secret_error("url")
    own = dict(options.own)
    return DirectPlan(options.url, options.state, options.tables, own, options.max_bytes, options.max_wal)


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
    snapshot: AnySnapshot | None = None
    time: int = 0


DirectTask = SnapshotTask | SliceTask


def read(plan: DirectPlan, task: DirectTask) -> Iterator[pa.RecordBatch]:
    """The rows of a task; runs on an executor, perhaps more than once."""
    store = open_store(plan.state)
    if isinstance(task, SnapshotTask):
        yield from _snapshot(store, task)
        return
    for found in _decode(store, task):
        rows = found.rows if task.snapshot is None else _taken_back(found, task.snapshot, task.time)
        for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
            yield _with_table(found.table, batch.column(2), batch.column(0), batch.column(1))


def _snapshot(store: Store, task: SnapshotTask) -> Iterator[pa.RecordBatch]:
    with store.open_input(task.key) as file, pa.ipc.open_stream(file) as rows:
        for batch in rows:
            count = batch.num_rows
            time, diff = pa.repeat(pa.scalar(task.time, pa.int64()), count), pa.repeat(1, count)
            yield _with_table(task.table, batch.column(0), time, diff.cast(pa.int64()))


def _with_table(table: int, row_data: pa.Array, time: pa.Array, diff: pa.Array) -> pa.RecordBatch:
    oid = pa.repeat(pa.scalar(table, pa.int64()), len(time))
    return pa.RecordBatch.from_arrays([oid, row_data.cast(RAW.field(1).type), time, diff], schema=RAW)


def _decode(store: Store, task: SliceTask) -> Iterator[TextRows]:
    decoder = registry.by_kind(task.kind).decoder(task.reference)
    data = np.frombuffer(read_slice(store, task.key, task.slice), np.uint8)
    return as_text(decoder.as_text).rows(data, decoder.restore(task.slice.context), task.tables)


def as_text(decoder: TextDecoder | None) -> TextDecoder:
    """The decoder's part for texts, which was asked for before the stream began."""
    assert decoder is not None
    return decoder


def read_slice(store: Store, key: str, part: SliceRecord) -> bytes:
    """The bytes of a slice, verified."""
    with store.open_input(key) as file:
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


def _taken_back(found: TextRows, snapshot: AnySnapshot, time: int) -> pa.Table:
    """Take back those of these rows that the snapshot holds, at the time of the snapshot."""
    mask = snapshot.holds(column(found.rows, "_time"), found.transactions)
    rows = found.rows.filter(mask)
    times = pa.repeat(pa.scalar(time, pa.int64()), rows.num_rows)
    return rows.set_column(0, rows.schema.field(0), times).set_column(
        1, rows.schema.field(1), pc.negate(column(rows, "_diff"))
    )
