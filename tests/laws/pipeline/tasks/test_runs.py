"""Layers: what is rolled back is left out, what stays is numbered as if it alone had happened."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.pipeline.stream.eager import groups_of
from headrace.pipeline.tasks.routing import WIDTH, FileRange, Routes
from headrace.pipeline.tasks.runs import AbortedChanges, Layer, Range

changes = st.lists(st.integers(0, 3), max_size=60)  # each by one of four subtransactions
rolled_back = st.sets(st.integers(1, 3))


@given(changes, rolled_back, st.randoms())
def test_survivors_are_numbered_in_order_without_a_gap(by: list[int], gone: set[int], random: object) -> None:
    numbers = np.arange(len(by))
    aborted = [n for n in numbers.tolist() if by[n] in gone]
    random.shuffle(aborted)  # type: ignore[attr-defined]
    ranges = AbortedChanges.of(np.array(aborted, np.int64), np.array(aborted, np.int64) + 1)
    held = ranges.holds(numbers)
    assert held.tolist() == [each in gone for each in by]
    survivors = numbers[~held]
    assert (survivors - ranges.before(survivors)).tolist() == list(range(len(survivors)))
    assert len(ranges) == len(aborted)


codes = st.binary(min_size=1, max_size=3)


def padded(code: bytes) -> bytes:
    return code.ljust(WIDTH, b"\0")


@example(files=[(b"b", b"c"), (b"b", b"d")], births=[], keys=[b"a"])
@given(
    files=st.lists(st.tuples(codes, codes), max_size=6),
    births=st.lists(codes, max_size=3),
    keys=st.lists(codes, max_size=20),
)
def test_groups_are_the_places_of_each_key(
    files: list[tuple[bytes, bytes]], births: list[bytes], keys: list[bytes]
) -> None:
    ranges = [FileRange(str(n), 1, 1, padded(min(pair)), padded(max(pair))) for n, pair in enumerate(files)]
    cuts = tuple(sorted({padded(birth) for birth in births}))
    plain = Routes.over(ranges)
    routes = Routes(plain.files, plain.runs, cuts)
    wanted = np.array([padded(key) for key in keys], dtype=f"S{WIDTH}")
    places = routes.places(wanted)
    expected = {
        (int(row), int(file), bool(home))
        for row, file, home in zip(places.rows, places.files, places.home, strict=True)
    }
    found = set()
    for number, (_, held, home) in enumerate(groups_of(routes)):
        at_home = np.zeros(len(wanted), np.bool_) if home is None else home.holds(wanted)
        there = at_home if held is None else at_home | held.holds(wanted)
        found |= {(row, number, bool(at_home[row])) for row in np.flatnonzero(there).tolist()}
    assert found == expected


bound = st.none() | codes.map(padded)


@given(st.lists(codes, min_size=1, max_size=40), st.integers(1, 5), bound, bound, bound)
def test_no_batch_of_a_range_is_missed(
    keys: list[bytes], size: int, low: bytes | None, below: bytes | None, last: bytes | None
) -> None:
    ordered = np.sort(np.array([padded(key) for key in keys], dtype=f"S{WIDTH}"))
    firsts = tuple(bytes(ordered[start]) for start in range(0, len(ordered), size))
    layer = Layer(1, "k", len(keys), len(keys), firsts, tuple(0 for _ in firsts), is_mixed=False)
    wanted = Range(low, below, None if below is not None else last)
    batches = wanted.batches(layer)
    held = wanted.holds(ordered)
    assert {row // size for row in np.flatnonzero(held).tolist()} <= set(batches)
