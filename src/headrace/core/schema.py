"""The shape of a mirrored table: its columns, its identity, and how one version follows another.

A `Column` knows two types: `type` is the Arrow type that the lake holds, `form` names the decoder
that turns the source's text into it (`headrace.decode.values` lists the forms). The two are decided
once, when the source's catalog is read, and recorded with the table, so that a value that arrives
years later is decoded as the first one was.

`key` names the identity columns in the order of the source's index. An empty key means that the table
has none: it is a multiset, a row is told apart by all of its values, and `full` must be true.
`earlier` are the columns that the table had before changes that were followed, the oldest first, each with
its conversion to these: the stream may still bring changes under them.
`full` says that the stream carries whole before-images (REPLICA IDENTITY FULL), and `transaction` by what
names its changes tell the transactions apart that made them. `is_ordered` says that changes of one time come
in the order in which they happened. Where they do not they are a collection: whole rows that went, and whole
rows that came, with a place for truncations alone (`core.net_events`).
`field_ids` number the columns in Parquet files: a column keeps its number under another name, and no second
column gets it. `last_field_id` is the highest number that the table ever gave.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count

import pyarrow as pa

from headrace.core import records
from headrace.core.conversion import Conversion
from headrace.core.hashing import clear_form, hashed_form
from headrace.core.records import on_disk
from headrace.core.transaction_id import TransactionId

_SPARK_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
}


def spark_name(kind: pa.DataType) -> str:
    """The name of a type of the lake, as Spark calls it."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{spark_name(kind.value_type)}>"
    return _SPARK_NAMES.get(kind, str(kind))


@dataclass(frozen=True, slots=True)
class Column:
    """One column: as the source names it, as the lake types it, as the decoder reads it."""

    name: str
    type: pa.DataType
    form: str
    source_type: str
    nullable: bool = True
    # Of `type`, for readers without Arrow.
    lake_type: str = field(default="", compare=False, metadata=on_disk(optional=True))
    # Of a column that holds hashes (`core.hashing`): the type that its values would have.
    clear_type: pa.DataType | None = field(default=None, metadata=on_disk(sparse=True))

    def __post_init__(self) -> None:
        object.__setattr__(self, "lake_type", spark_name(self.type))

    @property
    def as_hashes(self) -> Column:
        """The column that holds hashes of the values."""
        return replace(self, type=pa.string(), form=hashed_form(self.form), clear_type=self.type)

    @property
    def clear(self) -> Column:
        """The column that would hold the values themselves; they must not leave."""
        if self.clear_type is None:
            return self
        return replace(self, type=self.clear_type, form=clear_form(self.form), clear_type=None)


@lru_cache(maxsize=4096)
def _write(type: pa.DataType) -> str:
    serialised = pa.schema([pa.field("c", type)]).serialize().to_pybytes()
    return base64.b64encode(serialised).decode("ascii")


@lru_cache(maxsize=4096)
def _read(record: str) -> pa.DataType:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(record, validate=True))).field(0).type


records.register(pa.DataType, _write, _read)


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns and the identity of a table, as of one version."""

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    full: bool
    version: int = 1
    transaction: TransactionId = TransactionId.XID
    earlier: tuple[Conversion, ...] = field(default=(), metadata=on_disk(optional=True))
    is_ordered: bool = field(default=True, metadata=on_disk("ordered", sparse=True))
    field_ids: tuple[int, ...] = field(default=(), compare=False, metadata=on_disk(sparse=True))
    last_field_id: int = field(default=0, compare=False, metadata=on_disk(sparse=True))

    def __post_init__(self) -> None:
        if not (self.is_ordered or self.full):
            raise ValueError("only whole rows can be netted")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that tell rows apart: the key, or all of them for a multiset."""
        return self.key or self.names

    @property
    def is_multiset(self) -> bool:
        return not self.key

    @property
    def ids(self) -> tuple[int, ...]:
        """The columns' field ids; without any recorded, their places."""
        return self.field_ids or tuple(range(1, len(self.columns) + 1))

    @property
    def last_id(self) -> int:
        """The highest field id that a column of the table ever had."""
        return max(self.last_field_id, *self.ids)

    def numbered_by(self, ids: Iterable[int | None], last: int) -> TableSchema:
        """Return the columns with these field ids; None gets one that no column had, up from `last`."""
        free = count(last + 1)
        given = tuple(next(free) if known is None else known for known in ids)
        return replace(self, field_ids=given, last_field_id=max(last, *given))

    def numbered_after(self, old: TableSchema) -> TableSchema:
        """Return the columns of a copy with field ids: those of the old columns if they are the same."""
        alike = [(c.name, c.type) for c in self.columns] == [(c.name, c.type) for c in old.columns]
        return self.numbered_by(old.ids if alike else [None] * len(self.columns), old.last_id)

    def at_time(self, time: int) -> TableSchema:
        """Return the schema once the stream has come to a time: rows of earlier columns come no more."""
        return replace(self, earlier=tuple(known for known in self.earlier if known.until > time))

    def arrow(self) -> pa.Schema:
        """The schema of the table's current state in the lake."""
        return pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in self.columns])
