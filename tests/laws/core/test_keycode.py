"""Laws of keycodes: equal exactly where the values are, and in the order of the values."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.keycode import keycode
from headrace.core.row_groups import by_group, group, rank

LAWS = settings(max_examples=40, deadline=None)


def _ieee(value: float) -> int:
    """The place of a double in IEEE's total order."""
    bits: int = struct.unpack(">q", struct.pack(">d", value))[0]
    return bits if bits >= 0 else -1 - (bits & ((1 << 63) - 1))


def _same(value: Any) -> Any:
    return value


def _int(bits: int) -> st.SearchStrategy[int]:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return st.one_of(st.integers(-2, 2), st.integers(low, high), st.sampled_from([low, high]))


# Values that are near each other, so that a code that is a little wrong meets another one.
TEXT = st.one_of(st.text("\0a", max_size=2), st.text("\x01é𐀀\uffff", max_size=2))
BYTES = st.lists(st.sampled_from([0, 1, 255]), max_size=3).map(bytes)
NAN = struct.unpack(">d", bytes.fromhex("7ff8000000000001"))[0]
FLOATS = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, float("nan"), -float("nan"), NAN]))
DECIMALS = st.integers(-(10**20), 10**20).map(lambda n: Decimal(n).scaleb(-2))

# type → (its values, what their order is)
ORDERED: dict[pa.DataType, tuple[st.SearchStrategy[Any], Callable[[Any], Any]]] = {
    pa.bool_(): (st.booleans(), _same),
    pa.int16(): (_int(16), _same),
    pa.int32(): (_int(32), _same),
    pa.int64(): (_int(64), _same),
    pa.uint64(): (st.integers(0, (1 << 64) - 1), _same),
    pa.float64(): (FLOATS, _ieee),
    pa.decimal128(38, 2): (DECIMALS, _same),
    pa.date32(): (st.dates(), _same),
    pa.timestamp("us", tz="UTC"): (_int(64), _same),
    pa.time64("us"): (st.integers(0, 86399_999_999), _same),
    pa.string(): (TEXT, lambda text: text.encode()),
    pa.large_string(): (TEXT, lambda text: text.encode()),
    pa.binary(): (BYTES, _same),
    pa.binary(3): (st.binary(min_size=3, max_size=3), _same),
}


@st.composite
def ordered_tuples(draw: st.DrawFn, first: pa.DataType) -> tuple[list[Any], list[pa.Array]]:
    """Tuples of values as Python compares them (NULL first), and the same in columns."""
    types = [first, *draw(st.lists(st.sampled_from([first, *ORDERED]), max_size=2))]
    row = st.tuples(*(st.one_of(st.none(), ORDERED[kind][0], ORDERED[kind][0]) for kind in types))
    rows = draw(st.lists(row, min_size=2, max_size=8))
    comparable = [
        tuple((0, 0) if v is None else (1, ORDERED[kind][1](v)) for kind, v in zip(types, row, strict=True))
        for row in rows
    ]
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(types)]
    skipped = draw(st.integers(0, 1))
    return comparable[skipped:], [column.slice(skipped) for column in columns]


@pytest.mark.parametrize("kind", list(ORDERED), ids=str)
@LAWS
@given(st.data())
def test_codes_compare_as_the_tuples_do(kind: pa.DataType, data: st.DataObject) -> None:
    rows, columns = data.draw(ordered_tuples(kind))
    codes = keycode(columns).to_pylist()
    for i, row in enumerate(rows):
        for k, other in enumerate(rows):
            assert (codes[i] < codes[k]) == (row < other)
            assert (codes[i] == codes[k]) == (row == other)


def _lists(value: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.one_of(st.none(), value), max_size=2)


FEW = st.integers(0, 1)
NESTED = {
    pa.list_(pa.int32()): _lists(FEW),
    pa.list_(pa.string()): _lists(TEXT),
    pa.large_list(pa.binary()): _lists(BYTES),
    pa.list_(pa.list_(pa.string())): _lists(_lists(st.sampled_from(["", "a"]))),
    pa.struct([("s", pa.string()), ("n", pa.int64())]): st.fixed_dictionaries(
        {"s": st.sampled_from([None, "", "\0"]), "n": st.one_of(st.none(), FEW)}
    ),
}


@pytest.mark.parametrize("kind", list(NESTED), ids=str)
@LAWS
@given(st.data())
def test_codes_of_nested_values_are_equal_only_where_the_values_are(
    kind: pa.DataType, data: st.DataObject
) -> None:
    value = st.tuples(st.one_of(st.none(), NESTED[kind]), st.sampled_from([None, "", "\0", "a"]))
    rows = data.draw(st.lists(value, min_size=2, max_size=12))
    skipped = data.draw(st.integers(0, 1))
    nested = pa.array([row[0] for row in rows], kind).slice(skipped)
    text = pa.array([row[1] for row in rows], pa.string()).slice(skipped)
    codes = keycode([nested, text]).to_pylist()
    for i, row in enumerate(rows[skipped:]):
        for k, other in enumerate(rows[skipped:]):
            assert (codes[i] == codes[k]) == (row == other)


@LAWS
@given(st.sampled_from([pa.int64(), pa.int16(), pa.bool_(), pa.string()]).flatmap(ordered_tuples))
def test_ranks_follow_the_codes_and_groups_name_them(case: tuple[list[Any], list[pa.Array]]) -> None:
    codes = keycode(case[1])
    values = codes.to_pylist()
    distinct = sorted(set(values))
    ranks, groups = rank(codes), group(codes)
    assert ranks.ids.tolist() == [distinct.index(value) for value in values]
    assert [values[row] for row in ranks.first] == distinct
    assert ranks.first.tolist() == [values.index(value) for value in distinct]
    assert [values[groups.first[i]] for i in groups.ids] == values
    assert groups.first.tolist() == sorted(groups.first.tolist())
    assert by_group(ranks.ids).tolist() == np.argsort(ranks.ids, kind="stable").tolist()
