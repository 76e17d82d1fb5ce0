"""COPY's text as rows of the lake: what has a lake form, and what has none."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from headrace.core.errors import Definite
from headrace.core.schema import Column
from headrace.decode import copyrows
from headrace.decode.values import decode_column
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


def _texts(data: bytes, ncols: int) -> list[list[str | None]]:
    found = copyrows.text_columns(array(data), ncols)
    return [decode_column(column, "text", pa.string()).array.to_pylist() for column in found]


def test_columns_come_out_of_rows() -> None:
    assert _texts(b"1\tAnn\n2\t\n", 2) == [["1", "2"], ["Ann", ""]]


def test_null_and_the_text_that_looks_like_it_are_told_apart() -> None:
    assert _texts(b"\\N\tN\t\\\\N\n", 3) == [[None], ["N"], ["\\N"]]


def test_escapes_are_undone() -> None:
    assert _texts(b"\\b\\f\\n\\r\\t\\v\\\\\tplain\n", 2) == [["\b\f\n\r\t\v\\"], ["plain"]]


def test_no_bytes_are_no_rows() -> None:
    assert _texts(b"", 2) == [[], []]


@pytest.mark.parametrize(
    "data",
    [
        b"secret\n",
        b"a\tb\tsecret\n",
        b"a\tb\n\n",
        b"a\tsecret",
        b"a\tb\na",
        b"a\t\\x41secret\n",
        b"a\t\\101secret\n",
        b"a\tsecret\\",
        b"a\tb\\N\n",
        b"a\tsecret\\\n",
    ],
)
def test_a_row_that_does_not_fit_is_a_definite_error_without_its_values(data: bytes) -> None:
    with pytest.raises(Definite) as caught:
        copyrows.text_columns(array(data), 2)
    assert caught.value.code == "PG_BAD_COPY_ROW"
    assert "secret" not in str(caught.value)


def test_the_buffer_of_the_caller_is_left_as_it_was() -> None:
    data = array(b"a\\tb\tc\n").copy()
    copyrows.text_columns(data, 2)
    assert data.tobytes() == b"a\\tb\tc\n"
