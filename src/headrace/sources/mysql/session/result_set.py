"""The answer to a statement by the text protocol: columns, then rows, then the end or an error.

    found = answer(receive)              `receive` returns the next packets, or raises if none come in time
    found.columns                        empty for a statement that returns no rows
    for row in found.rows(): ...         each a tuple of bytes, None for NULL
    for block in found.blocks(): ...     or megabytes of raw rows, for a kernel

Our login doesn't ask for `CLIENT_DEPRECATE_EOF`, `CLIENT_LOCAL_FILES` or several results. So each part has
only one form: five bytes that begin with 254 end the columns, and the rows. If a server asks for a file of
ours, we hang up. No other statement can be sent on the connection until the last row was read, or an error
came among the rows (`finished`).

A function whose result is larger than `max_allowed_packet` gives NULL, with only a warning. So code that
copies rows must check `warnings` after the last row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from headrace.decode.kernel import Bytes, Ints
from headrace.sources.mysql.session.packets import ERR, PacketBatch, bad_packet, gather, is_row, server_error

BLOCK = 4 << 20
_ROWS = 1 << 17  # of one block, at most
_OK, _LOCAL_FILE, _EOF = 0x00, 0xFB, 0xFE
_EOF_SIZE = 5
_NULL = 0xFB

IN_TRANSACTION = 0x0001  # of a status
_MORE_RESULTS = 0x0008

Receive = Callable[[], PacketBatch]


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """The server's description of a result's column; the numbers are the protocol's."""

    name: str
    table: str
    database: str
    type: int
    charset: int
    flags: int
    decimals: int
    length: int


@dataclass(frozen=True, slots=True)
class ResultRows:
    """Rows side by side, each as in its packet: row i is `data[starts[i]:starts[i + 1]]`."""

    data: Bytes
    starts: Ints

    def __len__(self) -> int:
        return len(self.starts) - 1


class StatementAnswer:
    """The answer to one statement, as far as it has come."""

    def __init__(self, packets: _PacketReader) -> None:
        self._packets = packets
        self.columns: tuple[ColumnDefinition, ...] = ()
        self.status = 0
        self.warnings = 0
        self.finished = False

    def begin(self) -> None:
        """Read up to the first row."""
        head = self._next()
        kind = head[0]
        if kind == _OK:
            self._end_with_ok(head)
        elif kind == _LOCAL_FILE:
            raise bad_packet("the server asks for a file of this machine")
        else:
            count, _ = _number(head, 0)
            self.columns = tuple(_definition(self._next()) for _ in range(count))
            if not _is_eof(self._next()):
                raise bad_packet("no end of the columns")

    def rows(self) -> Iterator[tuple[bytes | None, ...]]:
        """Yield the rows that were not read yet, one by one."""
        while not self.finished:
            packet = self._next()
            if is_row(packet[0], len(packet)):
                yield _values(packet, len(self.columns))
            else:
                self._end_with_eof(packet)

    def blocks(self, size: int = BLOCK) -> Iterator[ResultRows]:
        """Yield the rows that were not read yet, some megabytes at a time; a larger row is its own block."""
        while not self.finished:
            filling = _Filling(size)
            while self._fill(filling):
                pass
            if filling.count:
                yield filling.block()

    def _fill(self, filling: _Filling) -> bool:
        """Move the rows that have come into the block; False once it is full, or all rows have come."""
        batch, at = self._packets.here()
        at = self._packets.at = filling.take(batch, at)
        if at == len(batch):
            return True
        size = int(batch.stops[at] - batch.starts[at])
        if not size or is_row(int(batch.data[batch.starts[at]]), size):
            return filling.fits(size)
        self._end_with_eof(self._next())
        return False

    def _next(self) -> bytes:
        packet = self._packets.packet()
        if not packet:
            raise bad_packet("an empty packet")
        if packet[0] == ERR:
            self.finished = True
            raise server_error(packet)
        return packet

    def _end_with_ok(self, packet: bytes) -> None:
        _, at = _number(packet, 1)
        _, at = _number(packet, at)
        self._end(packet[at : at + 2], packet[at + 2 : at + 4])

    def _end_with_eof(self, packet: bytes) -> None:
        if not _is_eof(packet):
            raise bad_packet("no end of the rows")
        self._end(packet[3:5], packet[1:3])

    def _end(self, status: bytes, warnings: bytes) -> None:
        self.status = int.from_bytes(status, "little")
        self.warnings = int.from_bytes(warnings, "little")
        if self.status & _MORE_RESULTS:
            raise bad_packet("several results of one statement")
        self.finished = True


def answer(receive: Receive) -> StatementAnswer:
    """Read the beginning of the answer; a refusal is a `ServerError`."""
    found = StatementAnswer(_PacketReader(receive))
    found.begin()
    return found


class _PacketReader:
    """The packets of batch after batch."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._batch: PacketBatch | None = None
        self.at = 0

    def here(self) -> tuple[PacketBatch, int]:
        """The current batch, and the index of its next packet."""
        if self._batch is None or self.at == len(self._batch):
            self._batch, self.at = self._receive(), 0
        return self._batch, self.at

    def packet(self) -> bytes:
        """The next packet."""
        batch, at = self.here()
        self.at = at + 1
        return batch.packet(at)


class _Filling:
    """A block while it is filled with rows."""

    def __init__(self, size: int) -> None:
        self._rows: Bytes = np.empty(size, np.uint8)
        self._offsets: Ints = np.zeros(_ROWS + 1, np.int64)
        self.count = 0

    def take(self, batch: PacketBatch, at: int) -> int:
        """Append the rows that fit, from packet `at` on; return the index of the next packet."""
        at, self.count = gather(
            batch.data, batch.starts, batch.stops, at, self._rows, self._offsets, self.count
        )
        return at

    def fits(self, size: int) -> bool:
        """Tell whether one more row fits; the first one always does."""
        if not self.count and size > len(self._rows):
            self._rows = np.empty(size, np.uint8)
        return self.count < _ROWS and int(self._offsets[self.count]) + size <= len(self._rows)

    def block(self) -> ResultRows:
        starts = self._offsets[: self.count + 1]
        return ResultRows(self._rows[: starts[-1]], starts)


def _is_eof(packet: bytes) -> bool:
    return packet[0] == _EOF and len(packet) == _EOF_SIZE


def _number(packet: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, whose first byte may tell its length, and the place behind it."""
    if at >= len(packet):
        raise bad_packet("a packet is too short")
    width = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(packet[at])
    if width is None:
        return packet[at], at + 1
    return int.from_bytes(packet[at + 1 : at + 1 + width], "little"), at + 1 + width


def _bytes(packet: bytes, at: int) -> tuple[bytes, int]:
    size, at = _number(packet, at)
    if at + size > len(packet):
        raise bad_packet("a packet is too short")
    return packet[at : at + size], at + size


def _values(packet: bytes, columns: int) -> tuple[bytes | None, ...]:
    """The values of a row."""
    found: list[bytes | None] = []
    at = 0
    for _ in range(columns):
        if packet[at : at + 1] == bytes([_NULL]):
            found.append(None)
            at += 1
        else:
            value, at = _bytes(packet, at)
            found.append(value)
    if at != len(packet):
        raise bad_packet("a row has more than its columns")
    return tuple(found)


def _definition(packet: bytes) -> ColumnDefinition:
    texts = []
    at = 0
    for _ in range(6):  # catalog, database, table, original table, name, original name
        text, at = _bytes(packet, at)
        texts.append(text.decode("utf-8", "replace"))
    fixed = packet[at + 1 : at + 13]
    if len(fixed) < 10:
        raise bad_packet("a column's definition is too short")
    return ColumnDefinition(
        name=texts[4],
        table=texts[3],
        database=texts[1],
        type=fixed[6],
        charset=int.from_bytes(fixed[0:2], "little"),
        flags=int.from_bytes(fixed[7:9], "little"),
        decimals=fixed[9],
        length=int.from_bytes(fixed[2:6], "little"),
    )
