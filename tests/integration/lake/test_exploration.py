"""The commit machine, explored: every single interruption and every single trouble at every step.

An interruption: a writer is stopped before step i, another actor runs to its end, then the first one
wakes. `tests.laws.lake.scenes` has the checks after each step. Every run explores each fifth step, the seed
says which; the full one explores all.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.laws.lake.scenes import CASTS, Cast, Scene, play
from tests.laws.lake.schedule import CRASH, FAIL, LOST, Choices, RandomChoices

casts = pytest.mark.parametrize("cast", CASTS.values(), ids=CASTS.keys())
strides = pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.full)])


def _steps(first: int, length: int, stride: int, seed: int) -> range:
    return range(first + seed % stride, length, stride)


@strides
@casts
def test_a_writer_stopped_at_any_step_that_wakes_later_does_no_harm(
    cast: Cast, stride: int, seed: int
) -> None:
    for number, other in enumerate(name for name in cast(Scene()) if name != "one"):
        for step in _steps(1, play(cast, Choices()), stride, seed + number):
            play(cast, Choices(switches={step: other}))


@pytest.mark.parametrize("trouble", [CRASH, FAIL, LOST])
@strides
@casts
def test_trouble_at_any_step_ends_in_an_exact_lake(cast: Cast, trouble: str, stride: int, seed: int) -> None:
    for step in _steps(0, play(cast, Choices()), stride, seed):
        play(cast, Choices(faults={step: trouble}))


@strides
@casts
def test_a_crash_at_any_step_after_a_compaction_at_any_step_is_survived(
    cast: Cast, stride: int, seed: int
) -> None:
    other = list(cast(Scene()))[-1]
    length = play(cast, Choices())
    for step in _steps(1, length, 2 * stride, seed):
        for crash in _steps(step + 1, length, 2 * stride + 1, seed):
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
