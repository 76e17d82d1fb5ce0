"""The commit machine under many orders of steps: what must be true whoever stops, dies or comes back.

A sample drawn from the seed, small enough for every check. `tests/integration/lake/test_exploration.py`
tries every single interruption and every single trouble at every step, and all pairs in the full run.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.laws.lake.scenes import CASTS, Cast, Scene, play
from tests.laws.lake.schedule import CRASH, FAIL, LOST, Choices, RandomChoices, run

casts = pytest.mark.parametrize("cast", CASTS.values(), ids=CASTS.keys())


def test_undisturbed_writers_publish_every_transaction() -> None:
    scene = Scene()
    run({"one": scene.writer(epochs=12)}, Choices(), scene.check)
    assert [mark.frontier for mark in scene.world.marks] == [str(number) for number in range(13)]
    assert len(scene.published) == 12


@pytest.mark.parametrize("trouble", [FAIL, LOST])
def test_trouble_at_any_step_never_stops_the_only_writer(trouble: str) -> None:
    length = play(lambda scene: {"one": scene.writer()}, Choices())
    for step in range(length):
        scene = Scene()
        run({"one": scene.writer()}, Choices(faults={step: trouble}), scene.check)
        assert scene.world.marks[-1].frontier == "2", f"stopped by trouble at step {step}"


@casts
def test_random_runs_end_in_an_exact_lake(cast: Cast, seed: int) -> None:
    for number in range(40):
        play(cast, RandomChoices(Random(f"{seed}/{number}")))


@casts
def test_a_writer_that_sleeps_through_a_takeover_does_no_harm(cast: Cast, seed: int) -> None:
    random = Random(f"{seed}/sleep")
    for step in random.sample(range(1, play(cast, Choices())), 12):
        play(cast, Choices(switches={step: "two"}, faults={step + 9: random.choice([CRASH, FAIL, LOST])}))
