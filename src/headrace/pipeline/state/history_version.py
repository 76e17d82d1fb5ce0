"""The number of the folder in which a table's history goes on: of the last one, or of the next.

Called when a table arrives under whatever columns, and when it gets more of them while it is followed.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.core.history import history_schema
from headrace.core.names import TableName
from headrace.core.schema import TableSchema
from headrace.lake.format import layout
from headrace.pipeline.state.ledger import Ledger


def alike(other: pa.Schema, new: pa.Schema) -> bool:
    """Tell whether rows of both can lie in one folder."""
    return list(zip(other.names, other.types, strict=True)) == list(zip(new.names, new.types, strict=True))


def history_version(ledger: Ledger, name: TableName, schema: TableSchema) -> int:
    """The history that goes on: the last one, or where its columns are others the next. They have no gaps."""
    version = 1
    while (history := ledger.live.table(layout.history_folder(ledger.name, name, version))).version >= 0:
        following = ledger.live.table(layout.history_folder(ledger.name, name, version + 1))
        if following.version < 0 and alike(history.schema(), history_schema(schema)):
            return version
        version += 1
    return version
