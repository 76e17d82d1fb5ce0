"""Frames of a connection: whole ones are found, a part is left, garbage stops the search."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from headrace.decode import copydata
from tests.laws.decode.wire import array, copy_data


def test_a_frame_that_is_not_complete_stays_in_the_tail() -> None:
    whole = copy_data(b"one") + copy_data(b"two")
    for cut in range(len(copy_data(b"one")), len(whole)):
        found = copydata.frames(array(whole[:cut]))
        assert (len(found.kinds), found.tail, found.is_malformed) == (1, 8, False)


@pytest.mark.parametrize(
    "head",
    [b"d\0\0\0\3", b"d\xff\xff\xff\xff", b"d\x80\0\0\0", b"d\x7f\xff\xff\xff", b"x\0\0\0\4", b"\0\0\0\0\4"],
)
def test_an_impossible_head_is_malformed_and_ends_the_search(head: bytes) -> None:
    found = copydata.frames(array(copy_data(b"fine") + head + copy_data(b"never seen")))
    assert (len(found.kinds), found.tail, found.is_malformed) == (1, 9, True)


def test_a_head_that_is_not_complete_is_no_reason_to_give_up() -> None:
    assert not copydata.frames(array(b"d\xff\xff\xff")).is_malformed


def test_a_frame_as_long_as_a_server_may_send_is_waited_for() -> None:
    found = copydata.frames(array(b"d" + struct.pack(">I", copydata.LONGEST)))
    assert (found.tail, found.is_malformed) == (0, False)


def test_a_buffer_that_is_written_to_is_as_good_as_one_that_is_not() -> None:
    data = np.frombuffer(copy_data(b"x"), np.uint8).copy()
    assert copydata.frames(data).stops.tolist() == [6]


def test_nothing_holds_no_frames() -> None:
    found = copydata.frames(array(b""))
    assert (len(found.starts), found.tail, found.is_malformed) == (0, 0, False)


def test_payloads_leave_other_frames_out() -> None:
    data = array(copy_data(b"a\n") + b"N" + struct.pack(">I", 6) + b"hi" + copy_data(b"b\n"))
    assert copydata.payloads(data, copydata.frames(data)).tobytes() == b"a\nb\n"
