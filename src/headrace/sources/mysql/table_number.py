"""The number of a table: how the records of a stream, and those of the lake, name it in one integer.

A binlog numbers tables anew whenever the server opens them, so a number is made of the name. Two names with
one number are thinkable; preflight refuses the second.
"""

from __future__ import annotations

import hashlib

from headrace.core.names import TableName

_BYTES = 6


def table_number(name: TableName) -> int:
    """The first 48 bits of a digest of the database's and the table's name."""
    text = f"{name.schema}\0{name.name}".encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.sha256(text).digest()[:_BYTES], "big")
