"""The kernels that find the values of a row agree with their twins on any bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.change_batch import Image
from headrace.core.errors import Definite
from headrace.decode import copyrows, pgoutput
from headrace.decode.kernel import Bytes
from headrace.decode.pgoutput.framing import Messages
from headrace.decode.pgoutput.tuples import Side, tuples
from headrace.decode.text import TEXT, UNCHANGED, TextColumn
from headrace_testing.reference import rows as reference
from tests.effort import examples
from tests.laws.decode.wire import array, changes, damaged, plugin

_LETTERS = {Image.NONE: b"", Image.KEY: b"K", Image.FULL: b"O"}
_positions = st.permutations([0, 1, -1])


def _values(column: TextColumn) -> reference.Row:
    found: reference.Row = []
    for kind, start, length in zip(column.kinds, column.starts, column.lengths, strict=True):
        if kind == TEXT:
            found.append(column.data[start : start + length].tobytes())
        else:
            found.append(reference.UNCHANGED if kind == UNCHANGED else None)
    return found


def _rows(side: Side, data: Bytes) -> list[reference.Row]:
    columns = [_values(side.column(i, data)) for i in range(len(side.kinds))]
    return [list(row) for row in zip(*columns, strict=True)]


def _changes_of(data: bytes) -> tuple[Bytes, Messages]:
    """The changes in a buffer that the scan accepts."""
    buffer = array(data)
    messages = pgoutput.scan(buffer)
    return buffer, messages.take(np.isin(messages.kind, [ord("I"), ord("U"), ord("D")]))


def _mirrored(row: reference.Row | None, positions: list[int]) -> reference.Row:
    """A row of the relation, as it stands in the schema's two columns."""
    found: reference.Row = [None, None]
    for value, position in zip(row or [], positions, strict=row is not None):
        if position >= 0:
            found[position] = value
    return found


@examples(30)
@given(st.lists(changes(3), max_size=5), _positions)
def test_tuples_are_those_of_the_reference(sent: list[bytes], positions: list[int]) -> None:
    data, messages = _changes_of(b"".join(map(plugin, sent)))
    found = tuples(data, messages, np.array(positions), 2)
    expected = [reference.change(message, 3) for message in sent]
    assert [_LETTERS[Image(image)] for image in found.image] == [letter for letter, _, _ in expected]
    assert _rows(found.old, data) == [_mirrored(old, positions) for _, old, _ in expected]
    assert _rows(found.new, data) == [_mirrored(new, positions) for _, _, new in expected]


@examples(30)
@given(damaged(changes(3)))
def test_a_damaged_tuple_is_read_as_the_reference_reads_it_or_refused(message: bytes) -> None:
    if message[:1] not in (b"I", b"U", b"D") or len(message) < 8:
        return
    data, messages = _changes_of(plugin(message))
    assert _read(lambda: _walked(data, messages)) == _read(lambda: reference.change(message, 3)[1:])


def _walked(data: Bytes, messages: Messages) -> tuple[reference.Row | None, reference.Row | None]:
    """The old and the new row of the only message."""
    found = tuples(data, messages, np.arange(3), 3)
    old = None if found.image[0] == Image.NONE else _rows(found.old, data)[0]
    return old, None if messages.kind[0] == ord("D") else _rows(found.new, data)[0]


def _read(step: Callable[[], object]) -> object:
    """Return the step's result, or say that it was refused."""
    try:
        return step()
    except (Definite, reference.MalformedRow):
        return "refused"


values = st.one_of(
    st.none(), st.binary(max_size=10), st.text("\\\b\f\n\r\t\v Nax", max_size=8).map(str.encode)
)
tables = st.integers(1, 4).flatmap(
    lambda ncols: st.lists(st.lists(values, min_size=ncols, max_size=ncols), min_size=1, max_size=6)
)


def _encoded(table: list[list[bytes | None]]) -> bytes:
    return b"".join(b"\t".join(map(reference.encode, row)) + b"\n" for row in table)


@settings(max_examples=100)
@given(tables)
def test_copied_rows_come_back_as_they_were_written(table: list[list[bytes | None]]) -> None:
    assert _copied(array(_encoded(table)), len(table[0])) == table


@examples(30)
@given(
    st.one_of(damaged(tables.map(_encoded)), st.text("\\\n\tNab", max_size=12).map(str.encode)),
    st.integers(1, 4),
)
def test_damaged_rows_are_read_as_the_reference_reads_them_or_refused(data: bytes, ncols: int) -> None:
    buffer = array(data).copy()
    assert _read(lambda: _copied(buffer, ncols)) == _read(lambda: reference.copy_rows(data, ncols))
    assert buffer.tobytes() == data


def _copied(data: Bytes, ncols: int) -> list[reference.Row]:
    columns = copyrows.text_columns(data, ncols)
    return [list(row) for row in zip(*map(_values, columns), strict=True)]
