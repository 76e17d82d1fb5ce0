"""Packets come whole and in order out of any cut of the bytes, and a wait may end amid one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import Transient
from headrace.sources.mysql.session import packets as packets_module
from headrace.sources.mysql.session.packets import LONGEST, PacketStream, ServerError


def framed(payloads: list[bytes], sequence: int = 0) -> bytes:
    """The bytes of these packets, as a server writes them."""
    out = bytearray()
    for payload in payloads:
        for at in range(0, len(payload) + 1, LONGEST):
            piece = payload[at : at + LONGEST]
            out += len(piece).to_bytes(3, "little") + bytes([sequence & 255]) + piece
            sequence += 1
    return bytes(out)


def received(packets: PacketStream, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        batch = packets.receive(10)
        assert len(batch), "nothing came"
        found += [batch.packet(i) for i in range(len(batch))]
    return found


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, PacketStream]]:
    theirs, ours = socket.socketpair()
    with closing(theirs), closing(PacketStream(ours, buffer=1 << 17)) as packets:
        yield theirs, packets


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=300), st.lists(st.integers(1, 400), min_size=1))
def test_any_cut_of_the_bytes_gives_the_same_packets(payloads: list[bytes], cuts: list[int]) -> None:
    theirs, ours = socket.socketpair()
    with closing(theirs), closing(PacketStream(ours, buffer=1 << 17)) as packets:
        data, at, found = framed(payloads), 0, list[bytes]()
        for turn in range(len(data)):
            if at >= len(data):
                break
            theirs.sendall(data[at : at + cuts[turn % len(cuts)]])
            at += cuts[turn % len(cuts)]
            batch = packets.receive(0)
            found += [batch.packet(i) for i in range(len(batch))]
        found += received(packets, len(payloads) - len(found))
        assert found == payloads


@pytest.mark.parametrize(
    "size", [100_000, 300_000, LONGEST - 1, LONGEST, LONGEST + 1, 2 * LONGEST, 3 * LONGEST + 5]
)
def test_a_packet_of_any_size_comes_whole_between_its_neighbours(
    pair: tuple[socket.socket, PacketStream], size: int
) -> None:
    theirs, packets = pair
    large = bytes(range(251)) * (size // 251 + 1)
    payloads = [b"before", large[:size], b"behind", b""]
    sender = threading.Thread(target=theirs.sendall, args=(framed(payloads),))
    sender.start()
    assert received(packets, 4) == payloads
    sender.join()


def test_a_wait_that_ends_amid_a_packet_is_taken_up_again(pair: tuple[socket.socket, PacketStream]) -> None:
    theirs, packets = pair
    large = b"x" * (LONGEST + 10)
    data = framed([b"abc", large])
    cuts = [0, 2, 6, 9, 11, LONGEST, LONGEST + 11, LONGEST + 13, LONGEST + 17, len(data)]
    found: list[bytes] = []
    for begin, end in pairwise(cuts):
        sender = threading.Thread(target=theirs.sendall, args=(data[begin:end],))
        sender.start()
        while len(batch := packets.receive(0.02)) or sender.is_alive():
            found += [batch.packet(i) for i in range(len(batch))]
    assert found == [b"abc", large]


def test_a_command_is_cut_as_the_server_wants_it(pair: tuple[socket.socket, PacketStream]) -> None:
    theirs, packets = pair
    for argument in (b"SELECT 1", b"x" * (LONGEST - 1), b"y" * (LONGEST + 3)):
        wanted = framed([b"\x03" + argument])
        got = bytearray()
        sender = threading.Thread(target=packets.send, args=(3, argument))
        sender.start()
        while len(got) < len(wanted):
            got += theirs.recv(1 << 20)
        sender.join()
        assert got == wanted


def test_bytes_that_are_no_packets_close_the_connection(pair: tuple[socket.socket, PacketStream]) -> None:
    theirs, packets = pair
    theirs.sendall(framed([b"abc"]) + b"HTTP/1.1 400 Bad Request")
    assert received(packets, 1) == [b"abc"]
    with pytest.raises(Transient) as caught:
        packets.receive(10)
    assert caught.value.code == "MY_BAD_PACKET"
    assert packets.is_closed


def test_a_packet_that_has_no_end_is_none(
    pair: tuple[socket.socket, PacketStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packets_module, "_LARGEST", LONGEST)
    theirs, packets = pair
    data = framed([bytes(3 * LONGEST)])
    sender = threading.Thread(target=_sent_while_wanted, args=(theirs, data))
    sender.start()
    with pytest.raises(Transient) as caught:
        received(packets, 1)
    sender.join()
    assert (caught.value.code, caught.value.detail) == ("MY_BAD_PACKET", "a packet has no end")
    assert packets.is_closed


def _sent_while_wanted(line: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        line.sendall(data)


def test_the_last_word_of_a_server_that_goes_is_heard(pair: tuple[socket.socket, PacketStream]) -> None:
    """It numbers that word from the beginning, since it answers nothing."""
    theirs, packets = pair
    theirs.sendall(framed([b"row", b"row"], sequence=0))
    received(packets, 2)
    theirs.sendall(framed([b"\xff\x87\x07#70100Connection was killed: hunter2"]))
    with pytest.raises(ServerError) as caught:
        packets.receive(10)
    assert caught.value.number == 1927
    assert "hunter2" not in str(caught.value) + repr(caught.value)


def test_a_connection_that_ends_is_lost(pair: tuple[socket.socket, PacketStream]) -> None:
    theirs, packets = pair
    theirs.sendall(framed([b"abcdef"])[:6])
    assert len(packets.receive(0.01)) == 0
    theirs.close()
    for ask in (lambda: packets.receive(1), lambda: packets.send(3, b"SELECT 1")):
        with pytest.raises(Transient) as caught:
            ask()
        assert caught.value.code == "MY_CONNECTION_LOST"
