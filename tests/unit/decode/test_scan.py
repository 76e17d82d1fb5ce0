"""Messages of the stream: what each is, where its body is, and what is refused."""

from __future__ import annotations

import struct

import pytest

from headrace.core.errors import Definite, Transient
from headrace.decode import pgoutput
from headrace.decode.pgoutput import framing
from tests.laws.decode.wire import array, begin, commit, copy_data, keepalive, oid, plugin, tuple_data

INSERT = b"I" + oid(7) + b"N" + tuple_data([b"1"])
XID = struct.pack(">I", 900)
START = b"S" + struct.pack(">IB", 900, 1)


def _scan(*frames: bytes, in_stream: bool = False) -> pgoutput.Messages:
    return pgoutput.scan(array(b"".join(frames)), in_stream=in_stream)


def test_a_transaction_is_its_messages_in_order() -> None:
    found = _scan(plugin(begin()), plugin(INSERT), plugin(commit()))
    assert bytes(found.kind) == b"BIC"
    assert found.relation.tolist() == [0, 7, 0]
    assert (found.body - found.start).tolist() == [1, 1, 1]
    assert found.frame_start.tolist()[1:] == found.stop.tolist()[:-1]


def test_changes_in_a_streamed_block_carry_their_xid_first() -> None:
    sub = struct.pack(">I", 901)
    found = _scan(plugin(START), plugin(b"I" + sub + INSERT[1:]), plugin(b"E"), plugin(INSERT))
    assert found.xid.tolist() == [900, 901, 0, 0]
    assert found.relation.tolist() == [0, 7, 0, 7]
    assert (found.body - found.start).tolist() == [1, 5, 1, 1]
    assert not found.in_stream


def test_the_state_of_a_streamed_block_is_carried_to_the_next_buffer() -> None:
    first = _scan(plugin(START))
    assert first.in_stream
    second = _scan(plugin(b"I" + XID + INSERT[1:]), plugin(b"E"), in_stream=first.in_stream)
    assert second.xid.tolist() == [900, 0]
    assert not second.in_stream


@pytest.mark.parametrize("tail", [b"", bytes(16)], ids=["short", "with streaming = parallel"])
def test_a_stray_abort_is_a_message_like_any_other(tail: bytes) -> None:
    # PostgreSQL 18 sends it under protocol 1 too.
    message = b"A" + struct.pack(">II", 900, 905) + tail
    data = array(plugin(message))
    found = pgoutput.scan(data)
    assert found.xid.tolist() == [900]
    assert pgoutput.stream_abort(data, int(found.body[0]), int(found.stop[0])) == pgoutput.StreamAbort(
        900, 905
    )


def test_what_is_not_of_the_plugin_is_marked() -> None:
    error = b"E" + struct.pack(">I", 5) + b"\0"
    found = _scan(keepalive(), error, plugin(b"B" + bytes(20)))
    assert found.kind.tolist() == [framing.KEEPALIVE, framing.OTHER, framing.BEGIN]


def test_a_part_of_a_frame_is_left_in_the_tail() -> None:
    whole = plugin(begin())
    found = _scan(whole, whole[:-1])
    assert (len(found), found.tail) == (1, len(whole))


@pytest.mark.parametrize(
    "frame",
    [plugin(b"?" + bytes(60)), plugin(b"k" + bytes(60)), plugin(b"\0"), copy_data(b"v"), copy_data(b"")],
)
def test_an_unknown_message_is_a_definite_error(frame: bytes) -> None:
    with pytest.raises(Definite) as caught:
        _scan(plugin(begin()), frame)
    assert caught.value.code == "PG_UNKNOWN_MESSAGE"


@pytest.mark.parametrize(
    "message", [begin()[:-1], commit()[:-1], INSERT[:7], b"A" + bytes(7), b"c" + bytes(28), b"R" + bytes(8)]
)
def test_a_message_that_is_too_short_is_a_definite_error(message: bytes) -> None:
    with pytest.raises(Definite) as caught:
        _scan(plugin(message))
    assert caught.value.code == "PG_BAD_MESSAGE"


@pytest.mark.parametrize("letter", "BCSAcbPpKr")
def test_no_transaction_begins_or_ends_inside_of_a_streamed_block(letter: str) -> None:
    message = letter.encode() + bytes(60)
    assert len(_scan(plugin(message))) == 1
    with pytest.raises(Definite) as caught:
        _scan(plugin(message), in_stream=True)
    assert caught.value.code == "PG_BAD_MESSAGE"


def test_a_streamed_block_ends_only_where_one_began() -> None:
    with pytest.raises(Definite) as caught:
        _scan(plugin(b"E"))
    assert caught.value.code == "PG_BAD_MESSAGE"


@pytest.mark.parametrize("message", [b"I", b"I\0\0\0", b"M" + XID])
def test_a_streamed_message_that_ends_within_its_xid_is_a_definite_error(message: bytes) -> None:
    with pytest.raises(Definite) as caught:
        _scan(plugin(message), in_stream=True)
    assert caught.value.code == "PG_BAD_MESSAGE"


@pytest.mark.parametrize("length", [b"\0\0\0\3", b"\xff\xff\xff\xff"])
def test_a_garbled_frame_is_read_again(length: bytes) -> None:
    with pytest.raises(Transient) as caught:
        _scan(plugin(begin()), b"d" + length + bytes(60))
    assert caught.value.code == "PG_BAD_FRAME"


def test_some_messages_can_be_taken() -> None:
    found = _scan(plugin(begin()), plugin(INSERT), plugin(commit()))
    assert bytes(found.take(found.relation == 7).kind) == b"I"
