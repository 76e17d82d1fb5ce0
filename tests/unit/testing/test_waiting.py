"""Whoever waits for a condition asks again soon, however long an answer took."""

import time

from headrace.testing.postmaster import condition_holds


def test_a_slow_answer_is_followed_by_a_short_pause() -> None:
    def slow() -> bool:
        time.sleep(0.1)
        return False

    begun = time.monotonic()
    assert not condition_holds(slow, most=0.02)
    assert time.monotonic() - begun < 0.3  # four times the answer would be 0.5 s in all
