"""Laws of collections: sums of updates do not care how they are added up."""

from __future__ import annotations

import struct
from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.collection import as_multiset, consolidate, negate, of_rows
from headrace_testing.reference.contents import accumulate
from tests.laws.core.times import Clock, clocks

LAWS = settings(max_examples=60, deadline=None)
FLOATS = st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf"), None])
ROWS = st.tuples(st.one_of(st.none(), st.integers(0, 1)), FLOATS, st.sampled_from(["", "a", None]))
UPDATE = st.tuples(ROWS, st.integers(0, 3), st.integers(-2, 2))
CASES = st.tuples(clocks(4), st.lists(UPDATE, max_size=12))


def _table(clock: Clock, updates: list[Any]) -> pa.Table:
    return pa.table(
        {
            "n": pa.array([row[0] for row, _, _ in updates], pa.int64()),
            "f": pa.array([row[1] for row, _, _ in updates], pa.float64(), from_pandas=False),
            "t": pa.array([row[2] for row, _, _ in updates], pa.string()),
            "_time": clock.column([time for _, time, _ in updates]),
            "_diff": pa.array([diff for _, _, diff in updates], pa.int64()),
        }
    )


def _bits(row: dict[str, Any]) -> tuple[Any, ...]:
    return (
        row["n"],
        None if row["f"] is None else struct.pack(">d", row["f"]),
        row["t"],
        str(row.get("_time")),
    )


def _sums(updates: pa.Table) -> dict[Any, int]:
    sums: Counter[Any] = Counter()
    for row in updates.to_pylist():
        sums[_bits(row)] += row["_diff"]
    return {row: total for row, total in sums.items() if total}


@LAWS
@given(CASES)
def test_consolidation_keeps_every_sum_and_each_row_once(case: Any) -> None:
    updates = _table(*case)
    found = consolidate(updates)
    assert _sums(found) == _sums(updates)
    assert found.num_rows == len(_sums(updates))


@LAWS
@given(CASES)
def test_consolidation_is_idempotent(case: Any) -> None:
    once = consolidate(_table(*case))
    assert _exact(consolidate(once)) == _exact(once)


def _exact(updates: pa.Table) -> list[Any]:
    return [(_bits(row), row["_diff"]) for row in updates.to_pylist()]


@LAWS
@given(CASES, st.randoms(use_true_random=False), st.integers(0, 12))
def test_consolidation_does_not_care_for_order_or_batches(case: Any, random: Any, cut: int) -> None:
    clock, updates = case
    mixed = list(updates)
    random.shuffle(mixed)
    parts = [consolidate(_table(clock, some)) for some in (mixed[:cut], mixed[cut:])]
    assert _sums(consolidate(pa.concat_tables(parts))) == _sums(_table(clock, updates))


@LAWS
@given(CASES)
def test_updates_and_their_negation_come_to_nothing(case: Any) -> None:
    updates = _table(*case)
    assert consolidate(pa.concat_tables([updates, negate(updates)])).num_rows == 0


@LAWS
@given(CASES, st.integers(0, 4))
def test_sums_below_a_frontier_are_those_of_the_times_that_it_covers(case: Any, count: int) -> None:
    clock, updates = case
    below = _table(clock, [update for update in updates if update[1] < count])
    found = accumulate(_table(clock, updates), clock.cut(count))
    assert _sums(found) == _sums(below.drop_columns(["_time"]))


@LAWS
@given(st.lists(ROWS, max_size=8), clocks(1))
def test_rows_survive_being_counted(rows: list[Any], clock: Clock) -> None:
    table = _table(clock, [(row, 0, 1) for row in rows]).drop_columns(["_time", "_diff"])
    again = as_multiset(of_rows(table))
    assert Counter(map(_bits, again.to_pylist())) == Counter(map(_bits, table.to_pylist()))
