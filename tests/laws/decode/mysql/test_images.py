"""Values of a row event come back as they were written, and what has no form has the text of the server."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.decode.mysql import table_map as maps
from headrace.decode.mysql.forms import bad_texts, decode_image
from headrace.decode.mysql.json_tree import decimal_text
from headrace.decode.mysql.table_map import LayoutColumn
from headrace.decode.text import TextColumn
from headrace_testing.reference.mysql import images
from tests.effort import examples

EPOCH = datetime.datetime(1970, 1, 1)
digits = st.integers(0, 6)
clocks = st.tuples(st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999_999))


def _read(values: list[bytes | None], form: str, kind: pa.DataType, layout: LayoutColumn) -> tuple[Any, Any]:
    """Decode a column; return what it holds, and the texts of bad values."""
    column = TextColumn.of(values)
    decoded = decode_image(column, form, kind, layout)
    decoded.array.validate(full=True)
    return decoded.array, bad_texts(column, layout, decoded.bad).to_pylist()


def _cut(micros: int, shown: int) -> int:
    return micros - micros % (1_000_000, 100_000, 10_000, 1000, 100, 10, 1)[shown]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1), st.sampled_from([1, 2, 3, 4, 8]))
def test_integers(values: list[int | None], width: int) -> None:
    kind = {1: maps.TINY, 2: maps.SHORT, 3: maps.INT24, 4: maps.LONG, 8: maps.LONGLONG}[width]
    arrow = {1: pa.int8(), 2: pa.int16(), 3: pa.int32(), 4: pa.int32(), 8: pa.int64()}[width]
    half = 1 << (8 * width - 1)
    held = [None if value is None else (value + half) % (2 * half) - half for value in values]
    written = [None if value is None else images.integer(value, width) for value in held]
    assert _read(written, "int", arrow, LayoutColumn(kind))[0].to_pylist() == held
    positive = [None if value is None else value % (2 * half) for value in held]
    wider = pa.decimal128(20, 0) if width == 8 else pa.int64() if width > 2 else pa.int32()
    form = "decimal" if width == 8 else "int"
    found = _read(written, form, wider, LayoutColumn(kind, is_unsigned=True))[0].to_pylist()
    assert [None if value is None else int(value) for value in found] == positive


@st.composite
def decimals(draw: st.DrawFn) -> tuple[int, int, int]:
    precision = draw(st.integers(1, 65))
    scale = draw(st.integers(0, min(precision, 30)))
    return precision, scale, draw(st.integers(-(10**precision) + 1, 10**precision - 1))


@examples(40)
@given(decimals())
def test_decimals(number: tuple[int, int, int]) -> None:
    precision, scale, unscaled = number
    layout = LayoutColumn(maps.DECIMAL, precision, scale)
    written = images.decimal(unscaled, precision, scale)
    assert len(written) == layout.width
    shown = str(abs(unscaled)).zfill(scale + 1)
    whole, rest = shown[: len(shown) - scale], shown[len(shown) - scale :]
    text = f"{'-' if unscaled < 0 else ''}{whole}{'.' + rest if scale else ''}"
    assert _read([written, None], "digits", pa.string(), layout)[0].to_pylist() == [text, None]
    assert decimal_text(written, precision, scale) == text
    if precision <= 38:
        found = _read([None, written], "decimal", pa.decimal128(precision, scale), layout)[0]
        assert found.to_pylist() == [None, Decimal(text)]


@examples(40)
@given(st.integers(0, 9999), st.integers(0, 12), st.integers(0, 31), clocks, digits)
def test_dates_and_datetimes(
    year: int, month: int, day: int, clock: tuple[int, int, int, int], shown: int
) -> None:
    hour, minute, second, micros = (*clock[:3], _cut(clock[3], shown))
    date = images.date(year, month, day)
    moment = images.datetime2(year, month, day, (hour, minute, second, micros), shown)
    text = f"{year:04}-{month:02}-{day:02}"
    fraction = f".{micros:06}"[: shown + 1] if shown else ""
    days = _read([date], "date", pa.date32(), LayoutColumn(maps.DATE))
    layout = LayoutColumn(maps.DATETIME2, shown)
    moments = _read([moment, None], "timestamp", pa.timestamp("us"), layout)
    try:
        expected = datetime.datetime(year, month, day, hour, minute, second, micros)
    except ValueError:
        assert (days[0].to_pylist(), days[1]) == ([None], [text])
        shown_clock = f" {hour:02}:{minute:02}:{second:02}{fraction}"
        assert (moments[0].to_pylist(), moments[1]) == ([None, None], [text + shown_clock])
    else:
        assert (days[0].to_pylist(), days[1]) == ([expected.date()], [])
        assert (moments[0].to_pylist(), moments[1]) == ([expected, None], [])


@given(st.datetimes(EPOCH, datetime.datetime(2038, 1, 19)), digits)
def test_timestamps(moment: datetime.datetime, shown: int) -> None:
    held = moment.replace(microsecond=_cut(moment.microsecond, shown), tzinfo=datetime.UTC)
    layout = LayoutColumn(maps.TIMESTAMP2, shown)
    array, texts = _read([images.timestamp2(held, shown)], "timestamp", pa.timestamp("us", "UTC"), layout)
    if held.replace(tzinfo=None) == EPOCH:
        assert (array.to_pylist(), texts) == (
            [None],
            ["0000-00-00 00:00:00" + ("." + "0" * shown) * (shown > 0)],
        )
    else:
        assert (array.to_pylist(), texts) == ([held], [])


@examples(40)
@given(
    st.booleans(),
    st.integers(0, 838),
    st.integers(0, 59),
    st.integers(0, 59),
    st.integers(0, 999_999),
    digits,
)
def test_times(negative: bool, hours: int, minutes: int, seconds: int, micros: int, shown: int) -> None:
    micros = _cut(micros, shown)
    negative &= bool(hours or minutes or seconds or micros)
    written = images.time2(negative, hours, minutes, seconds, micros, shown)
    fraction = f".{micros:06}"[: shown + 1] if shown else ""
    text = f"{'-' if negative else ''}{hours:02}:{minutes:02}:{seconds:02}{fraction}"
    layout = LayoutColumn(maps.TIME2, shown)
    assert len(written) == layout.width
    assert _read([written, None], "time", pa.string(), layout)[0].to_pylist() == [text, None]


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1), st.integers(1, 64))
def test_bits(numbers: list[int], size: int) -> None:
    held = [number % (1 << size) for number in numbers]
    layout = LayoutColumn(maps.BIT, size)
    written: list[bytes | None] = [images.bits(number, layout.width) for number in held]
    kind = pa.int64() if size < 64 else pa.decimal128(20, 0)
    assert [int(each) for each in _read(written, "bit", kind, layout)[0].to_pylist()] == held


@given(st.lists(st.text("abc", min_size=1), min_size=1, max_size=9, unique=True), st.data())
def test_labels(labels: list[str], data: st.DataObject) -> None:
    told = tuple(label.encode() for label in labels)
    numbers = data.draw(st.lists(st.integers(0, len(labels) + 1), min_size=1))
    written: list[bytes | None] = [images.integer(number, 1) for number in numbers]
    array, texts = _read(written, "enum", pa.string(), LayoutColumn(maps.ENUM, 1, labels=told))
    named = ["", *labels, None]
    assert array.to_pylist() == [named[number] for number in numbers]
    assert texts == [str(number) for number in numbers if number > len(labels)]
    bits = [number % (1 << len(labels)) for number in data.draw(st.lists(st.integers(0, 2**9), min_size=1))]
    sets: list[bytes | None] = [images.integer(each, 2) for each in bits]
    expected = [",".join(label for i, label in enumerate(labels) if each >> i & 1) for each in bits]
    assert _read(sets, "set", pa.string(), LayoutColumn(maps.SET, 2, labels=told))[0].to_pylist() == expected


FORMS: Sequence[tuple[str, pa.DataType, LayoutColumn]] = [
    ("int", pa.int32(), LayoutColumn(maps.LONG)),
    ("decimal", pa.decimal128(10, 2), LayoutColumn(maps.DECIMAL, 10, 2)),
    ("digits", pa.string(), LayoutColumn(maps.DECIMAL, 65, 30)),
    ("float", pa.float64(), LayoutColumn(maps.DOUBLE)),
    ("bit", pa.int64(), LayoutColumn(maps.BIT, 40)),
    ("year", pa.int16(), LayoutColumn(maps.YEAR)),
    ("date", pa.date32(), LayoutColumn(maps.DATE)),
    *(("timestamp", pa.timestamp("us"), LayoutColumn(maps.DATETIME2, shown)) for shown in (0, 3, 6)),
    *(("timestamp", pa.timestamp("us", "UTC"), LayoutColumn(maps.TIMESTAMP2, shown)) for shown in (0, 5)),
    *(("time", pa.string(), LayoutColumn(maps.TIME2, shown)) for shown in (0, 1, 6)),
    ("enum", pa.string(), LayoutColumn(maps.ENUM, 2, labels=(b"a", b"\xff"))),
    ("set", pa.string(), LayoutColumn(maps.SET, 8, labels=(b"a", b"b"))),
    ("text", pa.string(), LayoutColumn(maps.BLOB, 2)),
    ("text(sjis)", pa.string(), LayoutColumn(maps.BLOB, 2)),
    ("bytes", pa.binary(), LayoutColumn(maps.STRING, 9)),
    ("vector", pa.list_(pa.float32()), LayoutColumn(maps.VECTOR, 4)),
    *((form, pa.string(), LayoutColumn(maps.STRING, 16)) for form in ("uuid", "inet6")),
    ("inet4", pa.string(), LayoutColumn(maps.STRING, 4)),
    ("json", pa.string(), LayoutColumn(maps.JSON, 4)),
]


@examples(100)
@given(st.sampled_from(FORMS), st.data())
def test_bytes_that_are_no_value_of_their_column_are_bad_or_another_value(
    form: tuple[str, pa.DataType, LayoutColumn], data: st.DataObject
) -> None:
    name, kind, layout = form
    width = layout.width
    most = layout.first if layout.type == maps.STRING else 60
    one = st.binary(min_size=width, max_size=width) if width > 0 else st.binary(max_size=most)
    _read(data.draw(st.lists(st.none() | one, min_size=1, max_size=4)), name, kind, layout)


def test_a_tree_that_leads_to_one_value_many_times_is_no_tree() -> None:
    """Each level holds the next one twice: some kilobytes would print as 2 to the power of forty."""

    def level(depth: int) -> bytes:
        inner = level(depth - 1) if depth else b"\x00\x00\x04\x00"
        entries = 2 * (b"\x02" + (10).to_bytes(2, "little"))
        return (2).to_bytes(2, "little") + (10 + len(inner)).to_bytes(2, "little") + entries + inner

    deep, flat = b"\x02" + level(40), b"\x02" + level(0)
    array, texts = _read([deep, flat], "json", pa.string(), LayoutColumn(maps.JSON, 4))
    assert array.to_pylist() == [None, "[[], []]"]
    assert len(texts) == 1
