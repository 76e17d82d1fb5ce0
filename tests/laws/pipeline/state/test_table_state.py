"""Laws of the life of a table: every event has an answer in every state, and no wait is for ever."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from headrace.core.names import TableName
from headrace.core.records import from_record, to_record
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.state.table_state import (
    MEANINGS,
    TRANSITIONS,
    CannotHappen,
    Meaning,
    State,
    TableEvent,
    after,
)
from tests.places import place_at
from tests.unit.core.batches import text_table

ENDS = {State.LIVE, State.STOPPED, State.ABSENT}
RECORD = TableRecord(TableName("public", "t"), State.PENDING, 5, text_table(), {}, place_at(7))


def test_every_event_is_answered_in_every_state() -> None:
    """By a state, or by an error that names both."""
    assert set(TRANSITIONS) == set(MEANINGS) == set(State)
    for state, event in itertools.product(State, TableEvent):
        if event in TRANSITIONS[state]:
            assert after(state, event) is TRANSITIONS[state][event]
            continue
        with pytest.raises(CannotHappen) as caught:
            after(state, event)
        assert {state.value, event.value} <= set(str(caught.value).split('"'))


def test_every_event_can_happen_and_every_state_is_reached() -> None:
    assert {event for row in TRANSITIONS.values() for event in row} == set(TableEvent)
    assert _reached(State.ABSENT) == set(State)


def test_from_whoever_waits_every_way_leads_to_an_end() -> None:
    """Wherever a table has come to, an end can be reached; and whoever goes on without end is begun again."""
    for state in _reached(State.PENDING):
        assert _reached(state) & ENDS
    # What may repeat for ever is what is named so: to be begun again, and to lack a value.
    again = (TableEvent.LACKING, TableEvent.BEGUN_ANEW)
    onward = {
        s: {a for e, a in row.items() if e not in again} for s, row in TRANSITIONS.items() if s not in ENDS
    }
    assert _is_acyclic(onward)


def test_no_way_leads_out_of_an_end_but_those_that_are_named() -> None:
    ways = {state: {event for event, to in TRANSITIONS[state].items() if to is not state} for state in ENDS}
    assert ways == {
        State.ABSENT: {TableEvent.CHOSEN},
        State.LIVE: {TableEvent.FAILED, TableEvent.DROPPED, TableEvent.TAKEN_UP},
        State.STOPPED: {TableEvent.RECONCILED, TableEvent.DROPPED, TableEvent.TAKEN_UP},
    }


def test_everything_that_is_there_can_fail_and_be_dropped() -> None:
    for state in set(State) - {State.ABSENT}:
        assert after(state, TableEvent.FAILED) is State.STOPPED
        assert after(state, TableEvent.DROPPED) is State.ABSENT


def test_the_stream_is_applied_to_a_table_or_kept_for_it_until_it_ends() -> None:
    """Never both, and never neither: nothing of it is streamed again."""
    for state in set(State) - {State.ABSENT, State.STOPPED}:
        assert state.follows is not state.keeps_stream, state
    for state in (State.ABSENT, State.STOPPED):
        assert {state.follows, state.keeps_stream} == {False}


def test_what_a_state_means_fits_together() -> None:
    for state in State:
        assert state.is_named <= (state.follows and state.has_rows and state.is_settled)
        assert state.asks_handoff <= state.has_rows
        assert state.awaits_copy <= state.keeps_stream
        assert state.may_resync <= state.is_settled
        assert (state.follows or state.keeps_stream) <= state.is_published
        assert Meaning(**{name: getattr(state, name) for name in Meaning.__slots__}) == MEANINGS[state]


@pytest.mark.parametrize("state", [state for state in State if state is not State.ABSENT])
def test_a_state_comes_back_from_the_catalog(state: State) -> None:
    for copy_id in {State.LIVE: (None,), State.READY: ("1-0",)}.get(state, (None, "1-0")):
        record = replace(RECORD, state=state, copy_id=copy_id)
        assert from_record(TableRecord, to_record(record)) == record
        assert to_record(record)["state"] == state.value


def _reached(start: State) -> set[State]:
    reached, new = {start}, {start}
    while new := {to for state in new for to in TRANSITIONS[state].values()} - reached:
        reached |= new
    return reached


def _is_acyclic(ways: dict[State, set[State]]) -> bool:
    left = {state: to & ways.keys() for state, to in ways.items()}
    while ends := {state for state, to in left.items() if not to & left.keys()}:
        left = {state: to for state, to in left.items() if state not in ends}
    return not left
