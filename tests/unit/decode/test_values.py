"""Rules for every form; the values themselves are in the cases and the laws."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.core.errors import Misconfigured
from headrace.decode.text import TEXT, TextColumn
from headrace.decode.values import FORMS, decode_column, raw

UTC = pa.timestamp("us", tz="UTC")
TYPES = {
    "bool": pa.bool_(),
    "int": pa.int32(),
    "float": pa.float64(),
    "decimal": pa.decimal128(12, 2),
    "text": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": UTC,
    "array(int)": pa.list_(pa.int32()),
}
NO_VALUE = b"\xff{"


def test_every_form_is_tried_here() -> None:
    assert set(TYPES) - {"array(int)"} == set(FORMS)


@pytest.mark.parametrize(("form", "type"), TYPES.items())
def test_a_text_that_is_no_value_is_listed_and_null(form: str, type: pa.DataType) -> None:
    column = TextColumn.of([None, NO_VALUE, None, NO_VALUE])
    decoded = decode_column(column, form, type)
    assert decoded.bad.tolist() == [1, 3]
    assert decoded.array.equals(pa.nulls(4, type))
    assert raw(column, decoded.bad).to_pylist() == ["\\xff{"] * 2


@pytest.mark.parametrize(("form", "type"), TYPES.items())
def test_a_column_may_be_empty_or_all_null(form: str, type: pa.DataType) -> None:
    assert decode_column(TextColumn.of([]), form, type).array.equals(pa.nulls(0, type))
    assert decode_column(TextColumn.of([None]), form, type).array.equals(pa.nulls(1, type))


@pytest.mark.parametrize(("form", "type"), TYPES.items())
def test_the_text_is_only_read(form: str, type: pa.DataType) -> None:
    data = np.frombuffer(b"{t1.5}\\x00", np.uint8).copy()
    places = np.arange(len(data), dtype=np.int64)
    column = TextColumn(
        np.full(len(data), TEXT, np.uint8), places, (len(data) - places).astype(np.int32), data
    )
    decode_column(column, form, type)
    assert data.tobytes() == b"{t1.5}\\x00"


def test_what_lies_behind_a_null_is_zero_so_that_equal_columns_are_equal_bytes() -> None:
    decoded = decode_column(TextColumn.of([b"7", None, b"x"]), "int", pa.int32())
    assert np.frombuffer(decoded.array.buffers()[1], np.int32).tolist() == [7, 0, 0]


def test_lists_that_are_null_or_bad_can_be_written_to_parquet() -> None:
    column = TextColumn.of([b"{1,2}", b"{3,x,5}", None, b"{{6}}", b"{7}"])
    decoded = decode_column(column, "array(int)", pa.list_(pa.int32()))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": decoded.array}), sink)
    back = pq.read_table(pa.BufferReader(sink.getvalue())).column("a").to_pylist()
    assert back == [[1, 2], None, None, None, [7]]
    assert decoded.bad.tolist() == [1, 3]


def test_an_element_that_is_bad_spoils_its_own_list_only() -> None:
    column = TextColumn.of([b"{}", b"{2026-01-01}", b"{infinity}", b"{}", b"{2026-01-02,infinity}", b"{}"])
    decoded = decode_column(column, "array(date)", pa.list_(pa.date32()))
    assert decoded.bad.tolist() == [2, 4]
    assert decoded.array.is_null().to_pylist() == [False, False, True, False, True, False]


def test_a_form_of_a_later_version_is_refused() -> None:
    for form in ("hstore", "array(hstore)", "array(int"):
        with pytest.raises(Misconfigured) as caught:
            decode_column(TextColumn.of([]), form, pa.string())
        assert caught.value.code == "FORM_UNKNOWN"


def test_one_character_in_two_values_is_two_bad_values() -> None:
    column = TextColumn.of(["é".encode()[:1], "é".encode()[1:]])
    assert decode_column(column, "text", pa.string()).bad.tolist() == [0, 1]


def test_a_column_of_more_text_than_arrow_can_count_stops_loudly() -> None:
    data = np.zeros(1 << 20, np.uint8)
    count = 1 << 11
    column = TextColumn(
        np.full(count, TEXT, np.uint8),
        np.zeros(count, np.int64),
        np.full(count, len(data), np.int32),
        data,
    )
    with pytest.raises(ValueError, match="2147483648 bytes"):
        column.binary(pa.string())
