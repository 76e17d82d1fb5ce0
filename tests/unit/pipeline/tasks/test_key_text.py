"""The text by which `errors/` names a row: JSON, and another for every other row."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.columns import widen_offsets
from headrace.core.schema import Column, TableSchema
from headrace.pipeline.tasks.key_text import key_texts

MICROS = pa.timestamp("us")
INSTANT = pa.timestamp("us", tz="UTC")


def _texts(array: pa.Array, name: str = "k") -> list[Any]:
    schema = TableSchema((Column(name, array.type, "text", "text"),), (name,), full=False)
    return [json.loads(text)[name] for text in key_texts(schema, pa.table({name: array}))]


@pytest.mark.parametrize(
    ("array", "shown"),
    [
        (pa.array([7, None]), [7, None]),
        (pa.array([True, False]), [True, False]),
        (pa.array(['a "b" \\ \n é']), ['a "b" \\ \n é']),
        (pa.array([float("nan"), float("inf"), -0.0, 0.0, None]), ["NaN", "inf", "-0.0", "0.0", None]),
        (pa.array([b"\x00\xff", b"", None]), ["00ff", "", None]),
        (pa.array([Decimal("1E-38")], pa.decimal128(38, 38)), ["0." + "0" * 37 + "1"]),
        (pa.array([17109, 2145042905, None], pa.date32()), ["2016-11-04", "5874897-12-31", None]),
        (pa.array([9223371331199999999], INSTANT), ["294247-01-01 23:59:59.999999"]),
        (pa.array([-210866803200000000, None], MICROS), ["-4713-11-24 00:00:00.000000", None]),
        (pa.array([[1.5, None], None, []], pa.list_(pa.float64())), [["1.5", None], None, []]),
        (pa.array([[2145042905]], pa.list_(pa.date32())), [["5874897-12-31"]]),
        (pa.array([[b"\xff"], []], pa.list_(pa.binary())), [["ff"], []]),
        (pa.array([], MICROS), []),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_a_key_of_any_type_has_its_text(array: pa.Array, shown: list[Any]) -> None:
    assert _texts(array) == shown
    assert _texts(array.slice(1)) == shown[1:]
    assert _texts(array.cast(widen_offsets(array.type))) == shown


def test_the_column_is_named_whatever_it_is_called() -> None:
    assert _texts(pa.array([1]), 'a "b".\n') == [1]
