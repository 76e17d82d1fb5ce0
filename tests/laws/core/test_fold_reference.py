"""Fold gives what its slow twin gives, whatever the changes are, also those that fit nowhere."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.change_batch import Op
from headrace.core.fold import fold
from headrace.core.key_events import events
from headrace.core.keycode import keycode
from tests.laws.core import reference
from tests.laws.core.worlds import (
    KEYED,
    NUMBERS,
    TEXTS,
    TRUNCATE,
    Change,
    Row,
    Side,
    World,
    changes,
    rows,
    sides,
    table,
    truncations,
)

ROWS: st.SearchStrategy[Row] = st.tuples(st.integers(0, 3), NUMBERS, TEXTS)
CHANGES = st.one_of(
    st.builds(Change, st.just(Op.INSERT), st.none(), ROWS, st.just(True)),
    st.builds(Change, st.just(Op.DELETE), ROWS, st.none(), st.just(True)),
    st.builds(Change, st.just(Op.UPDATE), ROWS, ROWS, st.booleans()),
    st.just(TRUNCATE),
)


def _by_place(side: Side) -> tuple[int, int, int, int]:
    """In the order of the log; what a truncation takes has no order of its own."""
    number, ordinal, diff, row = side
    return number, ordinal, diff, row[0]


def _codes(keys: set[int]) -> pa.Array:
    return keycode([pa.array(sorted(keys), pa.int32())])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(CHANGES, max_size=5), max_size=5),
    st.lists(ROWS, max_size=4, unique_by=lambda row: row[0]),
)
def test_fold_does_what_its_slow_twin_does(transactions: list[list[Change]], base: list[Row]) -> None:
    world = World({row[0]: row for row in base}, transactions)
    expected = reference.fold(world.start, transactions)
    happened = events(KEYED, changes(world, KEYED, range(len(transactions))))
    folded = fold(KEYED, happened, table(base), truncations(world, range(len(transactions))))
    assert sorted(sides(folded.history()), key=_by_place) == sorted(expected.history, key=_by_place)
    assert rows(folded.final) == [row for _, row in sorted(expected.state.items()) if row is not None]
    assert folded.missing.equals(_codes(expected.missing))
    assert folded.conflict.equals(_codes(expected.conflict))
    assert folded.holes.equals(_codes(expected.holes))
