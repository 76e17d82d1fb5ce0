"""Whoever waits for a condition asks again soon, however long an answer took."""

import time

from headrace_testing.postmaster import condition_holds
from headrace_testing.stopwatch import least_seconds


def test_a_slow_answer_is_followed_by_a_short_pause() -> None:
    def slow() -> bool:
        time.sleep(0.1)
        return False

    assert not condition_holds(slow, most=0.02)
    # A pause of four times the answer would make it 0.5 s in all.
    assert least_seconds(lambda: condition_holds(slow, most=0.02)) < 0.3
