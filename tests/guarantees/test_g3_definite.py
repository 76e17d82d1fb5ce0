"""G3: re-running anything yields the same contents at the same times."""

from __future__ import annotations

from headrace_testing import validators
from tests.guarantees.conftest import Stormy


def test_g3_history_between_marks_is_exactly_what_changed_between_them(stormy: Stormy) -> None:
    assert validators.definite(stormy.lake) == []


def test_g3_epochs_are_numbered_without_a_gap_and_frontiers_never_go_back(stormy: Stormy) -> None:
    marks = stormy.lake.marks()
    assert [mark.epoch for mark in marks] == list(range(1, len(marks) + 1))
    times = [mark.time for mark in marks]
    assert times == sorted(times)
