"""An epoch, a position or a time of day resolves to a place."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from headrace.core.errors import Misconfigured
from headrace.lake.log.marks import Mark
from headrace.lake.log.unknown_moments import TimeGap
from headrace.lake.read import resolve
from headrace.lake.read.positions import show_position
from headrace.lake.read.resolve import CommitPlace
from headrace.sources.mysql.position import FURTHER, MysqlTimeline
from headrace.sources.mysql.spelling import SPELLING as GTIDS
from headrace.sources.postgres.spelling import SPELLING

START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


END = START + timedelta(minutes=30)


def _mark(epoch: int, minute: int | None, frontier: str) -> Mark:
    ts = None if minute is None else START + timedelta(minutes=minute)
    published = START if epoch == 1 else END
    return Mark(epoch, 0, frontier, int(frontier[2:], 16) - 1, ts, published, 0, 0)


MARKS = [
    _mark(1, None, "0/A0"),
    _mark(2, 1, "0/B0"),
    _mark(3, 5, "0/C0"),
    _mark(4, 3, "0/D0"),  # committed later, with an earlier timestamp
    _mark(5, None, "0/D0"),
    replace(_mark(6, 9, "0/E0"), complete_until=END),
]


def _mark_of(place: CommitPlace) -> int | None:
    return place.mark.epoch if place.mark else None


def _alone(before: Mark | None, mark: Mark) -> tuple[int, bool]:
    """Answer as if the epoch were one transaction, of the mark's timestamp."""
    return mark.time, False


def _at_timestamp(moment: datetime | str) -> CommitPlace:
    return resolve.at_timestamp(MARKS, moment, _alone, SPELLING)


@pytest.mark.parametrize(("minute", "epoch"), [(0, 1), (1, 2), (3, 2), (4, 2), (5, 5), (8, 5), (9, 6)])
def test_a_timestamp_takes_the_longest_prefix_that_is_not_later(minute: int, epoch: int) -> None:
    assert _mark_of(_at_timestamp(START + timedelta(minutes=minute))) == epoch


def test_a_timestamp_within_an_epoch_is_a_place_between_marks() -> None:
    marks = [MARKS[0], replace(MARKS[1], time=50, frontier="0/33")]
    place = resolve.at_timestamp(marks, START, lambda before, mark: (40, True), SPELLING)
    assert (place.time, place.frontier, place.mark) == (39, "0/28", None)
    assert place.text_with_position == '"0/28"'
    assert resolve.place_of(marks[1]).text_with_position == "epoch 2 (0/33)"


def test_a_log_that_was_empty_at_the_first_mark_is_told_as_its_beginning() -> None:
    """MySQL's empty set of transactions is an empty text."""
    marks = [replace(MARKS[0], frontier=""), MARKS[1]]
    assert f'positions the beginning of the log to "{MARKS[1].frontier}"' in resolve.kept_range(marks)
    assert resolve.place_of(marks[0]).text_with_position == "epoch 1"


def test_an_epoch_whose_later_transactions_changed_nothing_of_ours_does_not_end_the_prefix() -> None:
    late = {3: None, 6: (MARKS[5].time, False)}
    place = resolve.at_timestamp(
        MARKS, START + timedelta(minutes=4), lambda _, mark: late[mark.epoch], SPELLING
    )
    assert _mark_of(place) == 5


def test_a_timestamp_before_everything_is_refused() -> None:
    with pytest.raises(Misconfigured) as raised:
        _at_timestamp(START - timedelta(minutes=1))
    assert raised.value.code == "LAKE_NO_MARK"
    assert "0/A0" in str(raised.value.detail)


def test_a_timestamp_until_which_no_mark_is_complete_is_refused() -> None:
    assert _mark_of(_at_timestamp(END)) == 6
    with pytest.raises(Misconfigured) as raised:
        _at_timestamp(END + timedelta(seconds=1))
    assert raised.value.code == "LAKE_NOT_REACHED"
    assert END.isoformat() in str(raised.value.detail)


def test_what_is_dated_back_behind_a_mark_counts_as_later_than_that_mark_says() -> None:
    marks = [replace(mark, complete_until=START + timedelta(minutes=6)) for mark in MARKS[2:5]]
    marks = [*MARKS[:2], *marks, MARKS[5]]
    place = resolve.at_timestamp(marks, START + timedelta(minutes=5), _alone, SPELLING)
    assert _mark_of(place) == 3


@pytest.mark.parametrize(
    ("minute", "known"), [(-2, False), (-1, True), (5, True), (6, False), (7, False), (8, True)]
)
def test_a_moment_of_which_no_stream_tells_is_refused(minute: int, known: bool) -> None:
    """The lake's clock, by which the first mark was published at minute 0, has no say in it."""
    moment = [START + timedelta(minutes=minute) for minute in (-1, 5, 8)]
    stretches = (TimeGap(None, moment[0]), TimeGap(moment[1], moment[2]))
    asked = START + timedelta(minutes=minute)
    if known:
        resolve.at_timestamp(MARKS, asked, _alone, SPELLING, stretches)
        return
    with pytest.raises(Misconfigured) as raised:
        resolve.at_timestamp(MARKS, asked, _alone, SPELLING, stretches)
    assert raised.value.code == "LAKE_NO_MARK"
    assert raised.value.hint


def test_of_marks_that_do_not_tell_of_the_clock_only_later_transactions_do() -> None:
    marks = [replace(mark, complete_until=None) for mark in MARKS]
    place = resolve.at_timestamp(marks, START + timedelta(minutes=8), _alone, SPELLING)
    assert _mark_of(place) == 5
    with pytest.raises(Misconfigured) as raised:
        resolve.at_timestamp(marks, START + timedelta(minutes=9), _alone, SPELLING)
    assert raised.value.code == "LAKE_NOT_REACHED"


def test_a_moment_until_which_a_mark_that_went_may_have_been_complete_is_refused() -> None:
    marks = [replace(mark, complete_until=END) for mark in MARKS[4:]]
    with pytest.raises(Misconfigured) as raised:
        resolve.at_timestamp(marks, START + timedelta(minutes=10), _alone, SPELLING)
    assert raised.value.code == "LAKE_NO_MARK"


@pytest.mark.parametrize("text", ["2026-11-20T12:05:00Z", "2026-11-20T13:05:00+01:00"])
def test_a_timestamp_may_be_written_with_any_zone(text: str) -> None:
    assert _mark_of(_at_timestamp(text)) == 5


@pytest.mark.parametrize("moment", ["2026-11-20T12:05:00", "yesterday", datetime(2026, 11, 20)])
def test_a_timestamp_without_a_zone_is_refused(moment: str | datetime) -> None:
    with pytest.raises(Misconfigured) as raised:
        _at_timestamp(moment)
    assert raised.value.code == "TIMESTAMP_MALFORMED"


def test_a_position_takes_the_newest_mark_exactly_there() -> None:
    assert _mark_of(resolve.at_position(MARKS, "0/d0", SPELLING)) == 5
    assert _mark_of(resolve.at_position(MARKS, "00000000/000000A0", SPELLING)) == 1


def test_a_position_between_two_marks_is_a_place_of_its_own() -> None:
    place = resolve.at_position(MARKS, "0/C8", SPELLING)
    assert (place.mark, place.frontier, place.time) == (None, "0/C8", 0xC7)


def test_a_position_that_is_not_reached_is_refused() -> None:
    with pytest.raises(Misconfigured) as raised:
        resolve.at_position(MARKS, "0/E1", SPELLING)
    assert raised.value.code == "LAKE_NOT_REACHED"
    assert "0/A0" in str(raised.value.detail)


def test_a_position_is_read_in_the_newest_life_that_has_one_like_it() -> None:
    """A source that was reset counts its positions anew, while time goes on."""
    base = 0x1000
    later = [
        Mark(7, 1, "0/10", base + 0x0F, None, END, 0, 0),
        Mark(8, 1, "0/C4", base + 0xC3, None, END, 0, 0),
    ]
    marks = [*MARKS, *later]
    assert _mark_of(resolve.at_position(marks, "0/C4", SPELLING)) == 8
    assert resolve.at_position(marks, "0/40", SPELLING).time == base + 0x3F
    assert _mark_of(resolve.at_position(marks, "0/E0", SPELLING)) == 6
    assert resolve.at_position(marks, "0/C8", SPELLING).time == 0xC7


def test_a_life_whose_first_marks_were_spelled_as_times_is_read_in_both_ways() -> None:
    """Version 1 of the lake spelled marks so for a server that had been set back."""
    base = 1 << 32
    shifted = [Mark(7, 1, f"1/{low:X}", base + low - 1, None, END, 0, 0) for low in (0x10, 0x20)]
    own = [Mark(8, 1, f"0/{low:X}", base + low - 1, None, END, 0, 0) for low in (0x30, 0x40)]
    marks = [*MARKS, *shifted, *own]
    assert resolve.at_position(marks, "1/20", SPELLING).time == base + 0x1F
    assert resolve.at_position(marks, "1/18", SPELLING).time == base + 0x17
    assert resolve.at_position(marks, "0/38", SPELLING).time == base + 0x37
    assert _mark_of(resolve.at_position(marks, "0/E0", SPELLING)) == 6


def test_an_epoch_that_is_not_kept_is_refused() -> None:
    assert resolve.at_epoch(MARKS, 4).frontier == "0/D0"
    with pytest.raises(Misconfigured) as raised:
        resolve.at_epoch(MARKS, 7)
    assert raised.value.code == "LAKE_NO_MARK"


def test_a_lake_without_marks_says_so() -> None:
    with pytest.raises(Misconfigured) as raised:
        resolve.newest([])
    assert raised.value.code == "LAKE_NO_MARK"


def test_a_person_is_not_shown_what_a_position_is_known_again_by() -> None:
    server = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    near = MysqlTimeline().position(
        f"{server}:1-5 last {server}:5@1763856000123456@1234@6f2c01aa@binlog.000002"
    )
    assert show_position(GTIDS, near.time, near) == f"{server}:1-5"


def test_a_set_of_gtids_is_read_in_the_newest_life_that_was_at_it() -> None:
    server = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    lives = [(0, f"{server}:1-10"), (0, f"{server}:1-20"), (1, f"{server}:1-5"), (1, f"{server}:1-9")]
    marks = []
    for epoch, (life, text) in enumerate([*lives, (2, "6f08142e-e71f-11f1-be09-02fc00000001:1")], start=1):
        time = MysqlTimeline(life * FURTHER).position(text).last
        marks.append(replace(_mark(epoch, None, "0/1"), incarnation=life, frontier=text, time=time))

    def read(numbers: str) -> tuple[int, int]:
        place = resolve.at_position(marks, f"{server}:{numbers}", GTIDS)
        return place.time, place.incarnation

    assert read("1-7") == (MysqlTimeline(FURTHER).time(7) - 1, 1)
    assert read("1-9") == (MysqlTimeline(FURTHER).time(9) - 1, 1)
    assert read("1-15") == (MysqlTimeline(0).time(15) - 1, 0)
    assert read("1-3") == (MysqlTimeline(0).time(3) - 1, 0)
    for never in ("2-9", "11-20", "2-15"):
        with pytest.raises(Misconfigured) as refused:
            read(never)
        assert refused.value.code == "LAKE_NO_MARK"
