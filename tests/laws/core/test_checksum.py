"""Checksums of collections add up, whatever the order and the pieces, and tell collections apart."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.checksum import MOST_BUCKETS, MOST_SUMS, Sums, bucket_count, buckets_of
from headrace.core.keycode import keycode
from headrace.decode.digest import digests

BUCKETS = 4
Update = tuple[int, str | None, int]  # key, value, diff

UPDATES = st.lists(
    st.tuples(st.integers(-3, 3), st.none() | st.sampled_from(["", "a", "b"]), st.integers(-2, 2))
)


def _sums(updates: list[Update]) -> Sums:
    keys, values = (
        pa.array([u[0] for u in updates], pa.int64()),
        pa.array([u[1] for u in updates], pa.string()),
    )
    which = buckets_of(digests(keycode([keys])), BUCKETS)
    diffs = np.array([u[2] for u in updates], np.int64)
    return Sums.of(BUCKETS, which, digests(keycode([keys, values])), diffs)


def _collection(updates: list[Update]) -> dict[tuple[int, str | None], int]:
    net: dict[tuple[int, str | None], int] = {}
    for key, value, diff in updates:
        net[key, value] = net.get((key, value), 0) + diff
    return {row: diff for row, diff in net.items() if diff}


@given(UPDATES, UPDATES)
def test_equal_sums_are_equal_collections(one: list[Update], other: list[Update]) -> None:
    same = not len((_sums(one) - _sums(other)).uneven())
    assert same == (_collection(one) == _collection(other))


@given(UPDATES, st.randoms(use_true_random=False))
def test_neither_order_nor_pieces_matter(updates: list[Update], dice: object) -> None:
    whole = _sums(updates)
    shuffled = list(updates)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    half = len(updates) // 2
    pieces = _sums(shuffled[:half]) + _sums(shuffled[half:])
    assert not len((whole - pieces).uneven())
    assert whole.rows == pieces.rows == sum(update[2] for update in updates)


@given(UPDATES, UPDATES)
def test_what_is_taken_away_is_taken_from_the_sum(base: list[Update], later: list[Update]) -> None:
    undone = [(key, value, -diff) for key, value, diff in later]
    assert not len((_sums(base + later) + _sums(undone) - _sums(base)).uneven())


@given(UPDATES)
def test_sums_of_the_buckets_that_hold_rows_are_those_of_all(updates: list[Update]) -> None:
    sums = _sums(updates)
    held = np.flatnonzero(np.abs(sums.counts) + (sums.low != 0) + (sums.high != 0))
    again = sums.only(held).spread(held, BUCKETS)
    assert not len((sums - again).uneven())


@given(UPDATES, st.integers(-3, 3))
def test_a_difference_is_in_the_bucket_of_its_key(updates: list[Update], key: int) -> None:
    more: list[Update] = [(key, "c", 1)]
    expected = buckets_of(digests(keycode([pa.array([key], pa.int64())])), BUCKETS).tolist()
    assert (_sums(updates + more) - _sums(updates)).uneven().tolist() == expected


@given(st.integers(0, 10**12), st.integers(0, 10**15), st.integers(0, 10**6))
def test_buckets_are_a_power_of_two_and_their_sums_bounded(rows: int, size: int, parts: int) -> None:
    count = bucket_count(rows, size, parts)
    assert count & (count - 1) == 0
    assert 1 <= count <= MOST_BUCKETS
    assert count == 1 or count * parts <= MOST_SUMS
