"""MariaDB's COMPRESSED columns: in a row event they lie as they are stored, one value at a time.

89 64 4b 4c ...      8 deflate, 9: its length in one byte (the low three bits); then deflate's bytes
00 61 62 63          as it is; no byte at all is the empty value
"""

from __future__ import annotations

import zlib

import pyarrow as pa

from headrace.core.errors import Definite
from headrace.decode.text import TextColumn

_PLAIN, _DEFLATE = 0, 8


def unpack(column: TextColumn) -> TextColumn:
    """The values as they were written."""
    values = column.binary(pa.binary()).to_pylist()
    return TextColumn.of([None if value is None else _one(value) for value in values])


def _one(value: bytes) -> bytes:
    if not value:
        return b""
    method, size = value[0] >> 4, value[0] & 7
    if method == _PLAIN:
        return value[1:]
    if method == _DEFLATE:
        length = int.from_bytes(value[1 : 1 + size], "big")
        try:
            # No more than it says: of what is damaged nobody knows how much would come.
            plain = zlib.decompressobj(-zlib.MAX_WBITS).decompress(value[1 + size :], length + 1)
        except zlib.error:
            plain = None
        if plain is not None and len(plain) == length:
            return plain
    raise Definite(
        "MY_VALUE_PACKED",
        "a value of a COMPRESSED column can't be unpacked",
        hint="report it with the server's version; ALTER TABLE ... MODIFY the column without COMPRESSED",
    )
