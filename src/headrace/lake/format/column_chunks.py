"""A Parquet file of the column chunks of another one: rows under other columns, without being written anew.

    old file    id │ n │ s        of each row group, and a footer that says where each chunk is, and its name
                │    ┌───┘
    new file    id │ t │ more     taken chunks byte for byte, made ones encoded, and a footer of its own

A chunk is taken where Parquet describes the old and the new column alike, apart from name and field id; else
the column is converted and encoded. The order of rows stays, so the range of keys does: whoever calls has to
know that no column of the key became another one. The values of taken columns are read all the same, one
column after another: for the statistics, and since a file that nobody can read is to be found now and not by
the table's next reader. (Of writing a file two thirds is encoding, of reading it most is joining row groups.)

Only for files that this program wrote: `datafile` alone leaves a range in the footer. A task holds the file
as it is on the disk, one column of it, and the columns that are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.core.conversion import Conversion, Take
from headrace.lake.format import datafile, layout, schemas, thrift
from headrace.lake.format.plan import DataFile
from headrace.lake.format.statistics import of_columns
from headrace.lake.format.thrift import I16, I64, LIST, STRUCT, Struct
from headrace.lake.store.contract import Store

# parquet.thrift: FileMetaData, SchemaElement, RowGroup, ColumnChunk, ColumnMetaData
_SCHEMA, _ROWS, _GROUPS = 2, 3, 4
_NAME, _CHILDREN, _FIELD_ID = 4, 5, 9
_COLUMNS, _GROUP_BYTES, _GROUP_ROWS, _GROUP_OFFSET, _GROUP_STORED, _GROUP_NUMBER = 1, 2, 3, 5, 6, 7
_CHUNK_OFFSET, _CHUNK_META = 2, 3
_PATH, _PLAIN_BYTES, _STORED_BYTES, _DATA_AT, _INDEX_AT, _DICTIONARY_AT = 3, 6, 7, 9, 10, 11
_BLOOM_FILTER = (14, 15)  # lies elsewhere in the file, as page indexes do

_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a table before and after, and how the ones come of the others."""

    old: pa.Schema
    new: pa.Schema
    conversion: Conversion
    ids: tuple[int, ...] = ()  # field ids of the new columns


def convert(
    store: Store, folder: str, path: str, name: str, shape: Shape, *, at_most: int
) -> tuple[DataFile, tuple[bytes, bytes]] | None:
    """Write the file's rows under the new columns, as a file `name`, and say which range of keys it has.

    None where that can't be: another program wrote the file, or its rows would take more memory than
    `at_most`.
    """
    with datafile.readable(folder, path), store.open_input(f"{folder}/{path}") as source:
        old = _File(source.read_buffer())
        between = datafile.range_of(old.parquet.metadata)
        if between is None or not old.parquet.metadata.num_rows:
            return None
        sources = _Sources.of(old, shape)
        size, stats = _describe(sources)
    if size > at_most:
        return None
    with store.open_output(f"{folder}/{name}") as sink:
        for piece in _pieces(sources, datafile.footer_entries(size, between)):
            sink.write(piece)
        stored = sink.tell()
    return DataFile(path=name, size=stored, rows=old.parquet.metadata.num_rows, stats=stats), between


class _File:
    """A Parquet file in memory, and where its columns are."""

    def __init__(self, data: Any) -> None:
        self.data = memoryview(data)
        self.parquet = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)

    @cached_property
    def footer(self) -> Struct:
        length = int.from_bytes(self.data[-8:-4], "little")
        return thrift.decode(bytes(self.data[-8 - length : -8]))

    @cached_property
    def columns(self) -> dict[str, _Column]:
        """The columns by their name in the file."""
        elements = self.footer[_SCHEMA][1][1][1:]
        found: dict[str, _Column] = {}
        at = leaf = 0
        while at < len(elements):
            end = _end(elements, at)
            leaves = sum(_children(element) == 0 for element in elements[at:end])
            described = [dict(element) for element in elements[at:end]]
            name = described[0].pop(_NAME)[1].decode()
            for element in described:
                element.pop(_FIELD_ID, None)
            found[name] = _Column(leaf, leaves, described)
            at, leaf = end, leaf + leaves
        return found

    @property
    def groups(self) -> list[Struct]:
        groups: list[Struct] = self.footer[_GROUPS][1][1]
        return groups

    def read(self, name: str) -> pa.ChunkedArray:
        # By its name: "a.list" asks for the list `a` as well.
        return self.parquet.read([name], use_threads=False).column(name)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: its leaves among all, and how the schema describes it, without its name and field ids."""

    first: int
    leaves: int
    chunk_metas: list[Struct]


def _children(element: Struct) -> int:
    return int(element.get(_CHILDREN, (0, 0))[1])


def _end(elements: Sequence[Struct], at: int) -> int:
    """The place behind an element and all that is in it."""
    end = at + 1
    for _ in range(_children(elements[at])):
        end = _end(elements, end)
    return end


@dataclass(frozen=True, slots=True)
class _Sources:
    """The source of each new column: the old file under a name, or the columns that are made."""

    old: _File
    schema: pa.Schema  # of the new file
    origins: dict[str, str]  # names of new columns in the lake, and of those that they are
    converted_rows: pa.Table

    @classmethod
    def of(cls, old: _File, shape: Shape) -> _Sources:
        schema = schemas.to_lake(shape.new)
        if shape.ids:
            schema = schemas.with_field_ids(schema, shape.ids)
        wanted = _empty(schema, {}).columns
        names = [layout.lake_column(name) for name in shape.conversion.names]
        taken = {
            field.name: names[part.column]
            for field, part in zip(schema, shape.conversion.parts, strict=True)
            if isinstance(part, Take)
            and names[part.column] in old.columns
            and old.columns[names[part.column]].chunk_metas == wanted[field.name].chunk_metas
        }
        return cls(old, schema, taken, _convert_rest(old, shape, schema, taken))

    def column(self, name: str) -> pa.ChunkedArray:
        return self.old.read(self.origins[name]) if name in self.origins else self.converted_rows.column(name)


def _convert_rest(old: _File, shape: Shape, schema: pa.Schema, taken: dict[str, str]) -> pa.Table:
    """The columns whose chunks can't be taken, converted."""
    places = [place for place, field in enumerate(schema) if field.name not in taken]
    parts = [shape.conversion.parts[place] for place in places]
    columns = sorted({part.column for part in parts if isinstance(part, Take)})
    known = pa.schema([shape.old.field(column) for column in columns])
    lake_names = [layout.lake_column(field.name) for field in known]
    rows = old.parquet.read([name for name in lake_names if name in old.columns], use_threads=False)
    rows = rows.rename_columns([layout.unquote(name) for name in rows.column_names])
    narrower = Conversion(
        tuple(known.names),
        tuple(replace(p, column=columns.index(p.column)) if isinstance(p, Take) else p for p in parts),
    )
    return narrower.apply(datafile.conform(rows, known), pa.schema([schema.field(place) for place in places]))


def _describe(sources: _Sources) -> tuple[int, str]:
    """The memory that the rows take, and the statistics of their values; one column is held at a time."""
    size = 0

    def columns() -> Iterator[tuple[str, pa.ChunkedArray]]:
        nonlocal size
        for name in sources.schema.names:
            column = sources.column(name)
            size += column.nbytes
            yield name, column

    stats = of_columns(sources.old.parquet.metadata.num_rows, columns())
    return size, stats


def _pieces(sources: _Sources, entries: dict[bytes, bytes]) -> Iterator[bytes | memoryview]:
    """The new file's bytes, in order."""
    old = sources.old
    made = _encode(sources.converted_rows, [group[_GROUP_ROWS][1] for group in old.groups])
    yield _MAGIC
    at, groups = len(_MAGIC), []
    for number, group in enumerate(old.groups):
        chunks: list[Struct] = []
        for field in sources.schema:
            file, name = (
                (old, sources.origins[field.name]) if field.name in sources.origins else (made, field.name)
            )
            assert file is not None
            column = file.columns[name]
            leaves = file.groups[number][_COLUMNS][1][1][column.first : column.first + column.leaves]
            for meta in (leaf[_CHUNK_META][1] for leaf in leaves):
                start, size = _begin(meta), meta[_STORED_BYTES][1]
                yield file.data[start : start + size]
                chunks.append(_shift(meta, at - start, field.name))
                at += size
        groups.append(_group(chunks, number, group[_GROUP_ROWS][1]))
    footer = _empty(sources.schema, entries).footer
    footer |= {_ROWS: old.footer[_ROWS], _GROUPS: (LIST, (STRUCT, groups))}
    encoded = thrift.encode(footer)
    yield encoded + len(encoded).to_bytes(4, "little") + _MAGIC


def _begin(meta: Struct) -> int:
    """The first byte of a chunk: of its dictionary, where it has one."""
    starts = [meta[place][1] for place in (_DICTIONARY_AT, _DATA_AT) if place in meta]
    return int(min(start for start in starts if start > 0))


def _shift(meta: Struct, by: int, name: str) -> Struct:
    """A chunk so many bytes further on, of a column of this name."""
    kind, path = meta[_PATH][1]
    there = {place: field for place, field in meta.items() if place not in _BLOOM_FILTER}
    there[_PATH] = (LIST, (kind, [name.encode(), *path[1:]]))
    for place in (_DATA_AT, _INDEX_AT, _DICTIONARY_AT):
        if place in there and there[place][1] > 0:
            there[place] = (I64, there[place][1] + by)
    return {_CHUNK_OFFSET: (I64, 0), _CHUNK_META: (STRUCT, there)}


def _group(chunks: list[Struct], number: int, rows: int) -> Struct:
    metas = [chunk[_CHUNK_META][1] for chunk in chunks]
    return {
        _COLUMNS: (LIST, (STRUCT, chunks)),
        _GROUP_BYTES: (I64, sum(meta[_PLAIN_BYTES][1] for meta in metas)),
        _GROUP_ROWS: (I64, rows),
        _GROUP_OFFSET: (I64, _begin(metas[0])),
        _GROUP_STORED: (I64, sum(meta[_STORED_BYTES][1] for meta in metas)),
        _GROUP_NUMBER: (I16, number),
    }


def _empty(schema: pa.Schema, entries: dict[bytes, bytes]) -> _File:
    """A file of this schema without rows: its footer says all that does not depend on them."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.with_metadata(entries).empty_table(), sink)
    return _File(sink.getvalue())


def _encode(made: pa.Table, groups: Sequence[int]) -> _File | None:
    """The made columns as a file of its own, in the same groups of rows."""
    if not made.num_columns:
        return None
    sink, at = pa.BufferOutputStream(), 0
    with pq.ParquetWriter(sink, made.schema, **datafile.encoding(made, made.column_names)) as writer:
        for rows in groups:
            writer.write_table(made.slice(at, rows), row_group_size=rows)
            at += rows
    return _File(sink.getvalue())
