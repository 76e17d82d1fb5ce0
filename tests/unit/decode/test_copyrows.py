"""COPY's text as rows of the lake: what has a lake form, and what has none."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from headrace.core.errors import Definite
from headrace.core.schema import Column
from headrace.decode import copyrows
from tests.laws.decode.wire import array

COLUMNS = (
    Column("id", pa.int64(), "int", "bigint", nullable=False),
    Column("day", pa.date32(), "date", "date"),
    Column("note", pa.string(), "text", "text"),
)


def test_values_without_a_lake_form_are_null_and_come_along_as_the_source_prints_them() -> None:
    copied = copyrows.decode(
        array(b"1\t2016-11-04\ta\n2\tinfinity\tb\n3\t\\N\tc\n4\t-infinity\t\\N\n"), COLUMNS
    )
    assert copied.rows.to_pylist() == [
        {"id": 1, "day": datetime.date(2016, 11, 4), "note": "a"},
        {"id": 2, "day": None, "note": "b"},
        {"id": 3, "day": None, "note": "c"},
        {"id": 4, "day": None, "note": None},
    ]
    assert copied.rows.schema.field("id").nullable is False
    [values] = copied.unrepresentable
    assert (values.column, values.rows.tolist()) == (1, [1, 3])
    assert values.texts.to_pylist() == ["infinity", "-infinity"]
    assert copied.those(values)["id"].to_pylist() == [2, 4]


def test_columns_that_lose_nothing_are_not_named() -> None:
    copied = copyrows.decode(array(b""), COLUMNS)
    assert copied.rows.num_rows == 0
    assert copied.unrepresentable == ()


def test_rows_of_other_columns_are_refused() -> None:
    with pytest.raises(Definite) as caught:
        copyrows.decode(array(b"1\t2016-11-04\n"), COLUMNS)
    assert caught.value.code == "PG_BAD_COPY_ROW"
