"""Texts that a column's type never prints are told from those that only have no lake form."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.sources.queue.decode.layouts import printed_otherwise

INTEGER, TEXT, TIMESTAMP, ZONED = 23, 25, 1114, 1184


@pytest.mark.parametrize(
    ("oid", "text", "otherwise"),
    [
        (INTEGER, "4294967290", True),
        (INTEGER, "pg_class", True),
        (TEXT, "whatever", False),
        (TIMESTAMP, "-infinity", False),
        (TIMESTAMP, "4000-01-01 00:00:00.5 BC", False),
        (TIMESTAMP, "2021-01-01 00:00:00+00", True),
        (ZONED, "infinity", False),
        (ZONED, "294276-12-31 23:59:59.999999+00", False),
        (ZONED, "4000-01-01 00:00:00+00 BC", False),
        (ZONED, "2021-01-01 00:00:00", True),
    ],
)
def test_a_text_of_another_type_is_told(oid: int, text: str, otherwise: bool) -> None:
    attributes = [
        {"number": number, "generated": "", "type": each, "typmod": -1}
        for number, each in enumerate((TEXT, oid), 1)
    ]
    details = {"attributes": attributes, "memberships": []}
    bad = pa.table({"column": pa.array([1], pa.int32()), "raw": [text]})
    assert printed_otherwise(bad, details) == otherwise
    assert not printed_otherwise(bad.slice(1), details)
