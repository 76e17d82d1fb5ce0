"""The events of a binlog: parsed as far as a stream needs it, with their checksums verified.

    00 │ timestamp  kind  server  size  position  flags │ body ............. │ crc32
    ok   u32        u8    u32     u32   u32       u16                          if the file says so

The stream, and each file that it goes through, begins with a format description, which says whether checksums
follow.

An event of an unknown kind stops the source, unless the server marks it as one that may be ignored. The
numbers of kinds are those of both servers: MySQL's own are below 160, MariaDB's begin there. Only the effects
that `statements` finds survive of a statement: no error here quotes it.

Events may be compressed: MySQL compresses whole transactions with zstd, MariaDB single events with zlib.

    MySQL     Transaction_payload   │ fields │ zstd: event event event ... │     unpacked piece by piece
    MariaDB   rows, statements      │ head │ 1000 nnnn, size, zlib ....... │     each is as large as one event

A payload may unpack to far more than its size. So its events are returned one by one, and memory holds only
one event and one piece of the unpacked bytes. It uses Arrow's zstd, which is installed anyway, and loads it
only when a payload comes.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from headrace.sources.mysql.ddl.statements import QueryEvent
from headrace.sources.mysql.gtid_set import Gtid, GtidOrigin
from headrace.sources.mysql.mariadb_position import MariadbGtid
from headrace.sources.mysql.stream import errors
from headrace.sources.mysql.stream.frames import HEADER

QUERY, STOP, ROTATE, INTVAR, LOAD, RAND, USER_VAR, FORMAT = 2, 3, 4, 5, 6, 13, 14, 15
APPEND_BLOCK, DELETE_FILE, XID, BEGIN_LOAD, EXECUTE_LOAD, TABLE_MAP = 9, 11, 16, 17, 18, 19
INCIDENT, HEARTBEAT, IGNORABLE, ROWS_QUERY, GTID, ANONYMOUS, PREVIOUS_GTIDS = 26, 27, 28, 29, 33, 34, 35
TRANSACTION_CONTEXT, VIEW_CHANGE, XA_PREPARE, PARTIAL_UPDATE, PAYLOAD = 36, 37, 38, 39, 40
HEARTBEAT_2, GTID_TAGGED = 41, 42
ANNOTATE, CHECKPOINT, MARIADB_GTID, GTID_LIST, ENCRYPTION, QUERY_COMPRESSED = 160, 161, 162, 163, 164, 165
NAMES = frozenset({GTID, GTID_TAGGED, MARIADB_GTID})
ROWS = frozenset({23, 24, 25, 30, 31, 32, PARTIAL_UPDATE})
ROWS_COMPRESSED = {166: 23, 167: 24, 168: 25, 169: 30, 170: 31, 171: 32}  # and their kinds when unpacked

# The kinds that mean nothing to the rows of tables.
_PASSED_OVER = frozenset(
    {STOP, INTVAR, RAND, USER_VAR, APPEND_BLOCK, DELETE_FILE, BEGIN_LOAD, IGNORABLE, ROWS_QUERY}
    | {PREVIOUS_GTIDS, TRANSACTION_CONTEXT, VIEW_CHANGE, ANNOTATE, CHECKPOINT, GTID_LIST, ENCRYPTION}
)
_READ = frozenset(
    {QUERY, ROTATE, FORMAT, XID, EXECUTE_LOAD, TABLE_MAP, INCIDENT, HEARTBEAT, HEARTBEAT_2, GTID, ANONYMOUS}
    | {XA_PREPARE, PAYLOAD, GTID_TAGGED, MARIADB_GTID, QUERY_COMPRESSED}
) | ROWS.union(ROWS_COMPRESSED)

KNOWN = _READ | _PASSED_OVER

_FLAG_IN_USE, _FLAG_IGNORABLE = 0x01, 0x80
_CHECKSUM = 4
_CRC32 = 1
_TIMESTAMP = (1 << 55) - 1
_STANDALONE, _GROUP_COMMIT, _PREPARED_XA, _COMPLETED_XA = 1, 2, 64, 128

_U16, _U32, _U64 = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<Q")
_QUERY = struct.Struct("<IIBHH")
_XID = struct.Struct("<?III")
_FORM = (1 << 32) - 1
_MARIADB_GTID = struct.Struct("<QIB")


class BinlogEvent(NamedTuple):
    """One event, without its checksum."""

    kind: int
    timestamp: int  # seconds since 1970
    server: int
    position: int
    flags: int
    body: memoryview
    size: int = 0  # in the file

    @property
    def at(self) -> int:
        """The place of its start in its file."""
        return self.position - self.size


class GroupStart(NamedTuple):
    """The first event of a group, with the group's name."""

    gtid: Gtid | MariadbGtid
    commit_ts: int  # microseconds since 1970
    alone: bool = False  # one statement follows, and no end
    xa: bool = False  # the rows of an XA transaction follow, then its PREPARE
    is_open: bool = False  # rows follow at once, without a BEGIN


class XaPrepare(NamedTuple):
    """The PREPARE of an XA transaction, or its COMMIT ONE PHASE."""

    xid: bytes
    one_phase: bool


class EventReader:
    """Parses the events of one connection; call `read` with each of them, in order.

    The first one names a file, and comes before any format description. So the server's setting says whether
    it has a checksum (`is_checked`).
    """

    def __init__(self, *, is_checked: bool = False) -> None:
        self._checksums: bool | None = None  # None before the first format description
        self._is_checked = is_checked

    @property
    def trailer(self) -> int | None:
        """The bytes of a checksum behind each event; None before the first format description."""
        return None if self._checksums is None else _CHECKSUM * self._checksums

    def read(self, data: memoryview) -> BinlogEvent | None:
        """Parse an event as the server sent it; None if it has no meaning here."""
        if len(data) < HEADER.size:
            raise errors.damaged_error("it is shorter than a header")
        timestamp, kind, server, size, position, flags = HEADER.unpack_from(data)
        if size != len(data):
            raise errors.damaged_error(f"it is {len(data)} bytes long and says {size}")
        if kind == FORMAT:
            self._checksums = _checksums(data)
        if self._checksums:
            data = _verify(data, kind, flags)
        elif self._checksums is None and kind == ROTATE:
            data = _verify(data, kind, flags) if self._is_checked else _without_checksum(data)
        if kind in _READ:
            return BinlogEvent(kind, timestamp, server, position, flags, data[HEADER.size :], size)
        if kind not in _PASSED_OVER and not flags & _FLAG_IGNORABLE:
            raise errors.unknown_error(kind)
        return None

    def read_inner(self, data: memoryview) -> BinlogEvent | None:
        """Parse an event of a compressed transaction, which has no checksum."""
        outer, self._checksums = self._checksums, False
        try:
            return self.read(data)
        finally:
            self._checksums = outer


def _checksums(data: memoryview) -> bool:
    """Tell whether a file's events have checksums, by its format description, which always has one itself."""
    if len(data) < HEADER.size + 2 + 50 + 4 + 1 + 1 + _CHECKSUM:
        raise errors.damaged_error("the description of the binlog's format is too short")
    if data[-_CHECKSUM - 1] == _CRC32:
        return True
    as_written = bytearray(data)
    as_written[-_CHECKSUM - 1] = _CRC32
    if _fits(memoryview(as_written), FORMAT, data[17] | data[18] << 8):
        raise errors.damaged_error("the description of the binlog's format denies the checksums that it has")
    if data[-_CHECKSUM - 1] not in (0, 255):
        raise errors.unknown_error(FORMAT)
    return False


def _without_checksum(data: memoryview) -> memoryview:
    body = data[:-_CHECKSUM]
    return body if _U32.pack(zlib.crc32(body)) == data[-_CHECKSUM:] else data


def _verify(data: memoryview, kind: int, flags: int) -> memoryview:
    """The event without its checksum; raises if that is wrong."""
    if not _fits(data, kind, flags):
        raise errors.damaged_error(f"the checksum of an event of kind {kind} does not fit")
    return data[:-_CHECKSUM]


def _fits(data: memoryview, kind: int, flags: int) -> bool:
    """Tell whether the checksum at the end of an event is right."""
    body = data[:-_CHECKSUM]
    said = int.from_bytes(data[-_CHECKSUM:], "little")
    if zlib.crc32(body) == said:
        return True
    if kind != FORMAT:
        return False
    unused = bytearray(body)
    # Some servers set the in-use flag of a format description after they have computed its checksum.
    unused[17:19] = _U16.pack(flags & ~_FLAG_IN_USE)
    return zlib.crc32(unused) == said


def file_name(event: BinlogEvent) -> str:
    """The name of the next file, from a ROTATE."""
    return bytes(event.body[8:]).decode("utf-8", "surrogateescape")


def group_start(event: BinlogEvent) -> GroupStart:
    """The name of the group that begins with this event."""
    if event.kind == GTID:
        return _gtid(event.body)
    if event.kind == GTID_TAGGED:
        return _read_tagged(event.body)
    return _mariadb(event)


@lru_cache(64)
def _origin(server: bytes, tag: str = "") -> GtidOrigin:
    return GtidOrigin(str(uuid.UUID(bytes=server)), tag)


def _gtid(body: memoryview) -> GroupStart:
    """Parse flags u8, uuid, number u64, kind u8, two u64; commit_ts in 7 bytes, then the origin's."""
    if len(body) < 49:
        raise errors.anonymous("it says no time of its commit")
    immediate = int.from_bytes(body[42:49], "little")
    if immediate >> 55:
        immediate = int.from_bytes(body[49:56], "little")
    gtid = Gtid(_origin(bytes(body[1:17])), _U64.unpack_from(body, 17)[0])
    return GroupStart(gtid, immediate & _TIMESTAMP)


def _mariadb(event: BinlogEvent) -> GroupStart:
    """Parse number u64, domain u32, flags u8; the time is the header's, in whole seconds."""
    number, domain, flags = _MARIADB_GTID.unpack_from(event.body)
    gtid = MariadbGtid(domain, event.server, number)
    alone, xa = bool(flags & _STANDALONE), bool(flags & _PREPARED_XA)
    return GroupStart(gtid, event.timestamp * 1_000_000, alone, xa, is_open=not alone)


class _Message:
    """The serialised fields of a tagged GTID: numbers of one to nine bytes; the low bits give the length."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = 0

    def number(self) -> int:
        first = self._body[self._at]
        more = (~first & (first + 1)).bit_length() - 1  # low bits that are set
        size = min(more, 8) + 1
        value = int.from_bytes(self._body[self._at : self._at + size], "little")
        self._at += size
        return value >> min(more + 1, 8) if more >= 8 else value >> size

    def read_signed(self) -> int:
        value = self.number()
        return -(value >> 1) - 1 if value & 1 else value >> 1

    def text(self, size: int) -> str:
        self._at += size
        return bytes(self._body[self._at - size : self._at]).decode("ascii")

    @property
    def more(self) -> bool:
        return self._at < len(self._body)


def _read_tagged(body: memoryview) -> GroupStart:
    message = _Message(body)
    version, _, _ = message.number(), message.number(), message.number()
    if version != 1:
        raise errors.unknown_error(GTID_TAGGED)
    found: dict[int, int] = {}
    server, tag = b"", ""
    while message.more:
        field = message.number()
        if field == 1:
            server = bytes(message.number() for _ in range(16))
        elif field == 2:
            found[field] = message.read_signed()
        elif field == 3:
            tag = message.text(message.number())
        else:
            found[field] = message.number()
    if len(server) != 16 or 2 not in found or 6 not in found:
        raise errors.damaged_error("a tagged GTID lacks a part")
    return GroupStart(Gtid(_origin(server, tag), found[2]), found.get(7, found[6]))


def query(event: BinlogEvent) -> QueryEvent:
    """The statement of an event, compressed if the event is."""
    body = event.body
    _, _, length, error, variables = _QUERY.unpack_from(body)
    start = _QUERY.size
    if event.kind == EXECUTE_LOAD:
        start += 13  # fields of LOAD DATA: the file, the places of its name, the handling of duplicates
    at = start + variables
    if at + length + 1 > len(body):
        raise errors.damaged_error("a statement is shorter than it says")
    mode, charset, databases = _variables(bytes(body[start:at]))
    database = bytes(body[at : at + length])
    return QueryEvent(body[at + length + 1 :], database, mode, charset, databases, error)


# The status variables of a statement that come before or between the needed ones, with their lengths. For
# those with None the first byte is the length.
_VARIABLES = {0: 4, 1: 8, 3: 4, 4: 6, 5: None, 6: None, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 16: 1, 17: 8, 18: 2}
_SQL_MODE, _CHARSET, _INVOKER, _DATABASES = 1, 4, 11, 12
_TOO_MANY = 254


def _variables(found: bytes) -> tuple[int, int, tuple[bytes, ...] | None]:
    """The SQL mode, the client's charset, and the changed databases; an unknown variable ends the search."""
    mode, charset, databases, at = 0, 0, None, 0
    while at < len(found):
        code, at = found[at], at + 1
        if code == _INVOKER:
            at += 1 + found[at]
            at += 1 + found[at]
            continue
        if code == _DATABASES:
            number, at = found[at], at + 1
            if number != _TOO_MANY:
                parts = found[at:].split(b"\0", number)
                databases = tuple(parts[:number])
                at += sum(map(len, databases)) + number
            continue
        if code not in _VARIABLES:
            break
        size = _VARIABLES[code]
        if code == _SQL_MODE:
            (mode,) = _U64.unpack_from(found, at)
        elif code == _CHARSET:
            (charset,) = _U16.unpack_from(found, at)
        at += 1 + found[at] if size is None else size
    return mode, charset, databases


def table_key(body: memoryview) -> tuple[bytes, bytes]:
    """The id of a table, and its names as in a TABLE_MAP: each with its length before, and a zero behind."""
    names = 8 + 1 + body[8] + 1
    end = names + 1 + body[names] + 1
    if end > len(body):
        # A cut key might match the names of another table.
        raise errors.damaged_error("a table map ends within its names")
    return bytes(body[:6]), bytes(body[8:end])


def as_key(database: str, table: str) -> bytes:
    """The names of a table in the form of `table_key`."""
    parts = [name.encode() for name in (database, table)]
    return b"".join(bytes([len(part)]) + part + b"\0" for part in parts)


def xa_prepare(event: BinlogEvent) -> XaPrepare:
    """Parse the event at the end of an XA transaction's rows."""
    one_phase, form, first, second = _XID.unpack_from(event.body)
    data = bytes(event.body[_XID.size : _XID.size + first + second])
    return XaPrepare(xid(form, data[:first], data[first:]), one_phase)


def xid(form: int, first: bytes, second: bytes) -> bytes:
    """The name of an XA transaction as one value.

    The number of its format has 64 bits in statements, and 32 in the PREPARE event.
    """
    return struct.pack("<II", form & _FORM, len(first)) + first + second


PIECE = 256 * 1024
_END, _SIZE, _TYPE = 0, 1, 2
_ZSTD, _NONE = 0, 255
_ZLIB = 0x80  # MariaDB's only compression
_LARGEST = 1 << 32  # bytes of an event


def inner_events(event: BinlogEvent) -> Iterator[memoryview]:
    """Yield the events of a payload, which have no checksums."""
    way, packed = _fields(event.body)
    held = bytearray()
    for piece in _pieces(way, packed):
        held += piece
        at = 0
        while len(held) - at >= HEADER.size:
            size = int.from_bytes(held[at + 9 : at + 13], "little")
            if size < HEADER.size:
                raise errors.damaged_error("an event in a compressed transaction is shorter than its header")
            if len(held) - at < size:
                break
            yield memoryview(bytes(held[at : at + size]))
            at += size
        del held[:at]
    if held:
        raise errors.damaged_error("a compressed transaction ends within an event")


def _fields(body: memoryview) -> tuple[int, memoryview]:
    """Parse a payload: its kind of compression, and its bytes."""
    way, at = _ZSTD, 0
    while True:
        field, at = packed_number(body, at)
        if field == _END:
            return way, body[at:]
        length, at = packed_number(body, at)
        if field == _TYPE:
            way, _ = packed_number(body, at)
        at += length


def packed_number(body: memoryview, at: int) -> tuple[int, int]:
    """A number of MySQL's one, three, four or nine bytes, and its end."""
    if at >= len(body):
        raise errors.damaged_error("it ends within a number")
    first = body[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}.get(first, 0)
    if not size or at + 1 + size > len(body):
        raise errors.damaged_error("it ends within a number")
    return int.from_bytes(body[at + 1 : at + 1 + size], "little"), at + 1 + size


def _pieces(way: int, packed: memoryview) -> Iterator[bytes]:
    if way == _NONE:
        yield bytes(packed)
        return
    if way != _ZSTD:
        raise errors.damaged_error(f"a transaction is compressed in a way that is not known: {way}")
    # Imported late: a receiver must start before Arrow would be loaded, and few servers compress.
    import pyarrow as pa

    stream = pa.CompressedInputStream(pa.py_buffer(packed), "zstd")
    try:
        while piece := stream.read(PIECE):
            yield piece
    except OSError as error:
        raise errors.damaged_error("a compressed transaction cannot be unpacked") from error


def unpacked_rows(event: BinlogEvent) -> BinlogEvent:
    """Unpack MariaDB's compressed rows.

    Not compressed are: table u48, flags u16, in the second version a length and extra data of that length;
    the number of columns, and their bits, for an update twice.
    """
    kind = ROWS_COMPRESSED[event.kind]
    body = event.body
    at = 8
    if kind >= 30:
        at += int.from_bytes(body[8:10], "little")
    columns, at = packed_number(body, at)
    at += (columns + 7) // 8 * (2 if kind in (24, 31) else 1)
    rows = bytes(body[:at]) + unpack(body[at:])
    return event._replace(kind=kind, body=memoryview(rows))


def unpacked_query(event: BinlogEvent) -> QueryEvent:
    """Unpack MariaDB's compressed statement."""
    found = query(event)
    return found._replace(text=unpack(memoryview(found.text)))


def unpack(data: memoryview) -> bytes:
    """Unpack MariaDB's compressed bytes: a byte with the kind and the size's length; the size, big-endian."""
    if not data or data[0] & 0xF0 != _ZLIB:
        raise errors.damaged_error("an event is compressed in a way that is not known")
    head = 1 + (data[0] & 0x07)
    size = int.from_bytes(data[1:head], "big")
    if size >= _LARGEST:
        raise errors.damaged_error("a compressed event says that it is larger than events are")
    unpacker: Any = zlib.decompressobj()
    try:
        found: bytes = unpacker.decompress(data[head:], size + 1)
    except zlib.error as error:
        raise errors.damaged_error("a compressed event cannot be unpacked") from error
    if len(found) != size:
        raise errors.damaged_error("a compressed event has another size than it says")
    return found
