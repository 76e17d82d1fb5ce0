"""A table that is truncated within an epoch ends as its slow twin does, whatever the files and stretches."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.keycode import keycode
from headrace.core.schema import TableSchema
from headrace.core.transaction_id import TransactionId
from headrace.pipeline.tasks.routing import WIDTH
from tests.effort import examples
from tests.laws.core.worlds import BAG, FULL, KEYED, Row, Side, World, table, with_copies, worlds
from tests.laws.pipeline.tasks.merged import Merged, merged

LAWS = examples(60)
EMPTYING = worlds(min_transactions=3, truncates=True)
FULL_BY_GTID, BAG_BY_GTID = (replace(each, transaction=TransactionId.GTID) for each in (FULL, BAG))


def _spread(world: World, count: int) -> list[list[Row]]:
    """The rows at rest in so many files, whose ranges overlap."""
    present = list(world.start.values())
    return [some for some in (present[i::count] for i in range(count)) if some]


def _cut(world: World, stops: set[int]) -> list[list[int]]:
    edges = sorted({0, *(min(stop, len(world.transactions)) for stop in stops), len(world.transactions)})
    return [list(range(low, high)) for low, high in pairwise(edges)]


def _births(keys: set[int]) -> tuple[bytes, ...]:
    codes = keycode([table([(key, None, None) for key in sorted(keys)]).column("id")])
    return tuple(code[:WIDTH] for code in codes.to_pylist())


def _passes(world: World, schema: TableSchema, files: int, stops: set[int], births: set[int]) -> Merged:
    with TemporaryDirectory() as folder:
        cuts = tuple(_births(births)) if schema.key else ()
        return merged(Path(folder), world, schema, _spread(world, files), _cut(world, stops), cuts)


def _history(world: World) -> list[Side]:
    """List the changes of each row, one after the other, on the rows that are there."""
    there = list(world.start.values())
    told: list[Side] = []
    for number, changes in enumerate(world.transactions):
        for ordinal, change in enumerate(changes):
            gone = [change.old] if change.old else list(there) if change.op is None else []
            came = [change.new] if change.new else []
            for row in gone:
                there.remove(row)
            there += came
            told += [(number, ordinal, -1, row) for row in gone] + [(number, ordinal, 1, row) for row in came]
    return told


def _agree(found: Merged, world: World) -> None:
    assert found.outcome.failure is None
    assert found.outcome.expected_keys == found.outcome.matched_keys
    assert Counter(found.contents) == Counter(world.end.values())
    assert Counter(found.history) == Counter(_history(world))
    assert found.outcome.rows == len(world.end) - len(world.start)


@LAWS
@given(
    EMPTYING,
    st.sampled_from([KEYED, FULL, FULL_BY_GTID]),
    st.integers(1, 3),
    st.sets(st.integers(1, 6), max_size=4),
    st.sets(st.integers(0, 7), max_size=2),
)
def test_a_truncated_table_with_a_key_ends_as_its_slow_twin(
    world: World, schema: TableSchema, files: int, stops: set[int], births: set[int]
) -> None:
    _agree(_passes(world, schema, files, stops, births), world)


@LAWS
@given(
    EMPTYING, st.sampled_from([BAG, BAG_BY_GTID]), st.integers(1, 3), st.sets(st.integers(1, 6), max_size=4)
)
def test_a_truncated_table_without_a_key_ends_as_its_slow_twin(
    world: World, schema: TableSchema, files: int, stops: set[int]
) -> None:
    _agree(_passes(with_copies(world), schema, files, stops, set()), with_copies(world))
