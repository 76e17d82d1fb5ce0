"""A group that is folded a range of keys at a time ends as one that is folded at once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.key_events import events
from headrace.core.schema import TableSchema
from headrace.pipeline.tasks import merge_keyed
from tests.effort import examples
from tests.laws.core.worlds import FULL, KEYED, World, changes, rows, table, worlds
from tests.laws.pipeline.tasks.merged import Merged, merged

LAWS = examples(60)


def _at_once(count: int, world: World, schema: TableSchema, files: int) -> Merged:
    present = list(world.start.values())
    spread = [some for some in (present[number::files] for number in range(files)) if some]
    with patch.object(merge_keyed, "ROWS_AT_ONCE", count), TemporaryDirectory() as folder:
        return merged(Path(folder), world, schema, spread, [range(len(world.transactions))])


@LAWS
@given(worlds(), st.sampled_from([KEYED, FULL]), st.integers(1, 3), st.integers(1, 2))
def test_a_group_ends_the_same_however_few_rows_are_folded_at_once(
    world: World, schema: TableSchema, count: int, files: int
) -> None:
    found = _at_once(count, world, schema, files)
    assert found.outcome.failure is None
    assert found.outcome.expected_keys == found.outcome.matched_keys
    assert Counter(found.contents) == Counter(world.end.values())
    assert sorted(found.history) == sorted(world.history())
    assert found.outcome.rows == len(world.end) - len(world.start)


@LAWS
@given(worlds(truncates=True), st.sampled_from([KEYED, FULL]), st.integers(1, 3))
def test_so_does_one_of_a_truncated_table(world: World, schema: TableSchema, count: int) -> None:
    once, ranged = _at_once(1 << 30, world, schema, 2), _at_once(count, world, schema, 2)
    assert Counter(ranged.contents) == Counter(once.contents)
    assert sorted(ranged.history) == sorted(once.history)
    assert ranged.outcome.rows == once.outcome.rows


@LAWS
@given(worlds(), st.integers(1, 4))
def test_each_row_and_event_is_in_one_range_with_all_of_its_key(world: World, count: int) -> None:
    present = table(list(world.start.values()))
    happened = events(FULL, changes(world, FULL, range(len(world.transactions))))
    with patch.object(merge_keyed, "ROWS_AT_ONCE", count):
        ranges = list(merge_keyed._ranges(FULL, present, happened))
    met: set[bytes] = set()
    for own, some in ranges:
        keys = set(some["_key"].to_pylist()) | set(merge_keyed._keys(FULL, own).to_list())
        assert not keys & met
        met |= keys
    assert Counter(row for own, _ in ranges for row in rows(own)) == Counter(rows(present))
    assert sum(some.num_rows for _, some in ranges) == happened.num_rows


def test_a_large_group_is_folded_in_many_ranges() -> None:
    present = table([(number, number, None) for number in range(1000)])
    with patch.object(merge_keyed, "ROWS_AT_ONCE", 100):
        ranges = list(merge_keyed._ranges(FULL, present, events(FULL, changes(World({}), FULL, []))))
    assert len(ranges) == 10
    assert max(own.num_rows for own, _ in ranges) <= 120
