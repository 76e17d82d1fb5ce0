"""Faults in a binlog's events on their way through a proxy: changed, doubled, left out, or cut within.

    proxy.alter(altered(XID, 3, flipped(-1)))         the third XID has another checksum
    proxy.alter(altered(ROWS, 1, ends=2))             the connection ends within the header of its packet

    packet    length u24  sequence u8 │ 00  event
    event     timestamp u32  kind u8  server u32  size u32  position u32  flags u16 │ body │ crc32

Nothing is known here of an event but its header and its checksum, and nothing is taken from the code that
reads them: it is what these faults are for. The connection has to be a plain one; in TLS no event can be
seen. Events are counted for each connection, and behind the one that is altered all packets get the sequence
numbers that a server would have given them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from headrace_testing.proxy import Altering

PACKET_HEADER = 4
LONGEST = (1 << 24) - 1  # of the payload of one packet
IGNORABLE = 0x80
_HEADER = struct.Struct("<IBIIIH")
_KIND, _SIZE, _FLAGS = 4, 9, 17  # where they stand
_CHECKSUM = 4  # bytes
_OK = 0

Change = Callable[[bytes], Sequence[bytes]]  # of an event: those that come in its place


def unchanged(event: bytes) -> Sequence[bytes]:
    """The event as it is."""
    return [event]


def flipped(at: int, bit: int = 0) -> Change:
    """The event with one bit of its byte `at` turned over."""

    def change(event: bytes) -> Sequence[bytes]:
        data = bytearray(event)
        data[at] ^= 1 << bit
        return [bytes(data)]

    return change


def of_kind(event: bytes, kind: int, *, ignorable: bool) -> bytes:
    """A sound event of another kind, that may be passed over or not."""
    data = bytearray(event)
    data[_KIND] = kind
    data[_FLAGS] = data[_FLAGS] & ~IGNORABLE | ignorable * IGNORABLE
    return _sound(bytes(data))


def with_body(event: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """A sound event that says something else."""
    return _sound(event[: _HEADER.size] + change(event[_HEADER.size : -_CHECKSUM]) + event[-_CHECKSUM:])


def _sound(event: bytes) -> bytes:
    """The event with a size and a checksum that fit."""
    data = event[:_SIZE] + len(event).to_bytes(4, "little") + event[_SIZE + 4 : -_CHECKSUM]
    return data + zlib.crc32(data).to_bytes(_CHECKSUM, "little")


def altered(kind: int, number: int, change: Change = unchanged, *, ends: int | None = None) -> Altering:
    """Change one event of a connection: of those of a kind the one with this number, counted from 1.

    With `ends` the connection ends so many bytes behind the beginning of what comes in its place.
    """

    def altering(chunks: Iterator[bytes]) -> Iterator[bytes]:
        count = shift = 0
        for packets in _packets(chunks):
            passed = b""
            for packet in packets:
                payloads = [packet.payload]
                count += packet.kind == kind
                meant = packet.kind == kind and count == number
                if meant:
                    payloads = [bytes([_OK]) + event for event in change(packet.payload[1:])]
                written, pieces = _framed(payloads, packet.sequence + shift)
                if meant and ends is not None:
                    yield passed + written[:ends]
                    return
                passed += written
                shift += pieces - packet.pieces
            if passed:
                yield passed

    return altering


@dataclass(frozen=True, slots=True)
class _Packet:
    """A payload, put together, and the number of the first of the packets that brought it."""

    payload: bytes
    sequence: int

    @property
    def pieces(self) -> int:
        """Count the packets that it takes: the last one is never full."""
        return len(self.payload) // LONGEST + 1

    @property
    def kind(self) -> int | None:
        """The kind of its event; None where it is none."""
        if len(self.payload) <= _HEADER.size or self.payload[0] != _OK:
            return None
        _, kind, _, size, _, _ = _HEADER.unpack_from(self.payload, 1)
        return int(kind) if size == len(self.payload) - 1 else None


def _packets(chunks: Iterator[bytes]) -> Iterator[list[_Packet]]:
    """Yield the packets that each chunk completes; what never is completed does not pass."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        found = []
        while (packet := _first(held)) is not None:
            found.append(packet)
            del held[: len(packet.payload) + packet.pieces * PACKET_HEADER]
        yield found


def _first(held: bytearray) -> _Packet | None:
    """The first payload, if all of its packets are here."""
    pieces, at, length = [], 0, LONGEST
    while length == LONGEST:
        begin = at + PACKET_HEADER
        length = int.from_bytes(held[at : at + 3], "little")
        at = begin + length
        if len(held) < at:
            return None
        pieces.append(slice(begin, at))
    return _Packet(b"".join(bytes(held[piece]) for piece in pieces), held[3])


def _framed(payloads: Sequence[bytes], sequence: int) -> tuple[bytes, int]:
    """The packets of these payloads, numbered from one on, and how many they are."""
    out, count = bytearray(), 0
    for payload in payloads:
        for at in range(0, len(payload) + 1, LONGEST):
            piece = payload[at : at + LONGEST]
            out += len(piece).to_bytes(3, "little") + bytes([(sequence + count) & 255]) + piece
            count += 1
    return bytes(out), count
