"""Events of a binlog as a server would send them, put together for tests."""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Sequence

from headrace.sources.mysql.stream import events
from headrace.sources.mysql.stream.frames import HEADER

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
NOW = 1_700_000_000  # seconds since 1970
COMMITTED = NOW * 1_000_000 + 123_456


def event(kind: int, body: bytes, *, server: int = 1, flags: int = 0, checksum: bool = True) -> bytes:
    """Any event, with its checksum."""
    size = HEADER.size + len(body) + 4 * checksum
    data = HEADER.pack(NOW, kind, server, size, 4711, flags) + body
    return data + struct.pack("<I", zlib.crc32(data)) if checksum else data


def description(checksums: bool = True, flags: int = 0) -> bytes:
    """The description of the format."""
    body = struct.pack("<H50sIB", 4, b"9.7.4", NOW, 19) + bytes(41) + bytes([checksums])
    return event(events.FORMAT, body, flags=flags)


def gtid(number: int, server: str = SERVER, *, replicated: bool = False, checksum: bool = True) -> bytes:
    """MySQL's beginning of a group; one that was replicated says two times."""
    times = COMMITTED.to_bytes(7, "little")
    if replicated:
        times = (COMMITTED + 999 | 1 << 55).to_bytes(7, "little") + times
    body = b"\1" + uuid.UUID(server).bytes + struct.pack("<QBQQ", number, 2, 0, 1) + times
    return event(events.GTID, body + b"\xfc\x00\x01" + bytes(4), checksum=checksum)


def _serialised(value: int) -> bytes:
    """A number of a serialised message: the low bits of the first byte say how many bytes there are."""
    for size in range(1, 9):
        if value < 1 << 7 * size:
            return (value << size | (1 << size - 1) - 1).to_bytes(size, "little")
    return b"\xff" + value.to_bytes(8, "little")


def tagged(number: int, tag: str, server: str = SERVER) -> bytes:
    """MySQL's beginning of a group with a tag."""
    fields = b"\0" + _serialised(1) + b"\2" + b"".join(map(_serialised, uuid.UUID(server).bytes))
    fields += b"\4" + _serialised(number << 1) + b"\6" + _serialised(len(tag)) + tag.encode()
    fields += b"\x0c" + _serialised(COMMITTED)
    return event(events.GTID_TAGGED, _serialised(1) + _serialised(len(fields)) + b"\0" + fields)


def mariadb(number: int, domain: int = 0, *, server: int = 1, flags: int = 4) -> bytes:
    """MariaDB's beginning of a group."""
    return event(events.MARIADB_GTID, struct.pack("<QIB", number, domain, flags) + bytes(6), server=server)


def query(
    text: str | bytes,
    database: str = "shop",
    *,
    mode: int | None = None,
    charset: int = 255,
    changed: Sequence[str] | None = None,
    checksum: bool = True,
    kind: int = events.QUERY,
) -> bytes:
    """A statement."""
    variables = b"\0" + bytes(4)
    variables += b"" if mode is None else b"\1" + struct.pack("<Q", mode)
    variables += b"\6\3std\4" + struct.pack("<HHH", charset, 33, 33)
    if changed is not None:
        variables += bytes([12, len(changed)]) + b"".join(name.encode() + b"\0" for name in changed)
    name = database.encode()
    head = struct.pack("<IIBHH", 7, 0, len(name), 0, len(variables))
    head += bytes(13) if kind == events.EXECUTE_LOAD else b""
    written = text.encode() if isinstance(text, str) else text
    return event(kind, head + variables + name + b"\0" + written, checksum=checksum)


def table_map(number: int, database: str, table: str, *, checksum: bool = True) -> bytes:
    """The description of a table of one integer."""
    body = number.to_bytes(6, "little") + b"\1\0" + events.as_key(database, table) + b"\1\3\0\0"
    return event(events.TABLE_MAP, body, checksum=checksum)


def rows(number: int, data: bytes = b"\0\7\0\0\0", *, kind: int = 30, checksum: bool = True) -> bytes:
    """Changes of a table of one column."""
    more = b"\2\0" if kind >= 30 else b""
    bits = b"\xff\xff" if kind in (24, 31) else b"\xff"
    return event(kind, number.to_bytes(6, "little") + b"\1\0" + more + b"\1" + bits + data, checksum=checksum)


def xid(*, checksum: bool = True) -> bytes:
    """The end of a transaction."""
    return event(events.XID, bytes(8), checksum=checksum)


def xa_prepare(name: str, *, one_phase: bool = False) -> bytes:
    """The end of the rows of an XA transaction."""
    return event(events.XA_PREPARE, struct.pack("<?iII", one_phase, 1, len(name), 0) + name.encode())


def payload(inner: Sequence[bytes], packed: bytes, way: int = 0) -> bytes:
    """A compressed transaction; `inner` are its events without checksums."""
    size = sum(map(len, inner))
    way_field = bytes([way]) if way < 251 else b"\xfc" + way.to_bytes(2, "little")
    fields = b"\2" + bytes([len(way_field)]) + way_field
    for field, value in ((3, size), (1, len(packed))):
        fields += bytes([field]) + b"\x09\xfe" + value.to_bytes(8, "little")
    return event(events.PAYLOAD, fields + b"\0" + packed)
