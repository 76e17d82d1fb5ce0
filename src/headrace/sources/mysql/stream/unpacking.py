"""Events that came compressed: whole transactions of MySQL by zstd, single events of MariaDB by zlib.

    MySQL     Transaction_payload   │ fields │ zstd: event event event ... │     unpacked piece by piece
    MariaDB   rows, statements      │ head │ 1000 nnnn, size, zlib ....... │     each is as large as one event

A payload may hold very much more than it weighs: its events are handed on one by one, and of what is unpacked
no more than one event and one piece is held. Arrow's zstd is used, since it is there; it is loaded only once
a payload comes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from headrace.sources.mysql.ddl.statements import QueryEvent
from headrace.sources.mysql.stream import errors
from headrace.sources.mysql.stream.events import ROWS_COMPRESSED, BinlogEvent, query
from headrace.sources.mysql.stream.frames import HEADER

PIECE = 256 * 1024
_END, _SIZE, _TYPE = 0, 1, 2
_ZSTD, _NONE = 0, 255
_ZLIB = 0x80  # the only way of MariaDB's
_LARGEST = 1 << 32  # bytes of an event


def inner_events(event: BinlogEvent) -> Iterator[memoryview]:
    """The events of a payload, one after the other, none of them with a checksum."""
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
    """Read how a payload is compressed, and its bytes."""
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
    """A number of MySQL's one, three, four or nine bytes, and where it ends."""
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
    # A receiver shall be there before Arrow would be; few servers compress.
    import pyarrow as pa

    stream = pa.CompressedInputStream(pa.py_buffer(packed), "zstd")
    try:
        while piece := stream.read(PIECE):
            yield piece
    except OSError as error:
        raise errors.damaged_error("a compressed transaction cannot be unpacked") from error


def unpacked_rows(event: BinlogEvent) -> BinlogEvent:
    """Rows of MariaDB that came compressed, as they are without that.

    table u48, flags u16, in the second version a length and so much more; a number of columns, their bits,
    of an update twice; behind that all is compressed.
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
    """A statement of MariaDB that came compressed, as it is without that."""
    found = query(event)
    return found._replace(text=unpack(memoryview(found.text)))


def unpack(data: memoryview) -> bytes:
    """Unpack what MariaDB compressed: a byte says how, and how many bytes of size follow, big end first."""
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
