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

Every view of a change batch (key events, history, the net of a multiset) is a list of sides: for each
change its old row, its new row or both, the old one first. `Sides` is that list as two arrays; taking
a column of it picks from `n<i>` and `o<i>` at once, without a loop.

    change      0: INSERT   1: UPDATE   2: DELETE
    sides       (0, new)    (1, old)(1, new)    (2, old)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.columns import Flags, Ints, column, flags_or_none_set, ints
from headrace.core.errors import Definite
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


# --- the sides of a change ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sides:
    """A list of sides: `change[k]` is the change's row in the batch, `old[k]` which side of it."""

    change: Ints
    old: Flags

    @classmethod
    def of(cls, with_old: Flags, with_new: Flags) -> Sides:
        """The sides of each change that are asked for, old before new."""
        counts = with_old.astype(np.int64) + with_new
        change = np.repeat(np.arange(len(counts)), counts)
        first = np.ones(len(change), np.bool_)
        first[1:] = change[1:] != change[:-1]
        return cls(change, first & with_old[change])

    def pick(self, new: pa.Array, old: pa.Array) -> pa.Array:
        """The values of the sides, from the changes' new and old values."""
        if not self.old.any():
            return self.repeat(new)
        both = pa.concat_arrays([new, old])
        return both.take(pa.array(np.where(self.old, self.change + len(new), self.change)))

    def repeat(self, values: pa.Array) -> pa.Array:
        """The columns that both sides of a change share, such as its time."""
        if len(self.change) == len(values) and self._plain():
            return values
        return values.take(pa.array(self.change))

    def _plain(self) -> bool:
        return bool((self.change == np.arange(len(self.change))).all())


def operations(changes: pa.Table) -> tuple[Ints, Ints]:
    """The operation and the kind of old image of each change."""
    return ints(changes, "_op"), ints(changes, "_image")


def holes(changes: pa.Table, index: int, fillable: Flags) -> tuple[pa.Array, Flags]:
    """The new values of a column, with those that were not sent taken from the old row where it is
    `fillable`, and which of them are still missing."""
    new = column(changes, f"n{index}")
    unchanged = flags_or_none_set(changes, f"u{index}")
    if not unchanged.any():
        return new, unchanged
    filled = pc.if_else(pa.array(unchanged & fillable), column(changes, f"o{index}"), new)
    return filled, unchanged & ~fillable


def whole_images(schema: TableSchema, changes: pa.Table) -> tuple[Sides, list[pa.Array]]:
    """All sides of changes that carry whole old rows, and their values by column."""
    op, image = operations(changes)
    inserted = op == Op.INSERT
    full = image == Image.FULL
    _demand_whole(int((~full & ~inserted).sum()))
    sides = Sides.of(~inserted, op != Op.DELETE)
    values: list[pa.Array] = []
    for index in range(len(schema.columns)):
        new, missing = holes(changes, index, full)
        _demand_whole(int(missing.sum()))
        values.append(sides.pick(new, column(changes, f"o{index}")))
    return sides, values


def _demand_whole(lacking: int) -> None:
    if lacking:
        raise Definite(
            "CHANGE_WITHOUT_OLD_ROW",
            f"{lacking} changes came without the whole old row",
            detail="the table's identity was changed after its mirroring began",
            hint="set REPLICA IDENTITY FULL on the table again, then headrace tables resync",
        )
