"""The kernels that find frames and messages agree with their twin on any bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.errors import Definite, Transient
from headrace.decode import copydata, pgoutput
from headrace.decode.kernel import Bytes
from headrace_testing.reference import framing
from tests.laws.decode.wire import array, copy_data, damaged, plugin, streams

anything = st.one_of(st.binary(max_size=80), damaged(streams))


def _frames(data: bytes) -> tuple[list[tuple[int, int, int]], int, bool]:
    found = copydata.frames(array(data))
    places = zip(found.starts.tolist(), found.stops.tolist(), found.kinds.tolist(), strict=True)
    return list(places), found.tail, found.is_malformed


def _outcome(data: bytes | Bytes, in_stream: bool, start: int = 0, stop: int | None = None) -> object:
    """Scan with the kernel from `start` on, and return its findings in the twin's words."""
    buffer = array(data) if isinstance(data, bytes) else data
    try:
        found = pgoutput.scan(buffer, start, stop, in_stream=in_stream)
    except (Definite, Transient) as error:
        return error.code
    places = (found.frame_start - start, found.start - start, found.body - start, found.stop - start)
    rows = zip(*(field.tolist() for field in (*places, found.kind, found.relation, found.xid)), strict=True)
    return [framing.Message(*row) for row in rows], found.tail - start, found.in_stream


def _expected(data: bytes, in_stream: bool) -> object:
    try:
        return framing.scan(data, in_stream)
    except framing.MalformedFrame as error:
        return error.args[0]


@settings(max_examples=100)
@given(anything)
def test_frames_are_those_of_the_reference(data: bytes) -> None:
    assert _frames(data) == framing.frames(data)


@settings(max_examples=100)
@given(anything, st.booleans())
def test_messages_are_those_of_the_reference(data: bytes, in_stream: bool) -> None:
    assert _outcome(data, in_stream) == _expected(data, in_stream)


@settings(max_examples=100)
@given(streams)
def test_an_undamaged_stream_is_scanned_to_its_end(data: bytes) -> None:
    assert pgoutput.scan(array(data)).tail == len(data)


@settings(max_examples=100)
@given(streams, st.data())
def test_a_stream_may_be_cut_into_buffers_anywhere(data: bytes, draw: st.DataObject) -> None:
    cut = draw.draw(st.integers(0, len(data)))
    whole = pgoutput.scan(array(data))
    first = pgoutput.scan(array(data), 0, cut)
    second = pgoutput.scan(array(data), first.tail, in_stream=first.in_stream)
    assert np.concatenate([first.start, second.start]).tolist() == whole.start.tolist()
    assert np.concatenate([first.xid, second.xid]).tolist() == whole.xid.tolist()
    assert second.in_stream == whole.in_stream


@settings(max_examples=100)
@given(damaged(streams), st.binary(max_size=40), st.binary(max_size=40))
def test_bytes_outside_of_the_bounds_do_not_matter(data: bytes, before: bytes, after: bytes) -> None:
    padded, start, stop = array(before + data + after), len(before), len(before) + len(data)
    inner, found = copydata.frames(array(data)), copydata.frames(padded, start, stop)
    assert (found.starts - start).tolist() == inner.starts.tolist()
    assert (found.tail - start, found.is_malformed) == (inner.tail, inner.is_malformed)
    assert _outcome(padded, False, start, stop) == _outcome(data, False)


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=30)))
def test_payloads_are_what_the_frames_carry(pieces: list[bytes]) -> None:
    data = array(b"".join(map(copy_data, pieces)) + b"c\0\0\0\4")
    assert copydata.payloads(data, copydata.frames(data)).tobytes() == b"".join(pieces)


def test_every_letter_is_known_or_refused() -> None:
    for letter in range(256):
        data = plugin(bytes([letter]) + bytes(60))
        assert _outcome(data, False) == _expected(data, False)
