"""The frames in the spool: binlog events without their checksums, and three kinds of our own.

    event       timestamp u32, kind u8, server id u32, size u32, position u32, flags u16; then the body
    BEGIN       time i64, commit_ts i64 (microseconds since 1970), length u16, GTID in ASCII
    TRUNCATE    length u16, database, length u16, table: emptied here
    ALTERED     reason u8, length u16, database, length u16, table: an effect that no row shows; then
                the steps of an ALTER TABLE in a closed form (`steps`)

All numbers are little endian, names are utf8mb4. `transactions` writes frames, the source's decoder reads
them. A frame never holds a statement or an annotation, which may have passwords and values. (It may hold a
column's constant default, which is a value of the table.)
"""

from __future__ import annotations

import struct

from headrace.sources.mysql.ddl.steps import Reason

HEADER = struct.Struct("<IBIIIH")
BEGIN, TRUNCATE, ALTERED = 250, 251, 252
_BEGIN = struct.Struct("<qqH")
_LENGTH = struct.Struct("<H")


def frame(kind: int, timestamp: int, server: int, body: bytes, position: int = 0, flags: int = 0) -> bytes:
    """A frame of any kind."""
    return HEADER.pack(timestamp, kind, server, HEADER.size + len(body), position, flags) + body


def begin(time: int, commit_ts: int, gtid: str) -> bytes:
    """The body of a BEGIN."""
    return _BEGIN.pack(time, commit_ts, len(gtid)) + gtid.encode("ascii")


def truncate(database: str, table: str) -> bytes:
    """The body of a TRUNCATE."""
    return _name(database) + _name(table)


def altered_frame(reason: Reason, database: str, table: str, steps: bytes = b"") -> bytes:
    """The body of an ALTERED."""
    return bytes([reason]) + _name(database) + _name(table) + steps


def _name(name: str) -> bytes:
    written = name.encode()
    return _LENGTH.pack(len(written)) + written
