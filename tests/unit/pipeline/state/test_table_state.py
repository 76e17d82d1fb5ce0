"""The life of a table, on the ways that it goes."""

from __future__ import annotations

from functools import reduce

import pytest

from headrace.pipeline.state.table_state import CannotHappen, Event, State, after


def _lived(*events: Event) -> State:
    return reduce(after, events, State.ABSENT)


def test_a_table_becomes_live_by_its_copy_by_what_was_kept_and_then_by_being_exact() -> None:
    copied = (Event.CHOSEN, Event.COPIED, Event.CAUGHT_UP)
    assert _lived(*copied, Event.EXACT) is State.LIVE
    assert _lived(*copied, Event.LACKING, Event.COPIED, Event.CAUGHT_UP, Event.EXACT) is State.LIVE


def test_a_new_copy_is_compared_and_goes() -> None:
    assert (
        _lived(Event.CHOSEN, Event.COPIED, Event.CAUGHT_UP, Event.COMPARABLE, Event.DROPPED) is State.ABSENT
    )


def test_what_was_not_copied_cannot_be_exact() -> None:
    with pytest.raises(CannotHappen) as caught:
        _lived(Event.CHOSEN, Event.EXACT)
    assert str(caught.value) == '"exact" cannot happen to a table that is "pending"'
