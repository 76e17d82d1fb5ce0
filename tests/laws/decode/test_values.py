"""Each form decodes any text as its twin does, value or bad, and what a server prints comes back."""

from __future__ import annotations

import datetime
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.decode.text import TextColumn
from headrace.decode.values import decode_column, raw
from headrace_testing.reference import values as reference
from tests.laws.decode.wire import damaged

UTC = pa.timestamp("us", tz="UTC")


def plain(array: Any) -> list[Any]:
    """An array's values in the reference's words: what Arrow stores, not what Python makes of it."""
    type = array.type
    if pa.types.is_list(type):
        return [None if item.values is None else plain(item.values) for item in array]
    if pa.types.is_temporal(type):
        return list(array.view(pa.int32() if pa.types.is_date(type) else pa.int64()).to_pylist())
    return [None if value is None else _stored(value, type) for value in array.to_pylist()]


def _stored(value: Any, type: pa.DataType) -> Any:
    if pa.types.is_decimal(type):
        return int(format(value, "f").replace(".", ""))
    if pa.types.is_floating(type):
        return struct.pack("<f" if type == pa.float32() else "<d", value if value == value else float("nan"))
    return value


def outcome(texts: list[bytes | None], form: str, type: pa.DataType) -> tuple[list[Any], list[int]]:
    decoded = decode_column(TextColumn.of(texts), form, type)
    decoded.array.validate(full=True)
    return plain(decoded.array), decoded.bad.tolist()


def expected(texts: list[bytes | None], form: str, type: pa.DataType) -> tuple[list[Any], list[int]]:
    found: list[Any] = []
    bad = []
    for row, text in enumerate(texts):
        try:
            found.append(None if text is None else reference.parse(text, form, type))
        except reference.Bad:
            found.append(None)
            bad.append(row)
    return found, bad


def _near(pattern: str) -> st.SearchStrategy[bytes]:
    """Texts of this pattern, whole or damaged."""
    texts = st.from_regex(pattern, fullmatch=True).map(str.encode)
    return st.one_of(texts, damaged(texts), st.binary(max_size=12))


_INT = _near(r"-?[0-9]{1,21}")
_FLOAT = _near(r"-?(NaN|Infinity|[0-9]{1,20}(\.[0-9]{1,20})?(e[+-]?[0-9]{1,3})?)")
_DECIMAL = _near(r"-?(NaN|0{0,2}[0-9]{1,36}(\.[0-9]{1,4})?)")
_DATE = r"(0{0,2}[0-9]{4}|[0-9]{4,7})-(0[1-9]|1[0-2])-([0-2][0-9]|3[01])"
_TIME = r" ([01][0-9]|2[0-4]):[0-5][0-9]:[0-6][0-9](\.[0-9]{1,7})?"
_ZONE = r"[+-](0[0-9]|1[0-6])(:[0-6][0-9]){0,2}"
_ARRAY = _near(r'\{((-?[0-9]{1,3}|NULL|null|"(\\.|[^"\\]){0,5}"|[a-z \t]{1,3})(,|\}|$)){0,4}\}')

FORMS: list[tuple[str, pa.DataType, st.SearchStrategy[bytes]]] = [
    ("bool", pa.bool_(), _near("[tf01]")),
    ("int", pa.int16(), _near("-?[0-9]{4,6}")),
    ("int", pa.int32(), _near("-?[0-9]{9,11}")),
    ("int", pa.int64(), _INT),
    ("float", pa.float32(), _FLOAT),
    ("float", pa.float64(), _FLOAT),
    ("decimal", pa.decimal128(38, 0), _DECIMAL),
    ("decimal", pa.decimal128(38, 38), _near(r"-?0?\.[0-9]{1,39}|-?0\.[0-9]{1,38}")),
    ("decimal", pa.decimal128(20, 3), _DECIMAL),
    ("decimal", pa.decimal128(5, 2), _near(r"-?[0-9]{1,4}(\.[0-9]{0,3})?")),
    ("text", pa.string(), st.one_of(st.text().map(str.encode), damaged(st.text().map(str.encode)))),
    ("bytea", pa.binary(), _near(r"\\x([0-9a-f]{2}){0,5}")),
    ("date", pa.date32(), _near(_DATE + "( BC)?")),
    ("timestamp", pa.timestamp("us"), _near(_DATE + _TIME + "( BC)?")),
    ("timestamptz", UTC, _near(_DATE + _TIME + _ZONE + "( BC)?")),
    ("array(int)", pa.list_(pa.int32()), _ARRAY),
    ("array(text)", pa.list_(pa.string()), _ARRAY),
    ("array(bool)", pa.list_(pa.bool_()), _near(r"\{[tf](,(t|f|NULL)){0,3}\}")),
]


@pytest.mark.parametrize(("form", "type", "texts"), FORMS, ids=[f"{f}-{t}" for f, t, _ in FORMS])
def test_any_text_is_decoded_as_the_reference_decodes_it(
    form: str, type: pa.DataType, texts: st.SearchStrategy[bytes]
) -> None:
    @settings(max_examples=100)
    @given(st.lists(st.one_of(st.none(), texts), max_size=6))
    def law(column: list[bytes | None]) -> None:
        assert outcome(column, form, type) == expected(column, form, type)

    law()


def _quoted(value: str | None) -> str:
    if value is None:
        return "NULL"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _iso(moment: datetime.datetime, zone: str) -> str:
    text = moment.replace(tzinfo=None).isoformat(" ")
    return text.rstrip("0") + zone if moment.microsecond else text + zone


def _four_places(unscaled: int) -> Decimal:
    # Not by arithmetic, which would round to 28 digits.
    return Decimal(f"{unscaled}e-4")


_zoned = st.datetimes(timezones=st.just(datetime.UTC))
_strings = st.text(st.characters(codec="utf-8", exclude_characters="\0"))

# Form, type, values, and how PostgreSQL prints one.
PRINTED: list[tuple[str, pa.DataType, st.SearchStrategy[Any], Any]] = [
    ("bool", pa.bool_(), st.booleans(), lambda v: "t" if v else "f"),
    ("int", pa.int16(), st.integers(-(2**15), 2**15 - 1), str),
    ("int", pa.int32(), st.integers(-(2**31), 2**31 - 1), str),
    ("int", pa.int64(), st.integers(-(2**63), 2**63 - 1), str),
    ("float", pa.float64(), st.floats(allow_nan=False, allow_infinity=False), repr),
    (
        "decimal",
        pa.decimal128(30, 4),
        st.integers(1 - 10**30, 10**30 - 1).map(_four_places),
        lambda v: format(v, "f"),
    ),
    ("text", pa.string(), _strings, str),
    ("bytea", pa.binary(), st.binary(), lambda v: "\\x" + v.hex()),
    ("date", pa.date32(), st.dates(), str),
    ("timestamp", pa.timestamp("us"), st.datetimes(), lambda v: _iso(v, "")),
    ("timestamptz", UTC, _zoned, lambda v: _iso(v, "+00")),
    (
        "array(text)",
        pa.list_(pa.string()),
        st.lists(st.one_of(st.none(), _strings)),
        lambda v: "{" + ",".join(map(_quoted, v)) + "}",
    ),
]


@pytest.mark.parametrize(
    ("form", "type", "values", "printed"), PRINTED, ids=[f"{p[0]}-{p[1]}" for p in PRINTED]
)
def test_what_a_server_prints_comes_back(
    form: str, type: pa.DataType, values: st.SearchStrategy[Any], printed: Any
) -> None:
    @settings(max_examples=100)
    @given(st.lists(values, min_size=1, max_size=5))
    def law(column: list[Any]) -> None:
        texts = [printed(value).encode() for value in column]
        decoded = decode_column(TextColumn.of(texts), form, type)
        assert decoded.array.equals(pa.array(column, type))
        assert decoded.bad.tolist() == []

    law()


@settings(max_examples=50)
@given(st.lists(st.one_of(st.none(), st.binary(max_size=8)), min_size=1))
def test_rows_do_not_depend_on_their_neighbours(column: list[bytes | None]) -> None:
    together = outcome(column, "int", pa.int64())[0]
    assert together == [outcome([text], "int", pa.int64())[0][0] for text in column]


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=8), min_size=1))
def test_raw_text_is_kept_as_far_as_it_is_text(column: list[bytes]) -> None:
    rows = TextColumn.of(column)
    texts = raw(rows, decode_column(rows, "date", pa.date32()).bad).to_pylist()
    assert texts == [value.decode("utf-8", "backslashreplace") for value in column]


def test_decimals_are_exact_to_the_last_digit() -> None:
    text = "-" + "9" * 30 + "." + "9" * 8
    decoded = decode_column(TextColumn.of([text.encode()]), "decimal", pa.decimal128(38, 8))
    assert decoded.array.to_pylist() == [Decimal(text)]
