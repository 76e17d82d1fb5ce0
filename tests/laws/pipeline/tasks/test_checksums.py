"""Laws of checksums: whatever the buckets, they are uneven exactly where rows differ."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.checksum import Sums
from headrace.core.difference import updates
from headrace.core.keycode import keycode
from headrace.core.schema import Column, TableSchema
from headrace.pipeline.tasks.compare.checksums import ByDigest, ByRange, Checksums
from headrace.pipeline.tasks.routing import WIDTH

COLUMNS = (
    Column("id", pa.int64(), "int", "bigint", nullable=False),
    Column("s", pa.string(), "text", "text"),
)
KEYED = TableSchema(COLUMNS, ("id",), full=False)
BAG = TableSchema(COLUMNS, (), full=True)
IDS = range(-4, 12)
BOUNDS = tuple(code[:WIDTH] for code in keycode([pa.array([-1, 3, 4], pa.int64())]).to_pylist())

Row = tuple[int, str | None]
rows = st.lists(st.tuples(st.sampled_from(IDS), st.sampled_from([None, "", "a"])), max_size=20)
checksums = st.sampled_from(
    [
        Checksums(schema.names, schema.identity, buckets)
        for schema in (KEYED, BAG)
        for buckets in (ByDigest(1), ByDigest(8), ByRange(), ByRange(BOUNDS))
    ]
)


def table(of: list[Row]) -> pa.Table:
    named = {"id": [row[0] for row in of], "s": [row[1] for row in of]}
    return pa.table(named, schema=KEYED.arrow())


@given(checksums, rows, rows)
def test_the_buckets_of_rows_that_differ_are_uneven_and_no_others(
    of: Checksums, one: list[Row], other: list[Row]
) -> None:
    net = updates(KEYED, table(one), table(other))
    differing = of.numbers(net.select(["c0", "c1"]).rename_columns(["id", "s"])).tolist()
    (_, left), (_, right) = of.of(table(one)), of.of(table(other))
    assert (right - left).uneven().tolist() == sorted(set(differing))
    assert {row["c0"] for row in net.to_pylist()} == {
        row[0] for row in (Counter(one) - Counter(other)) + (Counter(other) - Counter(one))
    }


@given(checksums, rows, st.integers(0, 20))
def test_parts_that_were_summed_apart_add_up(of: Checksums, all: list[Row], cut: int) -> None:
    which, sums = of.of(table(all))
    parts = [table(all[:cut]), table(all[cut:])]
    total = Sums.zero(of.buckets.count)
    for part in parts:
        total += of.of(part)[1]
    assert not len((sums - total).uneven())
    assert which.tolist() == [number for part in parts for number in of.numbers(part).tolist()]


@given(checksums, rows)
def test_updates_that_are_undone_leave_nothing(of: Checksums, all: list[Row]) -> None:
    both = pa.concat_tables([table(all), table(all[::-1])])
    diffs = np.repeat(np.array([1, -1], np.int64), len(all))
    assert not len(of.of(both, diffs)[1].uneven())


def test_ranges_hold_neighbours() -> None:
    of = Checksums(KEYED.names, KEYED.identity, ByRange(BOUNDS))
    assert of.numbers(table([(number, None) for number in IDS])).tolist() == [
        0 if number < -1 else 1 if number < 3 else 2 if number < 4 else 3 for number in IDS
    ]
