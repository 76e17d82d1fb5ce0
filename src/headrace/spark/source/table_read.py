"""A table at a mark, as a plan of Spark carries it: which version of which folder, and under which columns.

    options ──▶ mark (`planning`) ──▶ TableRead, pickled into Spark's plan ──▶ files ──▶ batches

The version that a plan pins holds the same files however often the plan runs and whatever is published
meanwhile. Files of history and of errors may have rows of later times than the mark's, which each task leaves
out. This half runs on executors, in processes that start often: it loads neither Delta nor Polars.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.errors import HeadraceError
from headrace.lake.format import datafile, layout
from headrace.lake.format.vector import FileRows
from headrace.lake.store.contract import Store
from headrace.lake.store.open import open_store
from headrace.spark.paths import not_shared_error
from headrace.spark.source.types import batch_schema

BATCH_ROWS = 32_768

METADATA = pa.schema([pa.field("_epoch", pa.int64()), pa.field("_position", pa.string())])

Files = tuple[FileRows, ...]  # of one task


@dataclass(frozen=True, slots=True)
class TableRead:
    """The rows of a version of a folder, of times up to `until` where that is given."""

    lake: str
    folder: str
    version: int  # -1: nothing was ever written there
    schema: pa.Schema  # the columns that are read
    epoch: int
    position: str
    until: tuple[str, int] | None = None  # the column of a row's time, and the last time that counts
    metadata: tuple[str, ...] = ()  # the names of the columns that tell the mark

    def batch_schema(self) -> pa.Schema:
        """The schema of the batches that the tasks give."""
        own = [field.with_name(name) for name, field in zip(self.metadata, METADATA, strict=False)]
        return pa.schema([*batch_schema(self.schema), *own])

    def read(self, files: Files) -> Iterator[pa.RecordBatch]:
        """The rows of a task; runs on an executor, perhaps more than once."""
        store, wanted = open_store(self.lake), self._stored_columns()
        for file in files:
            with sharing(store):
                for rows in datafile.stream(store, self.folder, file, wanted):
                    yield from self._select(rows).to_batches(max_chunksize=BATCH_ROWS)

    def _stored_columns(self) -> pa.Schema:
        if self.until is None or self.until[0] in self.schema.names:
            return self.schema
        return self.schema.append(pa.field(self.until[0], pa.int64()))

    def _select(self, rows: pa.Table) -> pa.Table:
        """The rows that count, with exactly the columns of `batch_schema`."""
        if self.until is not None:
            name, last = self.until
            rows = rows.filter(pc.less_equal(rows.column(name), last))
        told = [self.epoch, self.position][: len(self.metadata)]
        columns = [rows.column(name) for name in self.schema.names]
        columns += [pa.chunked_array([pa.repeat(value, rows.num_rows)]) for value in told]
        return under(self.batch_schema(), columns)


def under(schema: pa.Schema, columns: Sequence[pa.ChunkedArray]) -> pa.Table:
    """The columns in their order, under the names and types of a schema."""
    typed = [
        each if each.type.equals(field.type) else each.cast(field.type)
        for each, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(typed, schema=schema)


@contextmanager
def sharing(store: Store) -> Iterator[None]:
    """Blame a machine that sees no lake there at all for a file that it does not find."""
    try:
        yield
    except HeadraceError as error:
        if store.exists(layout.FORMAT):
            raise
        raise not_shared_error(store.url, f'host "{platform.node()}" sees no lake there') from error
