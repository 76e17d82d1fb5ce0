"""Values of the lake as text: exact, NULL stays NULL, and the expressions that read them back."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from headrace.sources.mysql.types.columns import column_of
from headrace.sources.mysql.types.printing import cast, print_values

MICROS = pa.array([0, -62135538224000000, 1514937610123456, None], pa.int64())


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array([True, False, None]), ["1", "0", None]),
        (pa.array([0.1, 1e20, -0.0, None]), ["0.1", "1e20", "-0", None]),
        (pa.array([0.5, None], pa.float32()), ["0.5", None]),
        (pa.array([b"\x00\xff", b"", None]), ["0x00FF", "0x", None]),
        (
            MICROS.view(pa.timestamp("us")),
            ["1970-01-01 00:00:00", "0001-01-01 16:16:16", "2018-01-03 00:00:10.123456", None],
        ),
        (pa.array([0, None]).view(pa.timestamp("us", "UTC")), ["1970-01-01 00:00:00", None]),
        (pa.array([[1.5, 2.0], [], None], pa.list_(pa.float32())), ["[1.5,2]", "[]", None]),
        (pa.array([Decimal("-12.50"), None]), ["-12.50", None]),
        (pa.array([-719162, None], pa.int32()).view(pa.date32()), ["0001-01-01", None]),
        (pa.array(["a", None]), ["a", None]),
    ],
    ids=lambda each: str(getattr(each, "type", "")),
)
def test_a_value_is_printed_exactly(values: pa.Array, texts: list[str | None]) -> None:
    assert print_values(values).to_pylist() == texts


@pytest.mark.parametrize(
    ("column_type", "expression"),
    [
        ("bigint unsigned", "CAST(x AS DECIMAL(20,0))"),
        ("varchar(5)", "x"),
        ("bit(1)", "(x = '1')"),
        ("blob", "unhex(substr(x, 3))"),
        ("datetime(3)", "CAST(x AS TIMESTAMP_NTZ)"),
        ("timestamp", "CAST(concat(x, '+00:00') AS TIMESTAMP)"),
        ("vector(3)", "from_json(x, 'ARRAY<FLOAT>')"),
    ],
)
def test_each_type_has_an_expression_of_its_own(column_type: str, expression: str) -> None:
    assert cast(column_of("c", column_type, "utf8mb4"), "x") == expression
