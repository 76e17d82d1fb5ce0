"""Rows that change their keys are folded where they were found, and all comes out as if folded at once."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.chunks import Bound, ByChunk, Chunk, KeySpan
from headrace.core.fold import fold
from headrace.core.handoff import ByPosition, ByXid
from headrace.core.key_events import events
from headrace.core.keycode import keycode
from headrace.core.origins import origins, traces, with_origins
from headrace.pipeline.tasks.table_task import from_ipc
from tests.effort import examples
from tests.laws.core.worlds import KEYED, Row, Side, World, changes, rows, sides, table, time_of, worlds
from tests.laws.pipeline.tasks.merged import merged
from tests.places import place_at

LAWS = examples(30)
MOVING = worlds(min_transactions=2)


def _cut(world: World, stops: set[int]) -> list[list[int]]:
    numbers = list(range(len(world.transactions)))
    edges = [0, *sorted(stop for stop in stops if stop < len(numbers)), len(numbers)]
    return [numbers[low:high] for low, high in pairwise(edges) if low < high]


@LAWS
@given(MOVING, st.sets(st.integers(1, 6)))
def test_the_events_of_each_origin_fold_by_themselves(world: World, stops: set[int]) -> None:
    happened = [events(KEYED, changes(world, KEYED, some)) for some in _cut(world, stops)]
    known = origins(pa.concat_tables([traces(each) for each in happened]))
    found = pa.concat_tables([with_origins(each, known) for each in happened], promote_options="default")
    base = table(list(world.start.values()))
    assert not set(found.filter(found["_arrives"])["_key"].to_pylist()) & set(
        keycode([base["id"]]).to_pylist()
    )
    codes = keycode([base["id"]])
    final: list[Row] = rows(base.filter(pc.invert(pc.is_in(codes, found["_origin"].combine_chunks()))))
    told: list[Side] = []
    for origin in found["_origin"].unique():
        mine = found.filter(pc.equal(found["_origin"], origin)).drop_columns(["_origin", "_arrives"])
        folded = fold(KEYED, mine, base.filter(pc.equal(codes, origin)))
        assert len(folded.missing) == len(folded.conflict) == len(folded.holes) == 0
        final += rows(folded.final)
        told += sides(folded.history())
    assert Counter(final) == Counter(world.end.values())
    assert sorted(told) == sorted(world.history())


@LAWS
@given(MOVING, st.integers(1, 4), st.sets(st.integers(1, 6)))
def test_a_table_whose_rows_change_keys_ends_as_its_source(world: World, files: int, stops: set[int]) -> None:
    present = list(world.start.values())
    spread = [some for some in (present[i::files] for i in range(files)) if some]
    with TemporaryDirectory() as folder:
        found = merged(Path(folder), world, KEYED, spread, _cut(world, stops))
    assert found.outcome.failure is None
    assert found.outcome.expected_keys == found.outcome.matched_keys
    assert Counter(found.contents) == Counter(world.end.values())
    assert sorted(found.history) == sorted(world.history())
    assert found.outcome.rows == len(world.end) - len(world.start)


@LAWS
@given(MOVING, st.lists(st.integers(0, 7), min_size=8, max_size=8), st.sets(st.integers(1, 6)), st.booleans())
def test_rows_that_move_between_chunks_end_as_at_the_source(
    world: World, shown: list[int], stops: set[int], by_xid: bool
) -> None:
    """Each key has a snapshot of its own; those that lack a value are read again, when all is over."""
    over = len(world.transactions)
    shown = [min(each, over) for each in shown]
    states = [world.start, *world.states]
    while True:
        present = [row for key, at in enumerate(shown) if (row := states[at].get(key))]
        spread = [some for some in (present[::2], present[1::2]) if some]
        with TemporaryDirectory() as folder:
            chunks = _by_key(shown, by_xid=by_xid)
            found = merged(Path(folder), world, KEYED, spread, _cut(world, stops), handoff=chunks)
        assert found.outcome.failure is None
        if found.outcome.missing_values is None:
            break
        lacking = from_ipc(found.outcome.missing_values)["id"].to_pylist()
        assert any(shown[key] < over for key in lacking)
        shown = [over if key in lacking else at for key, at in enumerate(shown)]
    assert found.outcome.expected_keys == found.outcome.matched_keys
    assert Counter(found.contents) == Counter(world.end.values())
    settled = [side for side in world.history() if side[0] >= max(shown)]
    assert sorted(found.history) == sorted(settled)


def _by_key(shown: list[int], *, by_xid: bool) -> ByChunk:
    """A copy in chunks of one key, each of which shows so many of the transactions."""
    codes = keycode([table([(key, None, None) for key in range(len(shown))])["id"]]).to_pylist()
    edges = [None, *(Bound((str(key),), code) for key, code in enumerate(codes) if key), None]
    places = [place_at(time_of(at) - 5) for at in shown]
    handoffs = [
        ByXid(100 + at, 100 + at, (), place) if by_xid else ByPosition(place)
        for at, place in zip(shown, places, strict=True)
    ]
    spans = (KeySpan(low, high) for low, high in pairwise(edges))
    return ByChunk(tuple(map(Chunk, spans, handoffs)))


def test_a_table_whose_keys_all_move_by_one_is_folded_row_by_row() -> None:
    """`id = id - 1`, row by row: every key is left and taken, and no two rows are in one fold."""
    count = 1000
    column = pa.array(range(count), pa.int64())
    fresh = pa.table({"_time": pa.repeat(pa.scalar(1), count), "_ordinal": column})
    old, new = keycode([column]), keycode([pa.array(range(-1, count - 1), pa.int64())])
    gone = fresh.append_column("_key", old).append_column("_from", pa.nulls(count, pa.large_binary()))
    came = fresh.append_column("_key", new).append_column("_from", old)
    known = origins(pa.concat_tables([gone, came]))
    arrived = known.filter(pc.not_equal(known["_key"], known["_origin"]))
    pairs = dict(zip(arrived["_key"].to_pylist(), arrived["_origin"].to_pylist(), strict=True))
    assert pairs == dict(zip(new.to_pylist(), old.to_pylist(), strict=True))
