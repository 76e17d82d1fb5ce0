"""Delta statistics: every bound holds for every value, as every reader reads it."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.lake.format.statistics import delta_statistics


def _bounds(values: list[Any], kind: pa.DataType) -> tuple[Any, Any, dict[str, Any]]:
    table = pa.table({"c": pa.array(values, kind)})
    read = json.loads(delta_statistics(table))
    assert read["numRecords"] == len(values)
    assert read["nullCount"] == {"c": sum(value is None for value in values)}
    return read["minValues"].get("c"), read["maxValues"].get("c"), read


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=6))
def test_integers_are_exact(values: list[int | None]) -> None:
    low, high, _ = _bounds(values, pa.int64())
    present = [value for value in values if value is not None]
    assert (low, high) == ((min(present), max(present)) if present else (None, None))


@given(st.lists(st.none() | st.floats(width=64), min_size=1, max_size=6))
@example([math.nan, 1.0])
@example([math.inf, 1.0])
def test_floats_are_bounded_or_left_out(values: list[float | None]) -> None:
    low, high, _ = _bounds(values, pa.float64())
    present = [value for value in values if value is not None]
    if any(math.isnan(value) for value in present):
        assert low is high is None
    assert all(low is None or low <= value for value in present)
    assert all(high is None or value <= high for value in present)


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=5))
@example(["\U0010ffff" * 40])
@example(["a" * 31 + "\ud7ff" + "b"])
@example(["a" * 32, "a" * 33])
def test_text_is_bounded_in_the_order_of_its_bytes(values: list[str | None]) -> None:
    low, high, _ = _bounds(values, pa.string())
    for value in values:
        if value is not None:
            assert low.encode() <= value.encode()
            assert high is None or value.encode() <= high.encode()
    assert low is None or len(low) <= 32
    assert high is None or len(high) <= 32


@given(
    st.lists(
        st.decimals(allow_nan=False, allow_infinity=False, places=4).filter(lambda d: abs(d) < 10**30),
        max_size=5,
    )
)
@example([Decimal("9999999999999999999999.9999"), Decimal("-9999999999999999999999.9999")])
def test_decimals_are_bounded_even_for_readers_of_binary_floats(values: list[Decimal]) -> None:
    table = pa.table({"c": pa.array(values, pa.decimal128(38, 4))})
    text = delta_statistics(table)
    exact = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    for value in values:
        assert exact["minValues"]["c"] <= value <= exact["maxValues"]["c"]
    digits = [
        str(bound).replace("-", "").replace(".", "").strip("0") for bound in exact["minValues"].values()
    ]
    assert all(len(number) <= 15 for number in digits)


@given(st.lists(st.datetimes(), min_size=1, max_size=5), st.booleans())
@example([datetime(2020, 1, 1, 0, 0, 0, 1)], True)
@example([datetime.max], True)
@example([datetime.min], False)
def test_timestamps_are_bounded_by_milliseconds(values: list[datetime], zoned: bool) -> None:
    if zoned:
        values = [value.replace(tzinfo=UTC) for value in values]
    low, high, _ = _bounds(values, pa.timestamp("us", tz="UTC" if zoned else None))
    if low is None or high is None:
        assert low is high is None
        assert min(values).year == 1 or max(values).year == 9999
        return
    assert low.endswith("Z") == high.endswith("Z") == zoned
    assert datetime.fromisoformat(low) <= min(values)
    assert max(values) <= datetime.fromisoformat(high)
    assert all(len(text.rstrip("Z")) == len("2020-01-01T00:00:00.000") for text in (low, high))


def test_an_instant_beyond_the_year_9999_has_no_bounds() -> None:
    table = pa.table({"c": pa.array([2**62], pa.int64()).cast(pa.timestamp("us"))})
    assert json.loads(delta_statistics(table))["maxValues"] == {}


@given(st.lists(st.dates(), min_size=1, max_size=5))
def test_dates_are_exact_or_left_out(values: list[date]) -> None:
    low, high, _ = _bounds(values, pa.date32())
    if low is not None:
        assert (date.fromisoformat(low), date.fromisoformat(high)) == (min(values), max(values))


def test_arrays_bytes_and_booleans_have_no_bounds_but_null_counts() -> None:
    table = pa.table(
        {"l": pa.array([[1], None]), "b": pa.array([b"x", None]), "t": pa.array([True, None]), "e e": [1, 2]}
    )
    read = json.loads(delta_statistics(table))
    assert read["minValues"] == {"e_x0020_e": 1}
    assert read["nullCount"] == {"l": 1, "b": 1, "t": 1, "e_x0020_e": 0}
