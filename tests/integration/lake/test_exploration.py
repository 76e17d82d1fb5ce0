"""The commit machine, explored: every single interruption and every single trouble at every step.

An interruption: a writer is stopped before step i, another actor runs to its end, then the first one
wakes. What must hold after each step is in `tests.laws.lake.scenes`.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.laws.lake.scenes import CASTS, Cast, Scene, play
from tests.laws.lake.schedule import CRASH, FAIL, LOST, Choices, RandomChoices

casts = pytest.mark.parametrize("cast", CASTS.values(), ids=CASTS.keys())


@casts
def test_a_writer_stopped_at_any_step_that_wakes_later_does_no_harm(cast: Cast) -> None:
    for other in [name for name in cast(Scene()) if name != "one"]:
        for step in range(1, play(cast, Choices())):
            play(cast, Choices(switches={step: other}))


@pytest.mark.parametrize("trouble", [CRASH, FAIL, LOST])
@casts
def test_trouble_at_any_step_ends_in_an_exact_lake(cast: Cast, trouble: str) -> None:
    for step in range(play(cast, Choices())):
        play(cast, Choices(faults={step: trouble}))


@casts
def test_a_crash_at_any_step_after_a_compaction_at_any_step_is_survived(cast: Cast) -> None:
    other = list(cast(Scene()))[-1]
    length = play(cast, Choices())
    for step in range(1, length, 5):
        for crash in range(step + 1, length, 7):
            play(cast, Choices(switches={step: other}, faults={crash: CRASH}))


@pytest.mark.full
@pytest.mark.timeout(3600)
@casts
def test_any_two_interruptions_do_no_harm(cast: Cast) -> None:
    names = list(cast(Scene()))
    length = play(cast, Choices())
    for first in range(1, length, 2):
        for second in range(first + 1, length):
            for there in names[1:]:
                play(cast, Choices(switches={first: there, second: "one"}))


@pytest.mark.full
@pytest.mark.timeout(3600)
@casts
def test_ten_thousand_random_runs_end_in_an_exact_lake(cast: Cast, seed: int) -> None:
    for number in range(10_000):
        play(cast, RandomChoices(Random(f"{seed}/full/{number}"), switch=0.3, trouble=0.03))
