"""Laws of a source whose times have no order within: a tick's events are a collection, truncations aside."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.fold import FoldResult, fold
from headrace.core.key_events import KeyEvent, events
from headrace.core.net_events import net_events
from headrace.core.schema import TableSchema
from headrace.core.truncation import Truncation, Truncations
from tests.effort import examples
from tests.laws.core.worlds import (
    COLUMNS,
    Row,
    Side,
    World,
    change_schema_of,
    rows,
    side_record,
    table,
    worlds,
)

TICKED = TableSchema(COLUMNS, ("id",), full=True, is_ordered=False)
LAWS = examples(100)
FIRST_ID = 1 << 45  # of events: a queue's numbers grow for as long as it lives
TICKS = st.integers(1, 8)  # transactions a tick


def _ticks(world: World, size: int, random: Random) -> tuple[pa.Table, Truncations]:
    """Turn a world into a queue's events: whole rows at times of ticks, in any order between truncations."""
    records, emptied, number = [], [], FIRST_ID
    segment: list[Side] = []

    def end_segment() -> None:
        nonlocal number
        random.shuffle(segment)
        for tick, _, diff, row in segment:
            records.append(side_record(tick, number, diff, row))
            number += 1
        segment.clear()

    for at, done in enumerate(world.transactions):
        tick = at // size
        for change in done:
            if change.op is None:
                end_segment()
                emptied.append(Truncation(1000 + 10 * tick, number, at, at))
                number += 1
            segment += [(tick, 0, -1, change.old)] if change.old else []
            segment += [(tick, 0, 1, change.new)] if change.new else []
        if at % size == size - 1:
            end_segment()
    end_segment()
    random.shuffle(records)
    return pa.Table.from_pylist(records, change_schema_of(TICKED)), tuple(emptied)


def _folded(world: World, size: int, seed: int) -> tuple[FoldResult, Truncations]:
    changes, emptied = _ticks(world, size, Random(seed))
    netted = net_events(TICKED, events(TICKED, changes), emptied)
    return fold(TICKED, netted, table(list(world.start.values())), emptied), emptied


@LAWS
@given(worlds(truncates=True), TICKS, st.integers())
def test_the_net_of_ticks_gives_the_end_in_any_order_of_events(world: World, size: int, seed: int) -> None:
    folded, _ = _folded(world, size, seed)
    assert len(folded.missing) == len(folded.conflict) == len(folded.holes) == 0
    assert rows(folded.final) == [world.end[key] for key in sorted(world.end)]


@LAWS
@given(worlds(truncates=True), TICKS, st.integers())
def test_a_truncation_takes_what_is_there_in_any_order_of_events(world: World, size: int, seed: int) -> None:
    changes, _ = _ticks(world, size, Random(seed))
    folded, emptied = _folded(world, size, seed)
    places = {(each.time, each.ordinal) for each in emptied}
    told = Counter[Row]()
    for row in world.start.values():
        told[row] += 1
    for change in changes.to_pylist():
        side = "n" if change["_op"] == 1 else "o"
        told[tuple(change[f"{side}{i}"] for i in range(3))] += 1 if side == "n" else -1
    for row in folded.history().to_pylist():
        if (row["_time"], row["_ordinal"]) in places:
            told[(row["id"], row["a"], row["big"])] += row["_diff"]
    assert +told == Counter(world.end.values())
    assert not -told


@LAWS
@given(worlds(), TICKS, st.integers())
def test_at_most_one_event_of_a_key_is_left_of_a_tick(world: World, size: int, seed: int) -> None:
    changes, _ = _ticks(world, size, Random(seed))
    netted = net_events(TICKED, events(TICKED, changes))
    met = Counter(zip(netted["_key"].to_pylist(), netted["_time"].to_pylist(), strict=True))
    assert set(met.values()) <= {1}


@LAWS
@given(worlds(min_transactions=1), TICKS, st.integers(), st.integers(0, 100), st.booleans())
def test_an_event_too_many_or_too_few_is_reported(
    world: World, size: int, seed: int, chosen: int, twice: bool
) -> None:
    changes, _ = _ticks(world, size, Random(seed))
    if not changes.num_rows:
        return
    number = chosen % changes.num_rows
    rest = [changes.slice(0, number), changes.slice(number + 1)]
    broken = pa.concat_tables([changes, changes.slice(number, 1)] if twice else rest)
    folded = fold(TICKED, net_events(TICKED, events(TICKED, broken)), table(list(world.start.values())))
    reported = len(folded.missing) + len(folded.conflict)
    # A row that is lacking or there twice at the end is not to be seen by who looks at no other rows.
    assert reported or rows(folded.final) != [world.end[key] for key in sorted(world.end)]


@LAWS
@given(worlds())
def test_events_of_times_with_an_order_are_left_alone(world: World) -> None:
    changes, _ = _ticks(world, 1, Random(0))
    found = events(TICKED, changes)
    assert net_events(replace(TICKED, is_ordered=True), found) is found


def test_a_statement_that_fires_another_comes_behind_it() -> None:
    # UPDATE to 1, whose trigger made it 2: the events of the inner statement were written down first.
    written = [(-1, (1, 1, None)), (1, (1, 2, None)), (-1, (1, 0, None)), (1, (1, 1, None))]
    changes = pa.Table.from_pylist(
        [side_record(0, ordinal, *side) for ordinal, side in enumerate(written)], change_schema_of(TICKED)
    )
    found, base = events(TICKED, changes), table([(1, 0, None)])
    assert rows(fold(TICKED, net_events(TICKED, found), base).final) == [(1, 2, None)]
    assert rows(fold(TICKED, found, base).final) != [(1, 2, None)]
    assert net_events(TICKED, found)["_event"].to_pylist() == [KeyEvent.PUT]


@pytest.mark.parametrize("base", [[], [(1, 9, None)]])
@given(order=st.permutations([(1, (1, 0, None)), (-1, (1, 1, None)), (1, (1, 2, None))]))
def test_more_than_a_key_can_hold_is_reported_in_any_order(
    base: list[Row], order: list[tuple[int, Row]]
) -> None:
    changes = pa.Table.from_pylist(
        [side_record(0, ordinal, *side) for ordinal, side in enumerate(order)], change_schema_of(TICKED)
    )
    folded = fold(TICKED, net_events(TICKED, events(TICKED, changes)), table(base))
    assert len(folded.missing) + len(folded.conflict) > 0


def test_rows_that_are_told_apart_by_their_bits_alone_do_not_cancel_out() -> None:
    written = [(-1, (1, None, "")), (1, (1, None, None))]
    changes = pa.Table.from_pylist(
        [side_record(0, ordinal, *side) for ordinal, side in enumerate(written)], change_schema_of(TICKED)
    )
    assert net_events(TICKED, events(TICKED, changes)).num_rows == 1


def test_without_whole_rows_there_is_no_net() -> None:
    with pytest.raises(ValueError, match="whole rows"):
        TableSchema(COLUMNS, ("id",), full=False, is_ordered=False)
