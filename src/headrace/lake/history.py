"""History tables: what happened to each row, under the user's columns and five of our own.

    _time        the transaction's time                   _xid         its 64-bit id, or -1
    _diff        +1 the row came, -1 it went              _commit_ts   its commit timestamp
    _ordinal     the change's number within transaction and table; an update's two rows share it

Where the user has a column of such a name (in any case), ours gets a further `_` at its front until it is
free: `__time`. Rows count only up to the newest mark's time: an epoch writes its history before its mark.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from headrace.core.changes import TIMESTAMP
from headrace.core.schema import TableSchema

OWN = pa.schema(
    [
        pa.field("_time", pa.int64(), nullable=False),
        pa.field("_diff", pa.int64(), nullable=False),
        pa.field("_ordinal", pa.int64(), nullable=False),
        pa.field("_xid", pa.int64(), nullable=False),
        pa.field("_commit_ts", TIMESTAMP, nullable=False),
    ]
)


def own_names(columns: Iterable[str]) -> dict[str, str]:
    """How our columns are called beside the user's: `_time` → `_time`, or with more underscores."""
    taken = {name.lower() for name in columns}
    names: dict[str, str] = {}
    for own in OWN.names:
        free = own
        while free in taken:
            free = f"_{free}"
        names[own] = free
        taken.add(free)
    return names


def history_schema(schema: TableSchema) -> pa.Schema:
    """The schema of the history of a table: the user's columns, nullable as they are, then ours."""
    names = own_names(schema.names)
    return pa.schema([*schema.arrow(), *(field.with_name(names[field.name]) for field in OWN)])
