"""A moment has one answer for ever: whatever comes, whatever is thinned out, in whatever order times are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import Misconfigured
from headrace.lake.log.marks import Mark
from headrace.lake.read import resolve
from headrace.lake.read.resolve import Late
from headrace.lake.retain.thinning import Keeping, thin_marks
from headrace.sources.postgres.spelling import SPELLING

START = datetime(2026, 11, 20, tzinfo=UTC)
LONG_AFTER = START + timedelta(days=30)
SECONDS = range(41)


@dataclass(frozen=True)
class Source:
    """The seconds of its transactions by their times, and the marks."""

    committed: dict[int, int]
    marks: list[Mark]

    def late(self, moment: int) -> Late:
        """Answer for history: an epoch's first time committed after the moment, and whether one is before."""

        def first(before: Mark | None, mark: Mark) -> tuple[int, bool] | None:
            after = before.time if before else -1
            times = [time for time in self.committed if after < time <= mark.time]
            later = [time for time in times if self.committed[time] > moment]
            return (min(later), min(times) < min(later)) if later else None

        return first

    def holds(self, marks: list[Mark], moment: int) -> list[int] | None:
        """The transactions that there were at a moment; None where it is refused."""
        try:
            place = resolve.at_timestamp(marks, _at(moment), self.late(moment), SPELLING)
        except Misconfigured:
            return None
        return [time for time in self.committed if time <= place.time]


def _at(second: int) -> datetime:
    return START + timedelta(seconds=second)


@st.composite
def sources(draw: st.DrawFn) -> Source:
    """Clocks only go forwards from mark to mark; transactions bear any time."""
    committed: dict[int, int] = {}
    marks = [Mark(1, 1, "0/64", 99, None, START - timedelta(days=1), 0, 0)]
    clock = 0
    for epoch in range(2, draw(st.integers(3, 9))):
        seconds = draw(st.lists(st.integers(1, 39), max_size=3))
        times = [epoch * 100 + 8 * number for number in range(len(seconds))]
        committed |= dict(zip(times, seconds, strict=True))
        clock += draw(st.integers(0, 8))
        end = epoch * 100 + 50
        dated = [_at(second) for second in seconds]
        marks.append(
            Mark(
                epoch,
                1,
                f"0/{end + 1:X}",
                end,
                max(dated, default=None),
                _at(clock),
                len(seconds),
                len(seconds),
                complete_until=_at(clock) if clock else None,
                upstream_earliest_commit_ts=min(dated, default=None),
            )
        )
    return Source(committed, marks)


@given(sources())
def test_what_was_answered_is_answered_so_for_ever(source: Source) -> None:
    for moment in SECONDS:
        answers = [source.holds(source.marks[:count], moment) for count in range(1, len(source.marks) + 1)]
        first = next((at for at, answer in enumerate(answers) if answer is not None), len(answers))
        assert answers[first:] == answers[first : first + 1] * (len(answers) - first), moment


@given(sources())
def test_thinning_changes_no_answer(source: Source) -> None:
    keeping = Keeping(marks=timedelta(0))
    stay = thin_marks(source.marks, LONG_AFTER, keeping, lambda mark: {})
    for moment in SECONDS:
        assert source.holds(stay, moment) == source.holds(source.marks, moment), moment


@given(sources())
def test_nothing_is_answered_that_is_later_than_the_moment(source: Source) -> None:
    for moment in SECONDS:
        found = source.holds(source.marks, moment)
        assert found is None or all(source.committed[time] <= moment for time in found)
