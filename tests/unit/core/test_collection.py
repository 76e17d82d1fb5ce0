"""Collections: contents, copies and what may never be published."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.core.collection import as_multiset, consolidate, of_rows
from headrace.core.errors import Definite
from headrace.core.handoff import ByXid
from headrace_testing.reference.contents import contents
from headrace_testing.reference.rewind import rewind, skip
from tests.places import place_at


def _updates(*updates: tuple[str, int, int]) -> pa.Table:
    names = ("v", "_time", "_diff")
    columns = zip(*updates, strict=True)
    types = (pa.string(), pa.int64(), pa.int64())
    return pa.table({n: pa.array(c, t) for n, c, t in zip(names, columns, types, strict=True)})


def test_contents_are_what_lies_below_the_frontier_added_up() -> None:
    updates = _updates(("a", 10, 1), ("b", 10, 2), ("a", 20, -1), ("b", 20, -1), ("c", 30, 1))
    found = contents(updates, place_at(30))
    assert found.to_pydict() == {"v": ["b"], "_diff": [1]}


def test_duplicates_stay_duplicates() -> None:
    found = contents(_updates(("a", 1, 2), ("a", 2, 1)), place_at(9))
    assert as_multiset(found).to_pydict() == {"v": ["a", "a", "a"]}


def test_a_row_that_is_there_less_than_zero_times_is_an_error_without_its_value() -> None:
    with pytest.raises(Definite) as caught:
        contents(_updates(("secret", 1, -1)), place_at(9))
    assert caught.value.code == "COLLECTION_NEGATIVE"
    assert "secret" not in str(caught.value)


def test_zeros_of_either_sign_and_nan_are_told_apart_by_their_bits() -> None:
    rows = pa.table({"f": pa.array([0.0, -0.0, float("nan"), float("nan"), None], pa.float64())})
    found = of_rows(rows)
    assert found["_diff"].to_pylist() == [1, 1, 2, 1]


def test_updates_in_several_chunks_are_one_set() -> None:
    updates = pa.concat_tables([_updates(("a", 1, 1)), _updates(("a", 1, -1)), _updates(("b", 1, 1))])
    assert consolidate(updates).to_pydict() == {"v": ["b"], "_time": [1], "_diff": [1]}


def test_a_rewind_leaves_out_what_the_start_covers_already() -> None:
    snapshot = of_rows(pa.table({"v": ["a", "b"]}))
    updates = _updates(("a", 10, 1), ("b", 20, 1))
    found = rewind(snapshot, updates, place_at(20))
    assert found.to_pydict() == {"v": ["a"], "_diff": [1]}


def test_a_handoff_by_xid_needs_the_xids_of_the_updates() -> None:
    with pytest.raises(ValueError, match="without an xid"):
        skip(_updates(("a", 10, 1)), ByXid.parse("10:20:"))
