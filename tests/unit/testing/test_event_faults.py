"""Faults in events: only the one that is meant is altered, wherever the bytes are cut."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.core.errors import HeadraceError
from headrace.sources.mysql.stream import events
from headrace.sources.mysql.stream.events import EventReader
from headrace_testing.mysql.event_faults import LONGEST, altered, flipped, of_kind, with_body
from headrace_testing.proxy import Altering
from tests.unit.sources.mysql.session.test_packets import framed
from tests.unit.sources.mysql.stream import logged

GREETING = b"\x0a9.7.4"
ROWS = [logged.rows(1, bytes([number]) * 40) for number in range(3)]
SENT = [logged.description(), ROWS[0], logged.xid(), ROWS[1], logged.xid(), ROWS[2]]


def passed(altering: Altering, sent: Sequence[bytes] = SENT, size: int = 7) -> bytes:
    """The bytes that a client gets, where they come so many at a time."""
    data = framed([GREETING, *(b"\0" + each for each in sent)])
    return b"".join(altering(data[at : at + size] for at in range(0, len(data), size)))


def refused(event: bytes) -> str:
    reader = EventReader()
    reader.read(memoryview(logged.description()))
    with pytest.raises(HeadraceError) as caught:
        reader.read(memoryview(event))
    return caught.value.code


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_event_that_is_meant_is_altered_and_no_other(size: int) -> None:
    broken = bytearray(ROWS[1])
    broken[-1] ^= 4
    expected = framed([GREETING, *(b"\0" + each for each in [*SENT[:3], bytes(broken), *SENT[4:]])])
    assert passed(altered(30, 2, flipped(-1, 2)), size=size) == expected
    assert refused(bytes(broken)) == "MY_EVENT_DAMAGED"


def test_events_may_come_between_and_be_left_out_without_a_gap_in_the_numbers() -> None:
    unknown = of_kind(ROWS[1], 200, ignorable=False)
    more = passed(altered(30, 2, lambda event: [unknown, event]))
    assert more == framed([GREETING, *(b"\0" + each for each in [*SENT[:3], unknown, *SENT[3:]])])
    less = passed(altered(30, 2, lambda _: []))
    assert less == framed([GREETING, *(b"\0" + each for each in [*SENT[:3], *SENT[4:]])])


def test_an_event_of_another_kind_is_sound() -> None:
    reader = EventReader()
    reader.read(memoryview(logged.description()))
    assert refused(of_kind(ROWS[0], 200, ignorable=False)) == "MY_EVENT_UNKNOWN"
    assert reader.read(memoryview(of_kind(ROWS[0], 200, ignorable=True))) is None
    back = of_kind(of_kind(ROWS[0], 200, ignorable=True), 30, ignorable=False)
    assert back == ROWS[0]


def test_an_event_that_says_something_else_is_sound() -> None:
    reader = EventReader()
    reader.read(memoryview(logged.description()))
    found = reader.read(memoryview(with_body(ROWS[0], lambda body: body[:-1] + b"more")))
    assert found is not None
    assert bytes(found.body).endswith(bytes(39) + b"more")


@pytest.mark.parametrize("ends", [0, 2, 4, 30])
def test_a_connection_ends_at_a_byte(ends: int) -> None:
    before = framed([GREETING, *(b"\0" + each for each in SENT[:3])])
    whole = framed([GREETING, *(b"\0" + each for each in SENT)])
    assert passed(altered(30, 2, ends=ends)) == whole[: len(before) + ends]


@pytest.mark.parametrize("size", [LONGEST - 30, LONGEST, 2 * LONGEST + 5])
def test_an_event_of_several_packets_is_one(size: int) -> None:
    sent = [logged.description(), logged.rows(1, bytes(size)), logged.rows(1)]
    shorter = [logged.description(), logged.rows(2), logged.rows(1)]
    expected = framed([GREETING, *(b"\0" + each for each in shorter)])
    assert passed(altered(events.XID, 1, lambda _: []), sent, 1 << 16) == framed(
        [GREETING, *(b"\0" + each for each in sent)]
    )
    assert passed(altered(30, 1, lambda _: [logged.rows(2)]), sent, 1 << 16) == expected
