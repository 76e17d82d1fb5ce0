"""The kernel that splits texts of rows agrees with its twin on any bytes, and loses nothing of any row."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.core.errors import Definite
from headrace.decode.queue import composite
from headrace.decode.text import TEXT, TextColumn
from headrace_testing.reference import composite as reference
from headrace_testing.reference.rows import MalformedRow
from tests.effort import examples

Row = list[bytes | None]

_letters = st.sampled_from([b'"', b"\\", b",", b"(", b")", b" ", b"\n", b"a", "ü".encode(), b"\x00"])
_values = st.none() | st.lists(_letters, max_size=6).map(b"".join) | st.binary(max_size=40)
_damaged = st.lists(_letters, max_size=12).map(b"".join)


def split(texts: list[bytes], ncols: int) -> list[Row]:
    columns = composite.columns(TextColumn.of(list(texts)), ncols)
    return [[_value(column, row) for column in columns] for row in range(len(texts))]


def _value(column: TextColumn, row: int) -> bytes | None:
    if column.kinds[row] != TEXT:
        return None
    start = column.starts[row]
    return column.data[start : start + column.lengths[row]].tobytes()


@given(st.integers(1, 5).flatmap(lambda n: st.lists(st.lists(_values, min_size=n, max_size=n), max_size=5)))
def test_a_row_comes_back_as_it_was(rows: list[Row]) -> None:
    texts = [reference.encode(row) for row in rows]
    assert [reference.fields(text) for text in texts] == rows
    assert split(texts, len(rows[0]) if rows else 1) == rows


@examples(100)
@example(b'(")', 1)
@example(b'("")', 1)
@example(b'(a"")', 1)
@example(b"(\\)", 1)
@example(b'("\\"")', 1)
@example(b"()", 1)
@example(b"(,)", 1)
@example(b"(,)", 3)
@given(_damaged | _damaged.map(lambda inner: b"(" + inner + b")"), st.integers(1, 3))
def test_any_bytes_are_read_as_the_reference_reads_them_or_refused(text: bytes, ncols: int) -> None:
    expected = _read(lambda: reference.fields(text))
    if expected is not None and len(expected) != ncols:
        expected = None
    # Between two rows that are right: what is wrong with one must not reach into the others.
    around = reference.encode([b"x"] * ncols)
    found = _read(lambda: split([around, text, around], ncols)[1])
    assert found == expected


def _read(read: Callable[[], Row]) -> Row | None:
    try:
        return read()
    except (MalformedRow, Definite, composite.FieldsDiffer):
        return None


@pytest.mark.parametrize("ncols", [1, 3])
def test_a_row_of_another_layout_is_named(ncols: int) -> None:
    right = reference.encode([b"x"] * ncols)
    with pytest.raises(composite.FieldsDiffer) as refused:
        split([right, b"(1,2)", right], ncols)
    assert refused.value.row == 1


@pytest.mark.parametrize("text", [b"(1,2", b'(1,"2)', b"", b"(", b'(1,2"")'])
def test_a_text_that_is_no_row_is_a_definite_error(text: bytes) -> None:
    with pytest.raises(Definite) as refused:
        split([text], 2)
    assert refused.value.code == "QUEUE_BAD_ROW"
