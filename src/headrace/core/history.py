"""History: every side of every change, as the lake keeps it.

A row of history is the user's columns, then

    _time, _diff, _ordinal, _transaction, _commit_ts

where the lake says `_xid` or `_gtid` for `_transaction`, as the source names its transactions.

An insert is one row with `_diff` +1, a delete one with -1 that carries the whole old row, an update two
with one ordinal, -1 first. Nothing is netted: the history of a table is what its rows went through, and
its sum between two times is the difference of the contents.

Rows count only up to the newest mark's time: an epoch writes its history before its mark.

`history` makes it straight from the changes, for tables whose changes carry whole old rows. For the
others `fold` makes the same rows from the state.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from headrace.core.change_batch import TIMESTAMP, Sides, whole_images
from headrace.core.columns import column
from headrace.core.schema import TableSchema
from headrace.core.transaction_id import TransactionId

OWN = ("_time", "_diff", "_ordinal", "_transaction", "_commit_ts")
_OWN_IDS = tuple(range(900_001, 900_001 + len(OWN)))  # field ids, above those of all columns of a table


def own_fields(transaction: TransactionId = TransactionId.XID) -> dict[str, pa.Field]:
    """Our columns by their plain names, as they are called where the user has none of these names."""
    fields = [
        pa.field("_time", pa.int64(), nullable=False),
        pa.field("_diff", pa.int64(), nullable=False),
        pa.field("_ordinal", pa.int64(), nullable=False),
        transaction.field(transaction.column),
        pa.field("_commit_ts", TIMESTAMP, nullable=False),
    ]
    return dict(zip(OWN, fields, strict=True))


def own_names(columns: Iterable[str], transaction: TransactionId = TransactionId.XID) -> dict[str, str]:
    """Name our columns beside the user's: `_time` → `_time`, or with more underscores.

    Where the user has a column of our name, in any case, ours gets a further `_` at its front.
    """
    return dict(
        zip(OWN, free_names(columns, (f.name for f in own_fields(transaction).values())), strict=True)
    )


def free_names(columns: Iterable[str], own: Iterable[str]) -> list[str]:
    """Our names in their order, each with as many `_` at its front as keep it apart."""
    taken = {name.lower() for name in columns}
    names: list[str] = []
    for free in own:
        while free.lower() in taken:
            free = f"_{free}"
        names.append(free)
        taken.add(free.lower())
    return names


def history_schema(schema: TableSchema) -> pa.Schema:
    """The columns of the table's history: the user's, then ours."""
    names = own_names(schema.names, schema.transaction)
    ours = [field.with_name(names[plain]) for plain, field in own_fields(schema.transaction).items()]
    return pa.schema([*schema.arrow(), *ours])


def history_ids(schema: TableSchema) -> tuple[int, ...]:
    """The field ids of the table's history."""
    return (*schema.ids, *_OWN_IDS)


def history(schema: TableSchema, changes: pa.Table) -> pa.Table:
    """The history of changes that carry whole old rows, in their order."""
    sides, values = whole_images(schema, changes)
    return pa.Table.from_arrays([*values, *_ours(sides, changes)], schema=history_schema(schema))


def _ours(sides: Sides, changes: pa.Table) -> list[pa.Array]:
    def of_change(name: str) -> pa.Array:
        return sides.repeat(column(changes, name))

    diffs = pa.array(np.where(sides.old, -1, 1), pa.int64())
    return [of_change("_time"), diffs, *map(of_change, ("_ordinal", "_transaction", "_commit_ts"))]
