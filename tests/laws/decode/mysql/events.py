"""Events of a table of three columns, as the spool keeps them: builders, and strategies."""

from __future__ import annotations

import struct

import pyarrow as pa
from hypothesis import strategies as st

from headrace.core.schema import Column, TableSchema
from headrace.core.transaction_id import TransactionId
from headrace.decode.mysql.framing import HEADER

# int, varchar of one byte's length, blob of two.
TYPES, METADATA = bytes([3, 15, 252]), struct.pack("<HB", 20, 2)
SCHEMA = TableSchema(
    (
        Column("a", pa.int32(), "int", "int"),
        Column("b", pa.binary(), "bytes", "varbinary(20)"),
        Column("c", pa.binary(), "bytes", "blob"),
    ),
    (),
    True,
    transaction=TransactionId.GTID,
)


def frame(kind: int, body: bytes) -> bytes:
    return struct.pack("<IBIIIH", 0, kind, 1, HEADER + len(body), 0, 0) + body


def told(number: int, table: bytes = b"t") -> bytes:
    """A table map of the three columns."""
    named = b"\x01d\x00" + bytes([len(table)]) + table + b"\x00"
    body = number.to_bytes(6, "little") + b"\x01\x00" + named
    return frame(
        19, body + b"\x03" + TYPES + bytes([len(METADATA)]) + METADATA + b"\x07" + b"\x04\x06\x01a\x01b\x01c"
    )


values = st.tuples(
    st.none() | st.binary(min_size=4, max_size=4),
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=300),
)


def image(row: tuple[bytes | None, bytes | None, bytes | None]) -> bytes:
    a, b, c = row
    nulls = sum(1 << i for i, value in enumerate(row) if value is None)
    short = b"" if b is None else bytes([len(b)]) + b
    return bytes([nulls]) + (a or b"") + short + (b"" if c is None else struct.pack("<H", len(c)) + c)


@st.composite
def events(draw: st.DrawFn) -> bytes:
    """An event of rows of either version, with extra data or without."""
    kind = draw(st.sampled_from([23, 24, 25, 30, 31, 32]))
    extra = draw(st.binary(max_size=4))
    head = (7).to_bytes(6, "little") + b"\x00\x00"
    if kind >= 30:
        head += struct.pack("<H", 2 + len(extra)) + extra
    pairs = draw(st.lists(values, min_size=1, max_size=4))
    rows = [image(row) + (image(row[::1]) if kind in (24, 31) else b"") for row in pairs]
    return frame(kind, head + b"\x03" + b"\x07" * (2 if kind in (24, 31) else 1) + b"".join(rows))


def begin(number: int) -> bytes:
    """The head of a transaction."""
    name = f"g{number}".encode()
    return frame(250, struct.pack("<qqH", 8 * number, 10 * number, len(name)) + name)
