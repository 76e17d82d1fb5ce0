"""A table that changes again and again is taken up less often."""

from __future__ import annotations

from itertools import pairwise

from headrace.core.names import TableName
from headrace.pipeline import following
from headrace.pipeline.following import TableFollower

T = TableName("public", "t")


def _moments(seconds: float) -> list[float]:
    """List when the table is taken up if it is due again each time, within so many seconds."""
    tended, now, found = TableFollower(), 0.0, list[float]()
    while now < seconds:
        found.append(now)
        tended.note(T, now)
        now = tended.retries[T].again_at
    return found


def test_a_table_that_changes_all_the_time_costs_a_copy_in_five_minutes() -> None:
    moments = _moments(3600)
    pauses = [later - earlier for earlier, later in pairwise(moments)]
    assert pauses[:4] == [1, 2, 4, 8]
    assert pauses[-1] == following.LONGEST_PAUSE
    assert len(moments) < 25


def test_a_table_that_was_quiet_is_taken_up_at_once_again() -> None:
    tended = TableFollower()
    for now in (0.0, 1.0, 3.0):
        tended.note(T, now)
    calm = tended.retries[T].again_at + following.LONGEST_PAUSE + 1
    tended.note(T, calm)
    assert tended.retries[T].again_at == calm + following.FIRST_PAUSE
