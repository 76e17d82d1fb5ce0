"""Retention decides which marks stay, and which files are put together."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from headrace.core.durations import duration
from headrace.core.errors import Misconfigured
from headrace.lake.log.marks import Mark
from headrace.lake.retain.compaction import SMALL, TARGET, SmallFile, groups
from headrace.lake.retain.thinning import Keeping, Known, thin_marks

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DAY = Keeping(marks=timedelta(days=1))


def _marks(count: int, ago: timedelta, every: timedelta) -> list[Mark]:
    return [
        Mark(
            epoch=number + 1,
            incarnation=1,
            frontier=f"0/{number * 10 + 11:X}",
            time=number * 10 + 10,
            upstream_commit_ts=NOW - ago + number * every,
            published_at=NOW - ago + number * every,
            transactions=1,
            changes=2,
            versions={"public.a": number, "public.b": 0},
        )
        for number in range(count)
    ]


def _known(_mark: Mark) -> Known:
    return {"public.a": (0, "x"), "public.b": (0, "x")}


def test_every_mark_of_the_last_day_stays() -> None:
    marks = _marks(100, timedelta(hours=23), MINUTE)
    assert thin_marks(marks, NOW, DAY, _known) == marks


def test_of_older_ones_the_last_of_each_hour_stays_and_tells_what_the_others_told() -> None:
    marks = _marks(180, timedelta(hours=48), MINUTE)
    stay = thin_marks(marks, NOW, DAY, _known)
    assert [mark.epoch for mark in stay] == [1, 60, 120, 180]
    assert [mark.transactions for mark in stay] == [1, 59, 60, 60]
    assert [mark.changes for mark in stay] == [2, 118, 120, 120]
    late = [replace(mark, upstream_commit_ts=None) for mark in marks]
    late[70] = replace(late[70], upstream_commit_ts=NOW)
    told = [mark.upstream_commit_ts for mark in thin_marks(late, NOW, DAY, _known)]
    assert told == [None, None, NOW, None]


def test_a_mark_stays_where_what_follows_is_dated_back_behind_it() -> None:
    marks = [
        replace(mark, complete_until=mark.published_at, upstream_earliest_commit_ts=mark.published_at)
        for mark in _marks(180, timedelta(hours=48), MINUTE)
    ]
    marks[70] = replace(marks[70], upstream_earliest_commit_ts=marks[69].published_at)
    stay = thin_marks(marks, NOW, DAY, _known)
    assert [mark.epoch for mark in stay] == [1, 60, 70, 120, 180]
    earliest = [mark.upstream_earliest_commit_ts for mark in stay]
    assert earliest[2:4] == [marks[60].published_at, marks[69].published_at]


def test_a_mark_by_way_of_which_others_are_read_stays() -> None:
    """The table begins anew where that mark ended: history leads back to it, and to none before it."""
    marks = _marks(180, timedelta(hours=48), MINUTE)

    def known(mark: Mark) -> Known:
        return {"public.a": (marks[99].time + 1 if mark.epoch > 100 else 0, "x"), "public.b": (0, "x")}

    before = thin_marks(marks[:100], NOW, DAY, known)
    assert [mark.epoch for mark in before] == [1, 60, 100]
    assert 100 in {mark.epoch for mark in thin_marks([*before, *marks[100:]], NOW, DAY, known)}


def test_after_a_week_the_last_of_each_day_stays() -> None:
    marks = _marks(96, timedelta(days=12), timedelta(hours=1))
    stay = thin_marks(marks, NOW, DAY, _known)
    days = [mark.published_at.date() for mark in stay]
    assert len(stay) - len(set(days)) == 1  # the first of all, and the last of its day


def test_a_table_that_leaves_keeps_the_marks_around_that_place() -> None:
    marks = _marks(180, timedelta(hours=48), MINUTE)
    for number in range(180):
        if not 30 <= number < 75:
            marks[number] = replace(marks[number], versions={"public.b": 0})
    stay = {mark.epoch for mark in thin_marks(marks, NOW, DAY, _known)}
    assert 75 in stay
    assert len(stay) < 30


def test_a_table_that_is_held_now_and_then_costs_no_mark() -> None:
    """It sits marks out, some of those that stay among them; the next that has it leads back to all."""
    marks = _marks(24 * 720, timedelta(hours=48), timedelta(seconds=5))  # a day
    every = {number: mark for number, mark in enumerate(marks) if number % 12 < 3 or number in (719, 1439)}
    held = [replace(mark, versions={"public.b": 0}) if n in every else mark for n, mark in enumerate(marks)]
    assert len(thin_marks(held, NOW, DAY, _known)) == len(thin_marks(marks, NOW, DAY, _known)) == 25


@pytest.mark.parametrize("what", ["since", "columns", "life"])
def test_marks_stay_where_history_does_not_lead_from_one_to_the_other(what: str) -> None:
    marks = _marks(180, timedelta(hours=48), MINUTE)
    if what == "life":
        marks[100:] = [replace(mark, incarnation=2) for mark in marks[100:]]

    def known(mark: Mark) -> Known:
        later = mark.epoch > 100
        since = marks[100].time if later and what == "since" else 0
        return {"public.a": (since, "y" if later and what == "columns" else "x"), "public.b": (0, "x")}

    stay = {mark.epoch for mark in thin_marks(marks, NOW, DAY, known)}
    assert {100} | ({101} if what != "since" else set()) <= stay
    assert len(stay) < 30


def test_a_duration_is_a_number_and_a_unit() -> None:
    assert duration("90s", "x") == timedelta(seconds=90)
    assert duration(" 2w ", "x") == timedelta(days=14)
    for text in ("", "1", "-1d", "1 d", "1.5h", "d", "1d2h", "٣d", "9999999d"):
        with pytest.raises(Misconfigured) as refused:
            duration(text, "retention")
        assert refused.value.code == "DURATION_MALFORMED"


def _small(*sizes: int) -> list[SmallFile]:
    return [SmallFile(f"f{number}", size, 1) for number, size in enumerate(sizes)]


def test_neighbours_that_are_small_are_put_together_and_large_files_are_borders() -> None:
    files = _small(1, 1, SMALL, 1, SMALL + 1, 1, 1, 1)
    found = [[file.path for file in group] for group in groups(files)]
    assert found == [["f0", "f1"], ["f5", "f6", "f7"]]
    assert [[file.path for file in group] for group in groups(files, 3)] == [["f5", "f6", "f7"]]


def test_what_is_put_together_stays_within_the_target() -> None:
    found = groups(_small(*[SMALL - 1] * 20))
    assert all(sum(file.size for file in group) <= TARGET for group in found)
    assert sum(len(group) for group in found) == 20
