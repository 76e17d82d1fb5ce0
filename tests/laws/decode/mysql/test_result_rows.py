"""The kernel that finds the values of a result set agrees with its twin on any bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.core.errors import Definite
from headrace.decode.mysql.result_rows import RowBlock, columns_of
from headrace.decode.text import TEXT
from headrace_testing.reference.mysql import result_rows as reference
from tests.effort import examples
from tests.laws.decode.wire import damaged

Rows = list[list[bytes | None]]

values = st.one_of(st.none(), st.binary(max_size=6), st.sampled_from([b"x" * 250, b"x" * 251, b"x" * 70_000]))
tables = st.integers(1, 4).flatmap(
    lambda ncols: st.lists(st.lists(values, min_size=ncols, max_size=ncols), min_size=1, max_size=5)
)


def block(payloads: list[bytes]) -> RowBlock:
    starts = np.concatenate([[0], np.cumsum([len(each) for each in payloads], dtype=np.int64)])
    return RowBlock(np.frombuffer(b"".join(payloads), np.uint8), starts)


def read(payloads: list[bytes], ncols: int) -> Rows | str:
    """The rows as the kernel finds them."""
    try:
        columns = columns_of(block(payloads), ncols)
    except Definite:
        return "refused"
    found = [
        [
            column.data[start : start + length].tobytes() if kind == TEXT else None
            for kind, start, length in zip(column.kinds, column.starts, column.lengths, strict=True)
        ]
        for column in columns
    ]
    return [list(row) for row in zip(*found, strict=True)]


@settings(max_examples=60)
@given(tables)
def test_rows_come_back_as_they_were_sent(table: Rows) -> None:
    assert read([reference.encode(row) for row in table], len(table[0])) == table


@examples(30)
@given(damaged(tables.map(lambda table: reference.encode(table[0]))), st.integers(1, 4))
@example(b"\xfe" + b"\xff" * 8, 1)
@example(b"\xff", 1)
@example(b"", 1)
def test_a_damaged_row_is_read_as_the_twin_reads_it_or_refused(payload: bytes, ncols: int) -> None:
    try:
        expected: Rows | str = [reference.row(payload, ncols)]
    except reference.MalformedResultRow:
        expected = "refused"
    assert read([payload], ncols) == expected


def test_a_block_whose_rows_lie_outside_of_its_data_is_refused() -> None:
    with pytest.raises(ValueError, match="within its data"):
        columns_of(RowBlock(np.zeros(3, np.uint8), np.array([0, 4])), 1)
