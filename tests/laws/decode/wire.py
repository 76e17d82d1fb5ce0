"""Bytes for the laws of decoding: some that a server would send, and some that no server would.

Builders for single messages (`copy_data`, `plugin`, `tuple_data`, ...), strategies for whole streams, and
`damaged`, which changes, drops or adds a few bytes anywhere.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from headrace.decode.kernel import Bytes

HEADER = bytes(24)


def array(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)


def copy_data(payload: bytes) -> bytes:
    return b"d" + struct.pack(">I", len(payload) + 4) + payload


def plugin(message: bytes) -> bytes:
    return copy_data(b"w" + HEADER + message)


def keepalive(wal_end: int = 0, time: int = 0, reply: int = 0) -> bytes:
    return copy_data(b"k" + struct.pack(">qqB", wal_end, time, reply))


def tuple_data(values: Sequence[bytes | str | None]) -> bytes:
    """Text as bytes, NULL as None, and "u" for a value that is unchanged."""
    return struct.pack(">H", len(values)) + b"".join(_value(value) for value in values)


def _value(value: bytes | str | None) -> bytes:
    if value is None:
        return b"n"
    if isinstance(value, str):
        return value.encode()
    return b"t" + struct.pack(">I", len(value)) + value


def oid(number: int = 16384) -> bytes:
    return struct.pack(">I", number)


def begin(commit_lsn: int = 0, commit_ts: int = 0, xid: int = 0) -> bytes:
    return b"B" + struct.pack(">qqI", commit_lsn, commit_ts, xid)


def commit(commit_lsn: int = 0, end_lsn: int = 0, commit_ts: int = 0) -> bytes:
    return b"C" + struct.pack(">Bqqq", 0, commit_lsn, end_lsn, commit_ts)


def relation(columns: Sequence[tuple[int, bytes, int, int]], number: int = 16384) -> bytes:
    head = b"R" + oid(number) + b"public\0t\0d" + struct.pack(">H", len(columns))
    return head + b"".join(
        struct.pack(">B", flags) + name + b"\0" + struct.pack(">Ii", type_oid, typmod)
        for flags, name, type_oid, typmod in columns
    )


texts = st.one_of(
    st.binary(max_size=8), st.text(max_size=8).map(str.encode), st.binary(min_size=20, max_size=60)
)
old_values = st.one_of(st.none(), texts)
new_values = st.one_of(st.none(), texts, st.just("u"))


@st.composite
def changes(draw: st.DrawFn, ncols: int) -> bytes:
    """An I, U or D of a relation with so many columns."""
    new = b"N" + tuple_data(draw(st.lists(new_values, min_size=ncols, max_size=ncols)))
    old = draw(st.sampled_from([b"K", b"O"]))
    old += tuple_data(draw(st.lists(old_values, min_size=ncols, max_size=ncols)))
    tail = draw(st.sampled_from([b"I" + oid() + new, b"U" + oid() + new, b"D" + oid() + old]))
    return draw(st.sampled_from([tail, b"U" + oid() + old + new]))


_int64 = st.integers(-(2**63), 2**63 - 1)
_int32 = st.integers(0, 2**32 - 1)


@st.composite
def fixed_messages(draw: st.DrawFn) -> bytes:
    """Messages other than changes; the random part stands for whatever fields they have."""
    letter = draw(st.sampled_from([bytes([c]) for c in b"BCORYTMScAbPpKr"]))
    return letter + draw(st.binary(min_size=40, max_size=60))


@st.composite
def streamed_blocks(draw: st.DrawFn) -> bytes:
    """S, changes with the xid in front, E."""
    body = b""
    for change in draw(st.lists(changes(2), max_size=3)):
        body += plugin(change[:1] + struct.pack(">I", draw(_int32)) + change[1:])
    return plugin(b"S" + struct.pack(">IB", draw(_int32), 1)) + body + plugin(b"E")


streams = st.lists(
    st.one_of(
        changes(2).map(plugin),
        fixed_messages().filter(lambda m: m[:1] != b"S").map(plugin),
        streamed_blocks(),
        st.builds(keepalive, _int64, _int64, st.integers(0, 255)),
        st.just(b"N" + struct.pack(">I", 4)),
    ),
    max_size=8,
).map(b"".join)


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Draw bytes, perhaps with a piece changed, dropped or added, or with their end cut off."""
    data = draw(whole)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        piece = draw(st.binary(max_size=5))
        data = data[:at] + piece + data[at + draw(st.sampled_from([0, 1, len(piece)])) :]
    return data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data
