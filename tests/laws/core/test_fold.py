"""Laws of folding, held against a world whose whole past is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.fold import FoldResult, fold
from headrace.core.history import history
from headrace.core.key_events import events
from headrace.core.keycode import keycode
from headrace.core.multiset import fold_multiset, net, net_schema
from headrace.core.schema import TableSchema
from tests.effort import examples
from tests.laws.core.worlds import (
    BAG,
    FULL,
    KEYED,
    Row,
    World,
    changes,
    rows,
    sides,
    table,
    with_copies,
    worlds,
)

SCHEMAS = st.sampled_from([KEYED, FULL])
LAWS = examples(50)


def _nothing_reported(folded: FoldResult) -> None:
    assert len(folded.missing) == len(folded.conflict) == len(folded.holes) == 0


def _fold(world: World, schema: TableSchema, base: pa.Table, first: int, stop: int) -> FoldResult:
    return fold(schema, events(schema, changes(world, schema, range(first, stop))), base)


@LAWS
@given(worlds(), SCHEMAS)
def test_fold_gives_the_end_state_and_the_whole_history(world: World, schema: TableSchema) -> None:
    folded = _fold(world, schema, table(list(world.start.values())), 0, len(world.transactions))
    _nothing_reported(folded)
    assert rows(folded.final) == [world.end[key] for key in sorted(world.end)]
    assert sides(folded.history()) == world.history()
    assert folded.keys.equals(keycode([folded.final.column("id")]))


@LAWS
@given(worlds(), SCHEMAS, st.lists(st.integers(0, 7), max_size=3))
def test_fold_does_not_depend_on_the_split_into_epochs(
    world: World, schema: TableSchema, cuts: list[int]
) -> None:
    stops = sorted({min(cut, len(world.transactions)) for cut in cuts} | {len(world.transactions)})
    base, told, first = table(list(world.start.values())), [], 0
    for stop in stops:
        folded = _fold(world, schema, base, first, stop)
        _nothing_reported(folded)
        base, first = folded.final, stop
        told += sides(folded.history())
    assert told == world.history()
    assert rows(base) == [world.end[key] for key in sorted(world.end)]


@LAWS
@given(worlds(), st.randoms(use_true_random=False))
def test_fold_does_not_depend_on_the_order_in_which_events_arrive(world: World, random: object) -> None:
    happened = events(KEYED, changes(world, KEYED, range(len(world.transactions))))
    order = list(range(happened.num_rows))
    random.shuffle(order)  # type: ignore[attr-defined]
    base = table(list(world.start.values()))
    mixed = fold(KEYED, happened.take(pa.array(order, pa.int64())), base)
    ordered = fold(KEYED, happened, base)
    assert mixed == ordered
    assert mixed.history() == ordered.history()


@LAWS
@given(worlds(), st.integers(0, 7))
def test_fold_by_ranges_of_keys_adds_up_to_the_whole(world: World, bound: int) -> None:
    happened = events(FULL, changes(world, FULL, range(len(world.transactions))))
    split = keycode([pa.array([bound], pa.int32())])[0].as_py()
    final: list[Row] = []
    told: Counter[object] = Counter()
    for low in (True, False):
        chosen = [i for i, key in enumerate(happened["_key"].to_pylist()) if (key < split) == low]
        present = [row for row in world.start.values() if (row[0] < bound) == low]
        folded = fold(FULL, happened.take(pa.array(chosen, pa.int64())), table(present))
        _nothing_reported(folded)
        final += rows(folded.final)
        told.update(sides(folded.history()))
    assert final == [world.end[key] for key in sorted(world.end)]
    assert told == Counter(world.history())


@LAWS
@given(worlds())
def test_history_from_whole_old_rows_needs_no_state(world: World) -> None:
    everything = changes(world, FULL, range(len(world.transactions)))
    assert sides(history(FULL, everything)) == world.history()


@LAWS
@given(worlds(), st.integers(0, 7), st.booleans())
def test_nets_of_a_multiset_lead_to_the_end_state(world: World, cut: int, piecewise: bool) -> None:
    world = with_copies(world)
    cut = min(cut, len(world.transactions))
    base = table(list(world.start.values()))
    for numbers in (range(cut), range(cut, len(world.transactions))):
        pieces = [[number] for number in numbers] if piecewise else [numbers]
        nets = pa.concat_tables([net_schema(BAG).empty_table(), *(_net(world, some) for some in pieces)])
        folded = fold_multiset(BAG, base, nets)
        assert len(folded.short) == 0
        base = folded.final
    assert Counter(rows(base)) == Counter(world.end.values())


def _net(world: World, numbers: Sequence[int]) -> pa.Table:
    return net(BAG, changes(world, BAG, numbers))
