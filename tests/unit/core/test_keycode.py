"""The bytes of keycodes, which stand in the footers of the lake's files and never change."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.keycode import keycode


@pytest.mark.parametrize(
    ("kind", "value", "code"),
    [
        (pa.int16(), -2, "01 7ffe"),
        (pa.int32(), 5, "01 80000005"),
        (pa.int64(), None, "00 0000000000000000"),
        (pa.bool_(), True, "01 01"),
        (pa.float64(), 1.0, "01 bff0000000000000"),
        (pa.float64(), -1.0, "01 400fffffffffffff"),
        (pa.decimal128(5, 2), Decimal("1.50"), "01 80000000000000000000000000000096"),
        (pa.date32(), 1, "01 80000001"),
        (pa.timestamp("us"), 1, "01 8000000000000001"),
        (pa.string(), "a", "01 61 00"),
        (pa.string(), None, "00"),
        (pa.binary(), b"\x00\x01", "01 00ff01 00"),
        (pa.list_(pa.int16()), [1, None], "01 01 018001 01 000000 00"),
        (pa.struct([("s", pa.string())]), {"s": "a"}, "01 016100"),
    ],
)
def test_the_code_of_a_value_is_what_it_always_was(kind: pa.DataType, value: Any, code: str) -> None:
    found = keycode([pa.array([value], kind)])
    assert found.type == pa.large_binary()
    assert found.to_pylist() == [bytes.fromhex(code)]


def test_all_nulls_have_one_code_whatever_their_slots_hold() -> None:
    values = np.array([1, 2, 3], np.int64)
    validity = pa.py_buffer(bytes([0b001]))
    array = pa.Array.from_buffers(pa.int64(), 3, [validity, pa.py_buffer(values)])
    codes = keycode([array]).to_pylist()
    assert codes[1] == codes[2] != codes[0]


def test_neighbours_do_not_run_into_each_other() -> None:
    one = keycode([pa.array(["a", "ab"]), pa.array(["bc", "c"])]).to_pylist()
    two = keycode([pa.array(["a\0", "a"]), pa.array(["", "\0"])]).to_pylist()
    assert len({*one, *two}) == 4


def test_an_empty_column_has_no_codes() -> None:
    for kind in (pa.int64(), pa.bool_(), pa.string(), pa.list_(pa.string()), pa.decimal128(3)):
        assert len(keycode([pa.array([], kind), pa.chunked_array([], kind)])) == 0


def test_a_type_without_a_code_is_refused() -> None:
    with pytest.raises(TypeError, match="have no keycode"):
        keycode([pa.array([{}], pa.map_(pa.string(), pa.string()))])
    with pytest.raises(ValueError, match="at least one column"):
        keycode([])
