"""Routing: a key's file is always among its places, its home exactly once, whatever the files are."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.tasks.routing import WIDTH, FileRange, Routes, prefixes

KEYS = st.binary(max_size=WIDTH + 4)


@st.composite
def ranges(draw: st.DrawFn) -> FileRange:
    low, high = sorted([draw(KEYS), draw(KEYS)])
    return FileRange(str(draw(st.uuids())), 1, 1, low[:WIDTH], high[:WIDTH])


FILES = st.lists(ranges(), max_size=8)


def _codes(keys: list[bytes]) -> pa.Array:
    return pa.array(keys, pa.large_binary())


@given(FILES, st.lists(KEYS, min_size=1))
def test_every_file_that_may_hold_a_key_is_among_its_places(
    files: list[FileRange], keys: list[bytes]
) -> None:
    routes = Routes.over(files)
    places = routes.places(prefixes(_codes(keys)))
    found = set(zip(places.rows.tolist(), places.files.tolist(), strict=True))
    for row, key in enumerate(keys):
        padded = key[:WIDTH].ljust(WIDTH, b"\0")
        for number, file in enumerate(routes.files):
            if file.low.ljust(WIDTH, b"\0") <= padded <= file.high.ljust(WIDTH, b"\0"):
                assert (row, number) in found


@given(st.lists(KEYS) | st.lists(st.binary(min_size=6, max_size=6)), st.integers(1, WIDTH), st.integers(0, 5))
def test_a_prefix_is_the_key_cut_to_its_width(keys: list[bytes], width: int, skip: int) -> None:
    expected = [key[skip : skip + width].rstrip(b"\0") for key in keys]
    assert prefixes(_codes([b"before", *keys]).slice(1), width, skip).tolist() == expected


@given(FILES, st.lists(KEYS, min_size=1))
def test_a_key_has_one_home_and_no_place_twice(files: list[FileRange], keys: list[bytes]) -> None:
    places = Routes.over(files).places(prefixes(_codes(keys)))
    pairs = list(zip(places.rows.tolist(), places.files.tolist(), strict=True))
    assert len(pairs) == len(set(pairs))
    assert sorted(places.rows[places.home].tolist()) == list(range(len(keys)))


@given(FILES, st.lists(KEYS, min_size=2))
def test_a_home_depends_on_the_key_alone(files: list[FileRange], keys: list[bytes]) -> None:
    routes = Routes.over(files)
    together = routes.homes(prefixes(_codes(keys))).tolist()
    alone = [int(routes.homes(prefixes(_codes([key])))[0]) for key in keys]
    assert together == alone


@given(FILES, st.lists(KEYS, min_size=1))
def test_touching_names_every_file_in_whose_range_a_key_lies(
    files: list[FileRange], keys: list[bytes]
) -> None:
    routes = Routes.over(files)
    touched = set(routes.touching(prefixes(_codes(keys))))
    places = routes.places(prefixes(_codes(keys)))
    assert set(places.files[~places.home].tolist()) <= touched


@given(FILES)
def test_the_files_of_a_run_do_not_overlap(files: list[FileRange]) -> None:
    routes = Routes.over(files)
    assert sorted(number for run in routes.runs for number in run) == list(range(len(files)))
    for run in routes.runs:
        for one, other in pairwise(run):
            assert routes.files[one].high < routes.files[other].low


@given(st.lists(KEYS, min_size=2, max_size=20))
def test_prefixes_keep_the_order_of_keys(keys: list[bytes]) -> None:
    found = prefixes(_codes(sorted(keys)))
    assert all(found[:-1] <= found[1:])
