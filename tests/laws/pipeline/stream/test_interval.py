"""Marks of `every = "auto"` come as often as they can be afforded, and not too seldom."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.stream.cadence import (
    CORE_SHARE,
    FILES_PER_SECOND,
    LONGEST_FOR_FILES,
    LONGEST_SECONDS,
    SHORTEST_SECONDS,
    MarkCost,
    interval,
)

COSTS = st.builds(MarkCost, st.floats(0, 100), st.integers(3, 10_000))
MANY = st.lists(COSTS, max_size=5)


@given(MANY)
def test_it_lies_between_the_shortest_and_the_longest(costs: list[MarkCost]) -> None:
    assert SHORTEST_SECONDS <= interval(costs) <= LONGEST_FOR_FILES
    few = [MarkCost(cost.cpu_seconds, 3) for cost in costs]
    assert interval(few) <= LONGEST_SECONDS, "files alone may take them further apart"


@given(COSTS, st.integers(1, 5))
def test_marks_of_one_cost_are_as_close_as_can_be_afforded(cost: MarkCost, count: int) -> None:
    seconds = interval([cost] * count)
    assert cost.cpu_seconds <= CORE_SHARE * seconds * 1.001 or seconds >= LONGEST_SECONDS
    assert cost.files <= FILES_PER_SECOND * seconds * 1.001 or seconds == LONGEST_FOR_FILES
    closer = 0.99 * seconds
    affordable = cost.cpu_seconds <= CORE_SHARE * closer and cost.files <= FILES_PER_SECOND * closer
    assert not affordable or seconds == SHORTEST_SECONDS


@given(MANY, st.data())
def test_dearer_marks_are_never_closer(costs: list[MarkCost], data: st.DataObject) -> None:
    dearer = [
        MarkCost(cost.cpu_seconds + data.draw(st.floats(0, 10)), cost.files + data.draw(st.integers(0, 100)))
        for cost in costs
    ]
    assert interval(dearer) >= interval(costs)


@given(COSTS, st.integers(2, 4))
def test_a_mark_that_met_a_cold_machine_counts_for_nothing(usual: MarkCost, count: int) -> None:
    assert interval([MarkCost(1e6, usual.files), *[usual] * count]) == interval([usual])
