"""Which mark somebody means, by epoch, position or time of day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headrace.core.errors import Misconfigured
from headrace.lake import seek
from headrace.lake.marks import Mark

START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def _mark(epoch: int, minute: int | None, frontier: str) -> Mark:
    ts = None if minute is None else START + timedelta(minutes=minute)
    return Mark(epoch, 0, frontier, epoch, ts, START, 0, 0)


MARKS = [
    _mark(1, None, "0/A0"),
    _mark(2, 1, "0/B0"),
    _mark(3, 5, "0/C0"),
    _mark(4, 3, "0/D0"),  # committed later, with an earlier timestamp
    _mark(5, None, "0/D0"),
    _mark(6, 9, "0/E0"),
]


@pytest.mark.parametrize(
    ("minute", "epoch"), [(0, 1), (1, 2), (3, 2), (4, 2), (5, 5), (8, 5), (9, 6), (99, 6)]
)
def test_a_timestamp_takes_the_longest_prefix_that_is_not_later(minute: int, epoch: int) -> None:
    assert seek.at_timestamp(MARKS, START + timedelta(minutes=minute)).epoch == epoch


def test_a_timestamp_before_everything_is_refused() -> None:
    with pytest.raises(Misconfigured) as raised:
        seek.at_timestamp(MARKS[1:], START)
    assert raised.value.code == "LAKE_NO_MARK"


@pytest.mark.parametrize("text", ["2026-11-20T12:05:00Z", "2026-11-20T13:05:00+01:00"])
def test_a_timestamp_may_be_written_with_any_zone(text: str) -> None:
    assert seek.at_timestamp(MARKS, text).epoch == 5


@pytest.mark.parametrize("moment", ["2026-11-20T12:05:00", "yesterday", datetime(2026, 11, 20)])
def test_a_timestamp_without_a_zone_is_refused(moment: str | datetime) -> None:
    with pytest.raises(Misconfigured) as raised:
        seek.at_timestamp(MARKS, moment)
    assert raised.value.code == "TIMESTAMP_MALFORMED"


def test_a_position_takes_the_newest_mark_exactly_there() -> None:
    assert seek.at_position(MARKS, "0/d0").epoch == 5
    assert seek.at_position(MARKS, "00000000/000000A0").epoch == 1
    with pytest.raises(Misconfigured) as raised:
        seek.at_position(MARKS, "0/C8")
    assert raised.value.code == "LAKE_NO_MARK"
    assert "0/A0" in str(raised.value.detail)


def test_an_epoch_that_is_not_kept_is_refused() -> None:
    assert seek.at_epoch(MARKS, 4).frontier == "0/D0"
    with pytest.raises(Misconfigured) as raised:
        seek.at_epoch(MARKS, 7)
    assert raised.value.code == "LAKE_NO_MARK"


def test_a_lake_without_marks_says_so() -> None:
    with pytest.raises(Misconfigured) as raised:
        seek.newest([])
    assert raised.value.code == "LAKE_NO_MARK"
