"""Packets: the connection after the login, plain or TLS. Commands go in, whole packets come out.

    line = PacketStream(socket)
    line.send(COM_QUERY, b"SELECT 1")
    batch = line.receive(0.2)       what is there of the answer; empty if nothing came in time

One thread uses a connection. `receive` may stop within a packet and go on with it later: the bytes stay here.
It reads into one large buffer and returns views of it, which are valid until the next call. The server cuts
packets of 16 MB and more in pieces; those are joined in memory of their own, a batch each.

An error here means a lost connection, or bytes that are no packets. Then the connection is closed, since
nobody knows where the next packet begins.

A large packet on a slow line may take minutes. Its reader sees by `received` that bytes are coming.

    3 bytes    1 byte     `length` bytes
    ┌────────┬──────────┬───────────────┐
    │ length │ sequence │ payload       │     a length of 2^24 - 1: the payload goes on in the next packet
    └────────┴──────────┴───────────────┘

The sequence begins at 0 with each command and counts on, modulo 256, in the answer.

A row's first byte is the length of its first value, or says how many bytes that length has. It is never 255,
which starts an ERR packet. It is 254 only for a value of 16 MB and more; a shorter packet that starts with
254 is the end of the rows.

`ServerError` is an ERR packet; `session.refusals` makes a coded error of it. A server's message may quote a
value or a statement, and with it a secret. So the exception does not show it; `refusals` passes on only the
messages of a few error numbers, which hold nothing but names.
"""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numba import types

from headrace.core.errors import Transient
from headrace.decode.kernel import Bytes, Ints, copy_bytes, input_array, kernel, output_array, several

ERR = 0xFF
_STATE_MARK = ord("#")


class ServerError(Exception):
    """The server refuses a command, or ends the session."""

    def __init__(self, number: int, state: str, message: str) -> None:
        super().__init__(number, state)
        self.number = number
        self.state = state
        self.message = message  # never shown as it is


def server_error(packet: bytes) -> ServerError:
    """Read an ERR packet; one that is cut short has no message."""
    number = int.from_bytes(packet[1:3], "little")
    has_state = packet[3:4] == bytes([_STATE_MARK])
    state = packet[4:9].decode("ascii", "replace") if has_state else ""
    return ServerError(number, state, packet[9 if has_state else 3 :].decode("utf-8", "replace"))


HEADER = 4
LONGEST = 2**24 - 1  # of the payload of one packet

# Why `scan` ended.
PARTIAL, LARGE, OUT_OF_ORDER, ENOUGH = 0, 1, 2, 3

_EOF = 0xFE
_ERR = 0xFF


@kernel(
    several(types.int64, types.int64, types.int64, types.int64),
    input_array(types.uint8),
    types.int64,
    types.int64,
    types.int64,
    output_array(types.int64),
    output_array(types.int64),
)
def scan(
    data: Bytes, begin: int, end: int, sequence: int, starts: Ints, stops: Ints
) -> tuple[int, int, int, int]:
    """Note the payloads of the whole packets in `data[begin:end]`, up to one that is continued.

    Returns how many there are, where the rest begins, the sequence that comes next, and why it ended.
    """
    count, at = 0, begin
    while end - at >= 4:
        if count == len(starts):
            return count, at, sequence, 3
        if data[at + 3] != sequence:
            return count, at, sequence, 2
        length = int(np.int64(data[at]) | (np.int64(data[at + 1]) << 8) | (np.int64(data[at + 2]) << 16))
        if length == 16777215:
            return count, at, sequence, 1
        if end - at - 4 < length:
            return count, at, sequence, 0
        starts[count], stops[count] = at + 4, at + 4 + length
        count, at, sequence = count + 1, at + 4 + length, (sequence + 1) & 255
    return count, at, sequence, 0


@kernel(
    several(types.int64, types.int64),
    input_array(types.uint8),
    input_array(types.int64),
    input_array(types.int64),
    types.int64,
    output_array(types.uint8),
    output_array(types.int64),
    types.int64,
)
def gather(
    data: Bytes, starts: Ints, stops: Ints, first: int, rows: Bytes, offsets: Ints, count: int
) -> tuple[int, int]:
    """Append packets, from `first` on, to the `count` rows that are laid side by side already.

    It stops before a packet that is no row, and before one that does not fit. The rows end at
    `offsets[count]`. Returns the packet to go on with, and how many rows there are now.
    """
    at, size = first, int(offsets[count])
    while at < len(starts) and count + 1 < len(offsets):
        begin, end = starts[at], stops[at]
        if end > begin and (data[begin] == 255 or (data[begin] == 254 and end - begin < 16777215)):
            break
        if size + end - begin > len(rows):
            break
        copy_bytes(data, begin, end, rows, size)
        size += int(end - begin)
        at, count = at + 1, count + 1
        offsets[count] = size
    return at, count


def is_row(first_byte: int, size: int) -> bool:
    """Tell whether a packet is a row and not the end of the rows, as `gather` does."""
    return first_byte != _ERR and (first_byte != _EOF or size >= LONGEST)


BUFFER = 1 << 20
WRITE_SECONDS = 60.0
_PACKETS = 1 << 14  # in one batch
_ROOM = 1 << 16  # that a read should have
_LARGEST = (1 << 32) + (1 << 16)  # bytes of a packet that comes in pieces: events and rows are smaller


class ConnectionLost(Transient):
    """The server is gone, or does not answer any more."""

    codes = ("MY_CONNECTION_LOST",)


def connection_lost(detail: str | None = None) -> ConnectionLost:
    return ConnectionLost(
        "MY_CONNECTION_LOST",
        "the connection to the server was lost",
        detail=detail,
        hint="nothing to do: it is tried again",
    )


@dataclass(frozen=True, slots=True)
class PacketBatch:
    """Some whole packets: their payloads are `data[starts[i]:stops[i]]`. Valid until the next read."""

    data: Bytes
    starts: Ints
    stops: Ints

    def __len__(self) -> int:
        return len(self.starts)

    def packet(self, index: int) -> bytes:
        """The payload of a packet, copied."""
        return self.data[self.starts[index] : self.stops[index]].tobytes()


_NOTHING = PacketBatch(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))


class _LargePacket:
    """A packet that comes in pieces; the last is shorter than the others."""

    def __init__(self) -> None:
        self.data: Bytes = np.empty(2 * LONGEST, np.uint8)
        self.size = 0
        self.piece_left = LONGEST
        self.in_last_piece = False

    def room(self, most: int) -> memoryview:
        """The place to write the next bytes of this piece to."""
        return memoryview(self.data)[self.size : self.size + min(most, self.piece_left)]  # type: ignore[arg-type]

    def grow(self, size: int) -> None:
        self.size += size
        self.piece_left -= size

    def begin_piece(self, length: int) -> None:
        if self.size + length > len(self.data):
            larger = np.empty(2 * len(self.data), np.uint8)
            larger[: self.size] = self.data[: self.size]
            self.data = larger
        self.piece_left, self.in_last_piece = length, length < LONGEST

    @property
    def complete(self) -> bool:
        return self.in_last_piece and not self.piece_left


class PacketStream:
    """The two directions of one connection."""

    def __init__(self, line: socket.socket, *, buffer: int = BUFFER) -> None:
        self._line: socket.socket | None = line
        self._buffer: Bytes = np.empty(buffer, np.uint8)
        self._begin = self._end = 0  # of the bytes that came and were not returned yet
        self.received = 0  # bytes, including those of an incomplete packet
        self._sequence = 0
        self._large: _LargePacket | None = None
        self._starts: Ints = np.empty(_PACKETS, np.int64)
        self._stops: Ints = np.empty(_PACKETS, np.int64)

    @property
    def is_closed(self) -> bool:
        return self._line is None

    @property
    def peer(self) -> str | None:
        """The network address that was reached; None for a Unix socket."""
        if self._line is None or self._line.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        return str(self._line.getpeername()[0])

    def wake_at(self, size: int) -> None:
        """Make `receive` wait until so many bytes are there: each wakeup costs. A Unix socket ignores it."""
        try:
            self._open_line().setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
        except OSError as error:
            raise self._lost_error(error) from None

    def close(self) -> None:
        """Close the connection, whatever the server is doing for us."""
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def send(self, command: int, argument: bytes = b"") -> None:
        """Begin a command."""
        payload = memoryview(bytes([command]) + argument)
        self._sequence = 0
        line = self._open_line()
        try:
            line.settimeout(WRITE_SECONDS)
            for at in range(0, len(payload) + 1, LONGEST):
                piece = payload[at : at + LONGEST]
                line.sendall(len(piece).to_bytes(3, "little") + bytes([self._sequence]) + piece)
                self._sequence = (self._sequence + 1) & 255
        except OSError as error:
            raise self._lost_error(error) from None

    def receive(self, seconds: float) -> PacketBatch:
        """Return the whole packets that are here; none if no packet is complete in time."""
        deadline = time.monotonic() + seconds
        while True:
            batch = self._large_batch() if self._large else self._batch()
            if len(batch) or not self._read(deadline):
                return batch

    def _batch(self) -> PacketBatch:
        """The whole packets in the buffer, up to one that comes in pieces."""
        count, self._begin, self._sequence, why = scan(
            self._buffer, self._begin, self._end, self._sequence, self._starts, self._stops
        )
        if count:
            return PacketBatch(self._buffer, self._starts[:count], self._stops[:count])
        if why == OUT_OF_ORDER:
            self._out_of_order()
        if why == LARGE:
            self._large = _LargePacket()
            self._begin, self._sequence = self._begin + HEADER, (self._sequence + 1) & 255
            return self._large_batch()
        return _NOTHING

    def _large_batch(self) -> PacketBatch:
        """The packet that comes in pieces, once its last piece is here."""
        large = self._large
        assert large is not None
        while not large.complete:
            if not large.piece_left and not self._next_piece(large):
                return _NOTHING
            room = large.room(self._end - self._begin)
            if not len(room) and large.piece_left:
                return _NOTHING
            room[:] = memoryview(self._buffer)[self._begin : self._begin + len(room)]  # type: ignore[arg-type]
            self._begin += len(room)
            large.grow(len(room))
        self._large = None
        return PacketBatch(large.data, np.array([0]), np.array([large.size]))

    def _next_piece(self, large: _LargePacket) -> bool:
        """Read the header of the next piece, if it is here."""
        if self._end - self._begin < HEADER:
            return False
        header = self._buffer[self._begin : self._begin + HEADER].tobytes()
        if header[3] != self._sequence:
            self._out_of_order()
        self._begin, self._sequence = self._begin + HEADER, (self._sequence + 1) & 255
        if large.size > _LARGEST:
            self.close()
            raise bad_packet("a packet has no end")
        large.begin_piece(int.from_bytes(header[:3], "little"))
        return True

    def _out_of_order(self) -> None:
        """Raise for a packet that is no part of the answer: the server's last error, or no packet at all."""
        rest = self._buffer[self._begin : self._end].tobytes()
        self.close()
        if rest[3] == 0 and rest[HEADER : HEADER + 1] == bytes([ERR]):
            raise server_error(rest[HEADER : HEADER + int.from_bytes(rest[:3], "little")])
        raise bad_packet("a packet came out of its order")

    def _read(self, deadline: float) -> bool:
        """Read what comes before the deadline; False if nothing does."""
        line = self._open_line()
        large = self._large
        # Read straight into the large packet, once the buffer holds nothing of it.
        direct = large is not None and large.piece_left > 0 and self._begin == self._end
        room = large.room(BUFFER) if large is not None and direct else self._room()
        try:
            line.settimeout(max(0.0, deadline - time.monotonic()))
            size = line.recv_into(room)
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError as error:
            raise self._lost_error(error) from None
        if not size:
            raise self._lost_error(None)
        self.received += size
        if large is not None and direct:
            large.grow(size)
        else:
            self._end += size
            if isinstance(line, ssl.SSLSocket):
                self._drain(line)
        return True

    def _drain(self, line: ssl.SSLSocket) -> None:
        """Read what is ready: TLS returns one record at a time, and a server may send an event in each."""
        line.settimeout(0)
        # The next read will raise an error of the line, after the bytes that came before it.
        with suppress(OSError):
            while len(self._buffer) - self._end >= _ROOM:
                size = line.recv_into(memoryview(self._buffer)[self._end :])  # type: ignore[arg-type]
                if not size:
                    break
                self.received += size
                self._end += size

    def _room(self) -> memoryview:
        """Return free space behind the unread bytes; moves those to the front, or to a larger buffer."""
        size = self._end - self._begin
        if not size:
            self._begin = self._end = 0
        elif len(self._buffer) - self._end < _ROOM:
            waiting = self._buffer[self._begin : self._end].copy()
            if size + _ROOM > len(self._buffer):
                self._buffer = np.empty(2 * len(self._buffer), np.uint8)
            self._buffer[:size] = waiting
            self._begin, self._end = 0, size
        return memoryview(self._buffer)[self._end :]  # type: ignore[arg-type]

    def _open_line(self) -> socket.socket:
        if self._line is None:
            raise connection_lost("it was closed")
        return self._line

    def _lost_error(self, error: OSError | None) -> ConnectionLost:
        self.close()
        # The text of the operating system or of OpenSSL; it holds nothing that was sent.
        return connection_lost(error.strerror if error is not None else "the server hung up")


def bad_packet(detail: str) -> Transient:
    return Transient(
        "MY_BAD_PACKET",
        "the bytes of a connection to the server are no packets, or not those that it must send here",
        detail=detail,
        hint="nothing to do: it is tried again; a proxy on the way may be at fault if it goes on",
    )
