"""The life of a table is a table: what follows from what, and what cannot happen."""

from __future__ import annotations

import itertools

import pytest

from headrace.pipeline.state.table_state import TRANSITIONS, Event, State, after


def test_a_table_becomes_live_by_its_copy_and_then_by_being_exact() -> None:
    assert after(after(State.CHOSEN, Event.COPIED), Event.EXACT) is State.LIVE


def test_every_state_but_the_last_can_fail() -> None:
    alive = set(State) - {State.STOPPED}
    assert {after(state, Event.FAILED) for state in alive} == {State.STOPPED}


@pytest.mark.parametrize(("state", "event"), sorted(itertools.product(State, Event), key=str))
def test_what_is_not_in_the_table_is_a_bug(state: State, event: Event) -> None:
    if (state, event) in TRANSITIONS:
        assert after(state, event) in State
        return
    with pytest.raises(AssertionError):
        after(state, event)
