"""Compressed events are the same as uncompressed ones once they are unpacked, piece by piece."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pyarrow as pa
import pytest

from headrace.core.errors import HeadraceError
from headrace.sources.mysql.stream import events
from headrace.sources.mysql.stream.events import BinlogEvent, EventReader
from tests.unit.sources.mysql.stream import logged

INNER = [
    logged.query("BEGIN", checksum=False),
    logged.table_map(1, "shop", "orders", checksum=False),
    logged.rows(1, b"\0" * 900_000, checksum=False),
    logged.rows(1, checksum=False),
    logged.xid(checksum=False),
]


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


def reader() -> EventReader:
    made = EventReader()
    made.read(memoryview(logged.description()))
    return made


def event(data: bytes) -> BinlogEvent:
    found = reader().read(memoryview(data))
    assert found is not None
    return found


def unpacked(packed: bytes, way: int = 0) -> Iterator[bytes]:
    return map(bytes, events.inner_events(event(logged.payload(INNER, packed, way))))


@pytest.mark.parametrize("way", [0, 255])
def test_a_compressed_transaction_holds_the_events_of_an_ordinary_one(way: int) -> None:
    whole = b"".join(INNER)
    assert list(unpacked(zstd(whole) if way == 0 else whole, way)) == INNER


def test_a_transaction_may_be_compressed_in_several_goes() -> None:
    whole = b"".join(INNER)
    assert list(unpacked(zstd(whole[:500]) + zstd(whole[500:]))) == INNER


def test_a_payload_is_unpacked_no_further_than_it_is_read() -> None:
    bomb = zstd(b"".join([logged.rows(1, b"\0" * 100_000, checksum=False)] * 2_000))
    before = pa.total_allocated_bytes()
    found = unpacked(bomb)
    assert len(next(found)) > 100_000
    assert pa.total_allocated_bytes() - before < 8 << 20  # of 200 MB


@pytest.mark.parametrize("way", [0, 255, 7])
def test_a_payload_that_cannot_be_unpacked_is_damaged(way: int) -> None:
    packed = zstd(b"".join(INNER))[:-9] if way != 255 else b"".join(INNER)[:-3]
    with pytest.raises(HeadraceError, match="MY_EVENT_DAMAGED"):
        list(unpacked(packed, way))


def test_an_inner_event_has_no_checksum_and_the_next_outer_one_has() -> None:
    made = reader()
    inner = made.read_inner(memoryview(INNER[3]))
    assert inner is not None
    assert inner.kind == 30
    assert made.read(memoryview(logged.xid())) is not None
    with pytest.raises(HeadraceError, match="MY_EVENT_DAMAGED"):
        made.read(memoryview(logged.xid()[:-4]))


def mariadbs(data: bytes) -> bytes:
    """Compressed as MariaDB does: a byte, the size, most significant byte first, zlib."""
    size = len(data).to_bytes(3, "big")
    return bytes([0x80 | len(size)]) + size + zlib.compress(data)


@pytest.mark.parametrize(("kind", "plain"), events.ROWS_COMPRESSED.items())
def test_mariadbs_compressed_rows_become_plain_ones(kind: int, plain: int) -> None:
    rows = b"\0\7\0\0\0" * 100
    ordinary = event(logged.rows(5, rows, kind=plain))
    head = bytes(ordinary.body[: -len(rows)])
    found = events.unpacked_rows(event(logged.event(kind, head + mariadbs(rows))))
    assert (found.kind, bytes(found.body)) == (plain, bytes(ordinary.body))


def test_mariadbs_compressed_statement_is_read_as_a_plain_one() -> None:
    text = b"DROP TABLE t /* " + b"x" * 1000 + b" */"
    packed = event(logged.query(mariadbs(text), kind=events.QUERY_COMPRESSED))
    query = events.unpacked_query(packed)
    assert (query.text, query.database) == (text, b"shop")


@pytest.mark.parametrize("change", ["way", "size", "data", "short", "huge"])
def test_a_compressed_event_that_does_not_fit_is_damaged(change: str) -> None:
    packed = bytearray(mariadbs(b"rows" * 50))
    if change == "way":
        packed[0] = 0x91
    elif change == "huge":
        packed[:4] = b"\x87" + bytes([1, 0, 0, 0, 0, 0, 0])  # as large it may become, to the last byte
    elif change == "size":
        packed[3] ^= 1
    elif change == "data":
        packed[9] ^= 0xFF
    else:
        del packed[-6:]
    with pytest.raises(HeadraceError, match="MY_EVENT_DAMAGED"):
        events.unpack(memoryview(bytes(packed)))
