"""Runs `values.txt`: each line is one text and the value that it must become."""

from __future__ import annotations

import ast
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.decode.text import TextColumn
from headrace.decode.values import decode_column

CASES = Path(__file__).with_name("values.txt")
_TYPES = {
    "bool": pa.bool_(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date32": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_LIST = re.compile(r"list\((.*)\)")


def _type(name: str) -> pa.DataType:
    if match := _LIST.fullmatch(name):
        return pa.list_(_type(match[1]))
    if match := _DECIMAL.fullmatch(name):
        return pa.decimal128(int(match[1]), int(match[2]))
    return _TYPES[name]


def _text(field: str) -> bytes:
    """The field with its Python escapes undone; other characters are UTF-8."""
    if field == "<empty>":
        return b""
    unescaped = re.sub(r"\\(\\|x[0-9a-f]{2})", lambda m: ast.literal_eval(f"'{m[0]}'"), field)
    return str(unescaped).encode()


def _cases() -> list[tuple[str, ...]]:
    lines = [line for line in CASES.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    return [tuple(field.strip(" ") for field in line.split(" | ", 3)) for line in lines]


def _stored(array: Any) -> Any:
    """The first row, as the cases write values."""
    type = array.type
    if pa.types.is_list(type):
        child = array[0].values
        return [_stored(child.slice(i, 1)) for i in range(len(child))]
    if pa.types.is_temporal(type):
        return array.view(pa.int32() if pa.types.is_date(type) else pa.int64())[0].as_py()
    value = array[0].as_py()
    return format(value, "f") if isinstance(value, Decimal) else value


@pytest.mark.parametrize(("form", "type", "text", "value"), _cases(), ids=str)
def test_text_becomes_the_value_of_the_case(form: str, type: str, text: str, value: str) -> None:
    column = TextColumn.of([_text(text), None, _text(text)])
    decoded = decode_column(column, form, _type(type))
    if value == "bad":
        assert decoded.bad.tolist() == [0, 2]
        assert decoded.array.null_count == 3
    else:
        assert decoded.bad.tolist() == []
        assert decoded.array.is_null().to_pylist() == [False, True, False]
        assert repr(_stored(decoded.array)) == repr(_value(value))
        assert decoded.array.slice(0, 1).equals(decoded.array.slice(2, 1)) or "nan" in value


def _value(text: str) -> Any:
    # Not a literal of Python, but what the repr of a float says.
    special = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
    if text in special:
        return special[text]
    if text.startswith("[nan"):
        return [float("nan"), *ast.literal_eval(text.replace("[nan,", "["))]
    return ast.literal_eval(text)
