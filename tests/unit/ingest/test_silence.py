"""The receiver gives up a driver that is silent for too long."""

from __future__ import annotations

from headrace.ingest.worker import Silence


def test_a_driver_that_says_nothing_is_given_up_when_patience_is_over() -> None:
    silence = Silence(60.0)
    asked = (silence.over(100.0 + tenth / 10, 1) for tenth in range(10_000))
    gave_up = next(number for number, over in enumerate(asked) if over)
    assert 600 <= gave_up <= 603


def test_a_driver_that_says_something_now_and_then_never_is() -> None:
    silence = Silence(60.0)
    assert not any(silence.over(tenth / 10, tenth // 500) for tenth in range(10_000))


def test_a_clock_that_leaps_on_as_after_a_suspension_is_not_held_against_the_driver() -> None:
    silence = Silence(60.0)
    assert not any(silence.over(1_000.0 * leap, 1) for leap in range(50))
