"""Printed values decode to the same bits, and a server's own text is printed again the same."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.decode.printing import print_values
from headrace.decode.text import TextColumn
from headrace.decode.values import decode_column
from tests.laws.decode.test_values import plain

_DAYS = st.integers(-2_440_589, 2_145_031_948)
_MICROS = st.integers(-210_866_803_200_000_000, 2**63 - 1)
_BITS32, _BITS64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


def _float(kind: str, bits: int) -> float:
    size = {"f": "<I", "d": "<Q"}[kind]
    return float(struct.unpack(f"<{kind}", struct.pack(size, bits))[0])


KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "int": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float64(), _BITS64.map(lambda bits: _float("d", bits)) | st.floats(-1e6, 1e6)),
    "decimal": (pa.decimal128(38, 10), st.decimals(-(10**27), 10**27, places=10)),
    "text": (pa.string(), st.text()),
    "bytea": (pa.binary(), st.binary()),
    "date": (pa.date32(), _DAYS),
    "timestamp": (pa.timestamp("us"), _MICROS),
    "timestamptz": (pa.timestamp("us", tz="UTC"), _MICROS),
}


def _same(array: Any, form: str) -> None:
    texts = [None if text is None else text.encode() for text in print_values(array).to_pylist()]
    decoded = decode_column(TextColumn.of(texts), form, array.type)
    assert decoded.bad.tolist() == []
    assert plain(decoded.array) == plain(array)


@pytest.mark.parametrize("form", KINDS)
@given(st.data())
def test_printed_values_decode_to_themselves(form: str, data: st.DataObject) -> None:
    kind, values = KINDS[form]
    found = data.draw(st.lists(st.none() | values, max_size=8))
    _same(pa.array(found, kind), form)
    lists = data.draw(st.lists(st.none() | st.lists(st.none() | values, max_size=4), max_size=4))
    _same(pa.array(lists, pa.list_(kind)), f"array({form})")


@given(st.lists(_BITS32.map(lambda bits: _float("f", bits)), max_size=8))
def test_printed_reals_decode_to_themselves(values: list[float]) -> None:
    _same(pa.array(values, pa.float32()), "float")


# As a server prints them; between bars.
SERVERS = [
    (
        *("float", pa.float64()),
        "0|-0|0.1|1|100000|123456.789|1e+15|999999999999999|0.0001|1e-05|1.2345678901234568e+17|5e-324|"
        "1.7976931348623157e+308|NaN|Infinity|-Infinity",
    ),
    ("float", pa.float32(), "1e-45|3.3|100000|1e+06|1.234567e+06|-0|0.0001|1e-05"),
    ("date", pa.date32(), "0044-03-15 BC|0001-01-01|5874897-12-31|0001-12-31 BC|2026-11-20"),
    ("timestamp", pa.timestamp("us"), "2016-11-04 13:51:30|2016-11-04 13:51:30.1|4714-11-24 00:00:00 BC"),
    ("timestamp", pa.timestamp("us"), "1969-12-31 23:59:59.999999|294247-01-10 04:00:54.775807"),
    ("timestamptz", pa.timestamp("us", tz="UTC"), "2016-11-04 13:51:30.123456+00|0044-03-15 00:00:00+00 BC"),
    ("decimal", pa.decimal128(38, 38), "0.00000000000000000000000000000000000001"),
    ("bytea", pa.binary(), "\\x|\\x00ff"),
    ("array(text)", pa.list_(pa.string()), '{}|{a,"b c",NULL,"NULL","null","",",","\\\\","\\"","{"}'),
    ("array(bytea)", pa.list_(pa.binary()), '{"\\\\x00",NULL}'),
    ("array(date)", pa.list_(pa.date32()), '{"0044-03-15 BC",2026-11-20}'),
]


@pytest.mark.parametrize(("form", "kind", "texts"), SERVERS)
def test_a_servers_text_is_printed_again(form: str, kind: pa.DataType, texts: str) -> None:
    wanted = texts.split("|")
    decoded = decode_column(TextColumn.of([text.encode() for text in wanted]), form, kind)
    assert print_values(decoded.array).to_pylist() == wanted
