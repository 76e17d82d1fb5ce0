"""The commit machine on real Delta logs: the same schedules as on the twin, with the same outcome.

Each run is played twice, on the twin and on a real lake. Since a schedule counts atomic operations, the two
agree only if the twin's operations are the real ones' in number, order and result. This makes the
exploration of the twin worth something.
"""

from __future__ import annotations

from random import Random

import pytest

from headrace.lake.log.marks import Mark
from headrace.lake.store.contract import Store
from tests.integration.lake.real import RealStage
from tests.laws.lake.scenes import CASTS, Cast, Scene, play
from tests.laws.lake.schedule import CRASH, FAIL, LOST, Choices, RandomChoices, run
from tests.laws.lake.writers import contents, folder


def _full(rare: bool) -> list[pytest.MarkDecorator]:
    return [pytest.mark.full] if rare else []


casts = pytest.mark.parametrize("cast", CASTS.values(), ids=CASTS.keys())

# What a bucket does otherwise is in the store's operations, which these two use all of.
_IN_BUCKETS = ("two writers and an intruder", "two writers that clean up")
places = pytest.mark.parametrize(
    ("any_store", "cast"),
    [
        *(pytest.param("local", cast, id=f"local-{name}") for name, cast in CASTS.items()),
        *(
            pytest.param(kind, cast, id=f"{kind}-{name}", marks=[pytest.mark.server, *_full(not usual)])
            for kind in ("s3", "gcs", "azure")
            for name, cast in CASTS.items()
            for usual in [kind != "azure" and name in _IN_BUCKETS]
        ),
    ],
    indirect=["any_store"],
)


def _same(cast: Cast, store: Store, choices: tuple[Choices | RandomChoices, Choices | RandomChoices]) -> None:
    scene, stage = Scene(durable_at_once=store.durable_at_once), RealStage(store)
    run(cast(scene), choices[0], scene.check)
    run(cast(stage), choices[1], lambda: None)
    assert [_told(mark) for mark in stage.marks()] == [_told(mark) for mark in scene.world.marks]
    for mark in stage.marks():
        for table, version in mark.versions.items():
            assert stage.rows(folder(table), version) == contents(table, int(mark.frontier))
    for path, log in scene.world.tables.items():
        assert stage.rows(path, len(log) - 1) == scene.world.rows(path, len(log) - 1)


def _told(mark: Mark) -> tuple[int, str, str, str, dict[str, int]]:
    return mark.epoch, mark.frontier, mark.kind, mark.plan_id, dict(mark.versions)


@places
@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.full)])
def test_random_runs_agree_with_the_twin(cast: Cast, number: int, any_store: Store, seed: int) -> None:
    def choices() -> RandomChoices:
        return RandomChoices(Random(f"{seed}/delta/{number}"))

    _same(cast, any_store, (choices(), choices()))


@places
@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.full)])
def test_interrupted_and_troubled_runs_agree_with_the_twin(
    cast: Cast, number: int, any_store: Store, seed: int
) -> None:
    random = Random(f"{seed}/interrupted/{number}")
    length = play(cast, Choices())
    step = random.randrange(1, length)
    trouble = {random.randrange(length): random.choice([CRASH, FAIL, LOST])}
    choices = Choices(switches={step: "two"}, faults=trouble)
    _same(cast, any_store, (choices, choices))


@casts
@pytest.mark.parametrize(
    "number", [0, 1, *(pytest.param(each, marks=pytest.mark.full) for each in (2, 3, 4))]
)
def test_writers_in_lockstep_agree_with_the_twin(
    cast: Cast, number: int, local_store: Store, seed: int
) -> None:
    def choices() -> RandomChoices:
        return RandomChoices(Random(f"{seed}/lockstep/{number}"), switch=0.6)

    _same(cast, local_store, (choices(), choices()))
