"""COPY text: values, NULLs and escapes; what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.core.errors import Definite
from headrace.decode import copyrows
from headrace.decode.values import decode_column
from tests.laws.decode.wire import array


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
