"""Parquet files of the lake's tables: written once, never changed, described for Delta's log.

Tasks write and read them on executors, the driver commits what they return; a file that nobody commits is
an orphan that vacuum finds by the epoch in its name.

`sort_range` is the range of keys that a file of a keyed table *may* hold, as order-preserving bytes made by
the pipeline. It stands in the Parquet footer, in hexadecimal, so that a file carries it through renames and
rewrites of the log; its meaning is the pipeline's own. Beside it stands how much memory the rows take, which
the size of a file does not tell: who puts files together has to know.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.core.columns import narrow
from headrace.core.errors import Definite
from headrace.lake.format import layout, schemas
from headrace.lake.format.plan import DataFile
from headrace.lake.format.statistics import delta_statistics
from headrace.lake.format.vector import TableFile, damaged_error
from headrace.lake.store.contract import Store, refusals

_RANGE = b"headrace.range"
_BYTES = b"headrace.bytes"
_ROW_GROUP = 256 * 1024
_SAMPLE = 4096


def write(
    store: Store,
    folder: str,
    name: str,
    table: pa.Table,
    *,
    sort_range: tuple[bytes, bytes] | None = None,
    row_group: int = _ROW_GROUP,
    entries: Mapping[bytes, bytes] | None = None,
    ids: Sequence[int] = (),
) -> DataFile:
    """Write `table`, columns named as the user names them, as a new file of the Delta table at `folder`.

    `entries` stand in the footer beside our own; `ids` are the columns' field ids.
    """
    table = narrow(table)
    own = footer_entries(table.nbytes, sort_range)
    schema = schemas.to_lake(table.schema).with_metadata({**own, **(entries or {})})
    if ids:
        schema = schemas.with_field_ids(schema, ids)
    with store.open_output(f"{folder}/{name}") as sink:
        pq.write_table(
            pa.Table.from_arrays(table.columns, schema=schema),
            sink,
            row_group_size=row_group,
            **encoding(table, schema.names),
        )
        size = sink.tell()
    return DataFile(path=name, size=size, rows=table.num_rows, stats=delta_statistics(table))


def footer_entries(size: int, sort_range: tuple[bytes, bytes] | None) -> dict[bytes, bytes]:
    """Our own entries of a footer: the memory that the rows take, and the range of their keys."""
    entries = {_BYTES: str(size).encode()}
    if sort_range is not None:
        low, high = sort_range
        entries[_RANGE] = json.dumps([low.hex(), high.hex()]).encode()
    return entries


def encoding(table: pa.Table, names: Sequence[str]) -> dict[str, Any]:
    """The encoding of columns that stand in the file under these names."""
    return {"compression": "zstd", "use_dictionary": _repetitive(table, names)}


def _repetitive(table: pa.Table, names: Sequence[str]) -> list[str]:
    """The columns that are worth a dictionary, which costs as much as all the rest of writing a column.

    Judged by the first rows; nested columns always try, since their parts are named in another way.
    """
    sample = table.slice(0, _SAMPLE)
    return [
        name
        for name, column in zip(names, sample.columns, strict=True)
        if pa.types.is_nested(column.type) or 2 * pc.count_distinct(column).as_py() <= len(column)
    ]


def read_range(store: Store, folder: str, path: str) -> tuple[bytes, bytes] | None:
    """The key range that the file was written with, or None where it has none."""
    with readable(folder, path), store.open_input(f"{folder}/{path}") as source:
        return range_of(pq.read_metadata(source))


def range_of(footer: pq.FileMetaData) -> tuple[bytes, bytes] | None:
    """The key range that a footer tells."""
    entries = footer.metadata or {}
    if _RANGE not in entries:
        return None
    low, high = json.loads(entries[_RANGE])
    return bytes.fromhex(low), bytes.fromhex(high)


def read_entries(store: Store, folder: str, path: str) -> Mapping[bytes, bytes]:
    """Read what the file's footer says beside its figures."""
    with readable(folder, path), store.open_input(f"{folder}/{path}") as source:
        return pq.read_metadata(source).metadata or {}


def read_ids(store: Store, folder: str, path: str) -> Mapping[str, int]:
    """Read the field ids of the file's columns, by their names; an older file has none."""
    with readable(folder, path), store.open_input(f"{folder}/{path}") as source:
        found = schemas.field_ids(pq.read_schema(source))
    return {layout.unquote(name): number for name, number in found.items()}


def read_bytes(store: Store, folder: str, path: str) -> int:
    """Estimate the memory of the file's rows; of a file that another program wrote, by what it tells."""
    with readable(folder, path), store.open_input(f"{folder}/{path}") as source:
        found = pq.read_metadata(source)
    if _BYTES in (found.metadata or {}):
        return int(found.metadata[_BYTES])
    return sum(found.row_group(i).total_byte_size for i in range(found.num_row_groups))


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group: how many rows, and between which values a column's lie (None: not known)."""

    rows: int
    bounds: Mapping[str, tuple[Any, Any]]


def groups(store: Store, folder: str, path: str, columns: Sequence[str]) -> list[RowGroup]:
    """Read the figures of the file's row groups."""
    with readable(folder, path), store.open_input(f"{folder}/{path}") as source:
        metadata = pq.read_metadata(source)
    places = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    found = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        stated = {name: group.column(places[layout.lake_column(name)]).statistics for name in columns}
        bounds = {
            name: (None, None) if of is None or not of.has_min_max else (of.min, of.max)
            for name, of in stated.items()
        }
        found.append(RowGroup(group.num_rows, bounds))
    return found


def read(
    store: Store,
    folder: str,
    of: TableFile,
    columns: Sequence[str] | None = None,
    *,
    schema: pa.Schema | None = None,
    groups: Sequence[int] | None = None,
) -> pa.Table:
    """The file's rows that are not deleted; with `schema`, exactly that schema's columns.

    Those columns that the file lacks are NULL. With `groups` only those row groups are read.
    """
    wanted = schema.names if schema is not None else columns
    lake_names = None if wanted is None else [layout.lake_column(name) for name in wanted]
    with readable(folder, of.path), store.open_input(f"{folder}/{of.path}") as source:
        file = pq.ParquetFile(source)
        wanted_groups = list(range(file.num_row_groups) if groups is None else groups)
        table = file.read_row_groups(wanted_groups, columns=lake_names)
        if of.vector is not None:
            table = table.filter(_survivors(folder, of, file.metadata, wanted_groups))
    table = table.rename_columns([layout.unquote(name) for name in table.column_names])
    table = table.replace_schema_metadata(None)
    if schema is not None:
        return conform(table, schema)
    return table if columns is None else table.select(list(columns))


def stream(store: Store, folder: str, of: TableFile, schema: pa.Schema) -> Iterator[pa.Table]:
    """The file's rows that are not deleted, with exactly the schema's columns, a group of rows at a time."""
    lake_names = [layout.lake_column(name) for name in schema.names]
    with readable(folder, of.path), store.open_input(f"{folder}/{of.path}") as source:
        file = pq.ParquetFile(source)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=lake_names)
            if of.vector is not None:
                table = table.filter(_survivors(folder, of, file.metadata, [group]))
            table = table.rename_columns([layout.unquote(name) for name in table.column_names])
            yield conform(table.replace_schema_metadata(None), schema)


def _survivors(folder: str, of: TableFile, footer: pq.FileMetaData, groups: Sequence[int]) -> pa.Array:
    """Tell for each row of these row groups whether the file's vector leaves it."""
    assert of.vector is not None
    name = f"{folder}/{of.path}"
    positions, rows = of.vector.positions(name), footer.num_rows
    if len(positions) and not 0 <= positions[0] <= positions[-1] < rows:
        raise damaged_error(name, f"it deletes a row behind the last of {rows}")
    left = np.ones(rows, np.bool_)
    left[positions] = False
    ends = np.cumsum([0, *(footer.row_group(number).num_rows for number in range(footer.num_row_groups))])
    parts = [left[ends[number] : ends[number + 1]] for number in groups]
    return pa.array(np.concatenate([left[:0], *parts]))


@contextmanager
def readable(folder: str, path: str) -> Iterator[None]:
    """Blame the table for what is wrong with a file itself; what keeps us from reading it may pass."""
    with refusals(f"{folder}/{path}"):
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            # An error of the system has a number; what Arrow cannot make sense of has none.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise Definite(
                "LAKE_FILE_UNREADABLE",
                f'the file "{folder}/{path}" of the lake cannot be read',
                detail=type(error).__name__,
                hint="after a power cut headrace run mends the lake; else restore the file from a backup, "
                "or mirror the table into a new lake",
            ) from None


def describe(store: Store, folder: str, of: TableFile) -> DataFile:
    """Describe a file that is there already as an Add action does."""
    with readable(folder, of.path), store.open_input(f"{folder}/{of.path}") as source:
        size = source.size()
        table = pq.ParquetFile(source).read()
    table = table.rename_columns([layout.unquote(name) for name in table.column_names])
    return DataFile(of.path, size, table.num_rows, delta_statistics(table), of.vector)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Bring rows under exactly this schema; a missing column is NULL in every row."""
    columns = [_column(table, field) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema) if columns else table.select([])


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if not table.schema.get_all_field_indices(field.name):  # `column_names` makes a list of all
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table.column(field.name)
    return column if column.type.equals(field.type) else pc.cast(column, field.type)
