"""The change batch: the only shape in which row changes travel from a decoder to the lake.

A change batch holds the changes of one table, in the order of the log, as an Arrow record batch:

    _time       int64         the transaction's time (PostgreSQL: commit LSN)
    _ordinal    int64         the change's number within its transaction and table, in log order
    _transaction              the transaction's name, as the source has them (`core.transaction_id`)
    _commit_ts  timestamp us UTC
    _op         uint8         Op.INSERT, Op.UPDATE, Op.DELETE
    _image      uint8         what the `o` columns hold: Image.NONE, Image.KEY, Image.FULL
    n0 … nk     column types  the new row; NULL throughout for a delete
    o0 … ok     column types  the old row: all of it (FULL), its key columns only (KEY), or nothing
    u<i>        bool          present only where needed: the new value of column i is *unchanged*
                              and was not sent (TOAST); n<i> is NULL there and means nothing

Values without a faithful lake form travel beside it (`BAD`): they are NULL in the batch, and their raw text
goes to the lake's errors table, never into a message.

    _time, _ordinal, side ('n' | 'o'), column int32, raw string

Column numbers are positions in the table's `TableSchema`, so that no user's column name can collide
with ours.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import pyarrow as pa

from headrace.core.schema import TableSchema


class Op(IntEnum):
    """The kind of a change: it inserts, updates or deletes a row."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3


class Image(IntEnum):
    """The part of the old row that a change carries."""

    NONE = 0
    KEY = 1
    FULL = 2


TIMESTAMP = pa.timestamp("us", tz="UTC")


def meta_fields(schema: TableSchema) -> list[pa.Field]:
    """Return the columns of a change batch that are not the table's."""
    return [
        pa.field("_time", pa.int64(), nullable=False),
        pa.field("_ordinal", pa.int64(), nullable=False),
        schema.transaction.field("_transaction"),
        pa.field("_commit_ts", TIMESTAMP, nullable=False),
        pa.field("_op", pa.uint8(), nullable=False),
        pa.field("_image", pa.uint8(), nullable=False),
    ]


BAD = pa.schema(
    [
        pa.field("_time", pa.int64(), nullable=False),
        pa.field("_ordinal", pa.int64(), nullable=False),
        pa.field("side", pa.string(), nullable=False),
        pa.field("column", pa.int32(), nullable=False),
        pa.field("raw", pa.string(), nullable=False),
    ]
)


def bad_values(side: str, column: int, texts: pa.Array, times: Any, ordinals: Any) -> pa.Table:
    """Return the rows of `BAD` for values of one column on one side, whose changes have these times."""
    columns = [
        pa.array(times),
        pa.array(ordinals),
        pa.repeat(pa.scalar(side), len(texts)),
        pa.repeat(pa.scalar(column, pa.int32()), len(texts)),
        texts,
    ]
    return pa.Table.from_arrays(columns, schema=BAD)


def change_schema(schema: TableSchema, unchanged_columns: tuple[int, ...] = ()) -> pa.Schema:
    """Return the Arrow schema of a change batch of this table, with `u` columns for `unchanged`."""
    new = [pa.field(f"n{i}", column.type) for i, column in enumerate(schema.columns)]
    old = [pa.field(f"o{i}", column.type) for i, column in enumerate(schema.columns)]
    holes = [pa.field(f"u{i}", pa.bool_()) for i in unchanged_columns]
    return pa.schema([*meta_fields(schema), *new, *old, *holes])
