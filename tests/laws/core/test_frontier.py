"""Laws of frontiers, over all three kinds of time."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.frontier import frontier_as_record, frontier_from_record
from tests.laws.core.times import frontiers, universe

LAWS = settings(max_examples=100, deadline=None)
KINDS = st.sampled_from(["lsn", "tick", "gtid"])


def _covered(kind: str, frontier: Any) -> set[Any]:
    return {time for time in universe(kind)[0] if frontier.covers(time)}


@LAWS
@given(KINDS.flatmap(lambda kind: st.tuples(st.just(kind), frontiers(kind))))
def test_a_mask_says_of_many_times_what_covers_says_of_one(case: Any) -> None:
    kind, frontier = case
    times, column = universe(kind)
    assert frontier.mask(column).to_pylist() == [frontier.covers(time) for time in times]
    assert frontier.mask(column.slice(7)).to_pylist() == [frontier.covers(time) for time in times[7:]]


@LAWS
@given(KINDS.flatmap(lambda kind: st.tuples(st.just(kind), frontiers(kind), frontiers(kind))))
def test_the_order_of_frontiers_is_inclusion_of_what_they_cover(case: Any) -> None:
    kind, one, other = case
    # An LSN 0 and an LSN 1 differ though no commit lies between them; what is covered decides else.
    assert (one <= other) == (_covered(kind, one) <= _covered(kind, other))
    assert (one == other) == (one <= other and other <= one)


@LAWS
@given(KINDS.flatmap(lambda kind: st.tuples(st.just(kind), *[frontiers(kind)] * 3)))
def test_a_join_is_the_least_frontier_above_both(case: Any) -> None:
    kind, one, other, third = case
    joined = one.join(other)
    assert _covered(kind, joined) == _covered(kind, one) | _covered(kind, other)
    assert one <= joined
    assert other <= joined
    assert (joined <= third) == (one <= third and other <= third)
    assert joined == other.join(one)


@LAWS
@given(KINDS.flatmap(frontiers))
def test_a_frontier_survives_being_written_down(frontier: Any) -> None:
    assert frontier_from_record(frontier_as_record(frontier)) == frontier
