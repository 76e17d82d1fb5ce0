"""Streams of PostgreSQL for the laws of decoders: random transactions over three tables of one column.

`plain` are whole transactions, the first of which may have begun before; `streamed` a piece of one that came
while it ran, with subtransactions that were rolled back. Both are slices whose bytes are at hand.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from headrace.core.names import TableName
from headrace.core.schema import Column, TableSchema
from headrace.decode.kernel import Bytes
from headrace.pipeline.tasks.slices import Slice
from headrace.sources.contract.decoder import Context, TableChanges, TableFilter
from headrace.sources.postgres.decode.context import PostgresOpenTransaction, PostgresStreamContext
from headrace.sources.postgres.decode.decoder import PostgresDecoder

TABLES = (16400, 16401, 16402)
NAMES = {oid: TableName("public", f"t{oid}") for oid in TABLES}
SCHEMA = TableSchema((Column("a", pa.string(), "text", "text"),), ("a",), False)
DECODER = PostgresDecoder(700)


def frame(message: bytes) -> bytes:
    payload = b"w" + struct.pack(">QQQ", 0, 0, 0) + message
    return b"d" + struct.pack(">i", len(payload) + 4) + payload


def relation(oid: int, xid: bytes = b"") -> bytes:
    columns = struct.pack(">HB", 1, 1) + b"a\0" + struct.pack(">Ii", 25, -1)
    named = b"public\0" + f"t{oid}".encode() + b"\0d"
    return frame(b"R" + xid + struct.pack(">I", oid) + named + columns)


def insert(oid: int, text: bytes, xid: bytes = b"") -> bytes:
    row = b"N" + struct.pack(">HcI", 1, b"t", len(text)) + text
    return frame(b"I" + xid + struct.pack(">I", oid) + row)


def truncate(oids: tuple[int, ...], xid: bytes = b"") -> bytes:
    named = b"".join(struct.pack(">I", oid) for oid in oids)
    return frame(b"T" + xid + struct.pack(">IB", len(oids), 0) + named)


def begin(lsn: int, xid: int, time: int | None = None) -> bytes:
    """`time` is the server's, microseconds since 2000."""
    return frame(b"B" + struct.pack(">QqI", lsn, lsn * 7 if time is None else time, xid))


def piece(data: bytes, inside: PostgresOpenTransaction | None) -> Slice:
    context = PostgresStreamContext(tuple(map(relation, TABLES)), inside)
    return Slice(DECODER, context, 0, len(data), data=data)


texts = st.binary(max_size=8).map(lambda raw: raw.hex().encode())
changes = st.one_of(
    st.tuples(st.sampled_from(TABLES), texts), st.lists(st.sampled_from(TABLES), min_size=1, unique=True)
)


@st.composite
def plain(draw: st.DrawFn) -> Slice:
    """Whole transactions, the first of which may have begun before, and the last may not have ended."""
    begun, number = draw(st.booleans()), 0
    parts = [b""]
    for number in range(draw(st.integers(1, 5))):
        if number or not begun:
            parts.append(begin(1000 + 10 * number, 700 + number))
        for change in draw(st.lists(changes, max_size=6)):
            if draw(st.integers(0, 3)) == 0:
                parts.append(relation(draw(st.sampled_from(TABLES))))
            parts.append(truncate(tuple(change)) if isinstance(change, list) else insert(*change))
        parts.append(frame(b"C" + struct.pack(">BQQq", 0, 1000, 1005, 7)))
    if draw(st.booleans()):
        parts.pop()
    ordinals = {oid: draw(st.integers(0, 9)) for oid in TABLES}
    return piece(b"".join(parts), PostgresOpenTransaction(990, 699, 5, ordinals) if begun else None)


@st.composite
def streamed(draw: st.DrawFn) -> Slice:
    """A piece of a transaction that was streamed while it ran."""
    parts = [b""]
    for change in draw(st.lists(changes, max_size=12)):
        xid = struct.pack(">I", 800 + draw(st.integers(0, 3)))
        if draw(st.integers(0, 3)) == 0:
            parts.append(relation(draw(st.sampled_from(TABLES)), xid))
        parts.append(truncate(tuple(change), xid) if isinstance(change, list) else insert(*change, xid))
    aborted = tuple(draw(st.lists(st.integers(801, 803), unique=True)))
    return piece(
        b"".join(parts), PostgresOpenTransaction(2000, 800, 5, {}, in_stream=True, rolled_back=aborted)
    )


def said(data: Bytes, context: Context, oids: Iterable[int] = TABLES) -> Iterator[tuple[int, Any]]:
    """All that bytes say of the tables: the changes of each, then where it is truncated."""
    wanted = {oid: TableFilter(NAMES[oid], SCHEMA, 0) for oid in oids}
    for found in DECODER.decode(data, context, wanted):
        assert isinstance(found, TableChanges)
        yield found.table, found.batch.to_pylist()
    yield from DECODER.truncations(data, context, dict.fromkeys(wanted, 0)).items()
