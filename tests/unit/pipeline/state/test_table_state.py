"""The life of a table, on the ways that it goes."""

from __future__ import annotations

from functools import reduce

import pytest

from headrace.pipeline.state.table_state import CannotHappen, State, TableEvent, after


def _lived(*events: TableEvent) -> State:
    return reduce(after, events, State.ABSENT)


def test_a_table_becomes_live_by_its_copy_by_what_was_kept_and_then_by_being_exact() -> None:
    copied = (TableEvent.CHOSEN, TableEvent.COPIED, TableEvent.CAUGHT_UP)
    assert _lived(*copied, TableEvent.EXACT) is State.LIVE
    assert (
        _lived(*copied, TableEvent.LACKING, TableEvent.COPIED, TableEvent.CAUGHT_UP, TableEvent.EXACT)
        is State.LIVE
    )


def test_a_new_copy_is_compared_and_goes() -> None:
    assert (
        _lived(
            TableEvent.CHOSEN,
            TableEvent.COPIED,
            TableEvent.CAUGHT_UP,
            TableEvent.COMPARABLE,
            TableEvent.DROPPED,
        )
        is State.ABSENT
    )


def test_what_was_not_copied_cannot_be_exact() -> None:
    with pytest.raises(CannotHappen) as caught:
        _lived(TableEvent.CHOSEN, TableEvent.EXACT)
    assert str(caught.value) == '"exact" cannot happen to a table that is "pending"'
