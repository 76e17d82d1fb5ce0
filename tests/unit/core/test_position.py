"""Positions are read exclusively, and refuse what they can't judge."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace.core.errors import Misconfigured
from headrace.core.position import ORIGIN, Position
from headrace.core.records import from_record, to_record
from headrace.sources.postgres.position import Lsn
from headrace.sources.postgres.spelling import SPELLING
from tests.places import place_at


def test_a_commit_that_starts_at_the_position_is_not_covered() -> None:
    position = place_at(0x1000)
    assert position.mask(pa.array([0xFFF, 0x1000, 0x1001])).to_pylist() == [True, False, False]
    assert not position.covers(0x1000)


def test_an_update_without_a_time_is_refused() -> None:
    with pytest.raises(ValueError, match="without a time"):
        place_at(5).mask(pa.array([1, None]))


@pytest.mark.parametrize("text", ["16B374D848", "0/\u00b2", "", "0/1/2", "100000000/0"])
def test_an_lsn_that_cannot_be_read_is_a_coded_error(text: str) -> None:
    assert not SPELLING.reads(text)
    with pytest.raises(Misconfigured) as caught:
        Lsn.parse(text)
    assert caught.value.code == "POSITION_MALFORMED"


def test_where_nothing_is_known_yet_lsns_are_times() -> None:
    assert SPELLING.time("0/20", ORIGIN) == 0x20


@pytest.mark.parametrize("record", ["0/10", {"time": 1}, {"time": "x", "text": ""}, None])
def test_what_is_no_position_as_it_is_written_down_is_a_coded_error(record: Any) -> None:
    with pytest.raises(Misconfigured) as caught:
        from_record(Position, record)
    assert (caught.value.code, bool(caught.value.hint)) == ("POSITION_MALFORMED", True)


def test_people_are_not_shown_by_what_a_place_is_known_again() -> None:
    position = Position(9, "0-1-2 last 0-1-2@17@4@ab@log.000001")
    assert (str(position), to_record(position)["text"]) == ("0-1-2", position.text)
