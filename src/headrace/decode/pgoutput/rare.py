"""Parsers of rare messages: one at a time, in plain Python, after the layout in PostgreSQL's manual.

Each parser takes the buffer and the `body` and `stop` of a message that `scan` found. A field that runs past
its message is a definite error: a misread relation would put values into the wrong columns.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from headrace.core.errors import Definite
from headrace.decode.kernel import Bytes

_KEY = 1  # the flag of a column that is part of the replica identity


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column as R describes it."""

    flags: int
    name: str
    type_oid: int
    typmod: int

    @property
    def in_identity(self) -> bool:
        return bool(self.flags & _KEY)


@dataclass(frozen=True, slots=True)
class Relation:
    """R: the layout of a table's tuples from here on (a namespace sent as "" is pg_catalog)."""

    oid: int
    namespace: str
    name: str
    identity: str  # "d" default, "n" nothing, "f" full, "i" index
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Truncate:
    """T: the tables that were emptied."""

    cascade: bool
    restart_identity: bool
    oids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """A: a transaction (`subxid == xid`) or one of its subtransactions is rolled back."""

    xid: int
    subxid: int


class _Reader:
    """A cursor over one message."""

    def __init__(self, data: Bytes, body: int, stop: int) -> None:
        self._bytes = data[body:stop].tobytes()
        self._at = 0

    def number(self, layout: str) -> int:
        size = struct.calcsize(layout)
        value = int(struct.unpack(layout, self.take(size))[0])
        return value

    def text(self) -> str:
        end = self._bytes.find(b"\0", self._at)
        if end < 0:
            raise _malformed_error()
        return self.take(end + 1 - self._at)[:-1].decode("utf-8", "surrogateescape")

    def take(self, size: int) -> bytes:
        if self._at + size > len(self._bytes):
            raise _malformed_error()
        self._at += size
        return self._bytes[self._at - size : self._at]


def _malformed_error() -> Definite:
    return Definite(
        "PG_BAD_MESSAGE",
        "a message of the replication stream ends too early",
        hint="report it with the server's version; nothing is acknowledged until it can be read",
    )


def relation(data: Bytes, body: int, stop: int) -> Relation:
    """Read an R."""
    reader = _Reader(data, body, stop)
    oid, namespace, name = reader.number(">I"), reader.text(), reader.text()
    identity = reader.take(1).decode("latin-1")
    columns = []
    for _ in range(reader.number(">H")):
        flags, column = reader.number(">B"), reader.text()
        columns.append(RelationColumn(flags, column, reader.number(">I"), reader.number(">i")))
    return Relation(oid, namespace or "pg_catalog", name, identity, tuple(columns))


def truncate(data: Bytes, body: int, stop: int) -> Truncate:
    """Read a T."""
    reader = _Reader(data, body, stop)
    count, flags = reader.number(">I"), reader.number(">B")
    if count > (stop - body) // 4:
        raise _malformed_error()
    oids = tuple(reader.number(">I") for _ in range(count))
    return Truncate(bool(flags & 1), bool(flags & 2), oids)


def stream_abort(data: Bytes, body: int, stop: int) -> StreamAbort:
    """Read an A of either length; the longer one's further fields are not needed."""
    reader = _Reader(data, body, stop)
    return StreamAbort(reader.number(">I"), reader.number(">I"))
