"""The names that sources give to their transactions, as changes and history carry them.

    XID     a number of 64 bits       history calls it `_xid`
    GTID    a text, `server:number`   history calls it `_gtid`

Between decoding and the lake the column is called `_transaction`, whatever stands in it. Rows that no
transaction of the source made (a mark that replaces a table's contents) bear the name of `nobody`.
"""

from __future__ import annotations

from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc


class TransactionId(Enum):
    """A way of naming transactions."""

    XID = "xid"
    GTID = "gtid"

    @property
    def column(self) -> str:
        """The column of history, unless the user has one of that name."""
        return f"_{self.value}"

    @property
    def is_number(self) -> bool:
        return self is TransactionId.XID

    @property
    def type(self) -> pa.DataType:
        return pa.int64() if self.is_number else pa.string()

    @property
    def nobody(self) -> int | str:
        """The name on rows that no transaction of the source made."""
        return 0 if self.is_number else ""

    def field(self, name: str) -> pa.Field:
        """A column of such names."""
        return pa.field(name, self.type, nullable=False)


def of_somebody(names: pa.ChunkedArray) -> pa.ChunkedArray:
    """Tell for each of these names of history whether it is a transaction's of the source.

    Ask before a handoff or a position is asked for the names: neither knows rows that we wrote ourselves.
    """
    way = TransactionId.XID if pa.types.is_integer(names.type) else TransactionId.GTID
    return pc.not_equal(names, pa.scalar(way.nobody, names.type))
