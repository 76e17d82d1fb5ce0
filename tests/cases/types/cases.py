"""Cases of types, a file for a source: each type with its place in the lake and the values to try.

Read by the tests that carry every type through a mirror, and by the one that keeps `docs/types.md` true.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

_FOLDER = Path(__file__).parent
_HEAD = re.compile(r"\[(.+)\] (\S+)")
_ERRORS = "errors/ "

_WORDS = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_ARRAY = re.compile(r"array<(.*)>")
_SPECIAL = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


@dataclass(frozen=True, slots=True)
class Value:
    """A literal that an application writes, its value in the lake, and its raw text in `errors/`, if any."""

    literal: str | None
    stored: Any = None
    raw: str | None = None


NULL = Value(None)


@dataclass(frozen=True, slots=True)
class Type:
    """A type of the source: its place in the lake, and values of it."""

    name: str
    lake: str
    values: list[Value] = field(default_factory=list)
    nullable: bool = True

    @property
    def arrow(self) -> pa.DataType:
        return arrow_type(self.lake)

    def of_key(self) -> Type:
        """The type in a key, which takes no NULL and stops its table at a value that the lake can't hold."""
        faithful = [value for value in self.values if value.raw is None]
        return Type(self.name, self.lake, faithful, nullable=False)

    def turn(self, number: int) -> Value:
        """The values in turn, with NULL after the last where it may be."""
        around = [*self.values, NULL] if self.nullable else self.values
        return around[number % len(around)]


def types(*files: str) -> list[Type]:
    """Every type of these files; of PostgreSQL's where none is named."""
    found: list[Type] = []
    names = files or ("postgres.txt",)
    text = "\n".join((_FOLDER / name).read_text(encoding="utf-8") for name in names)
    for line in text.split("\n"):
        if line.startswith("#") or not line:
            continue
        if head := _HEAD.fullmatch(line):
            found.append(Type(head[1], head[2]))
        else:
            literal, _, shown = line.partition(" | ")
            found[-1].values.append(_value(_unescaped(literal), shown, found[-1].arrow))
    return found


def arrow_type(word: str) -> pa.DataType:
    """The Arrow type of a type of the lake, as Spark and the documentation call it."""
    if match := _ARRAY.fullmatch(word):
        return pa.list_(arrow_type(match[1]))
    if match := _DECIMAL.fullmatch(word):
        return pa.decimal128(int(match[1]), int(match[2]))
    return _WORDS[word]


def column(of: Type, values: Iterable[Value]) -> pa.Array:
    """The values as a column of the lake."""
    return pa.array([value.stored for value in values], of.arrow)


def _value(literal: str, shown: str, arrow: pa.DataType) -> Value:
    if shown.startswith(_ERRORS):
        return Value(literal, raw=_unescaped(shown.removeprefix(_ERRORS)))
    if arrow == pa.string():
        return Value(literal, _unescaped(shown))
    return Value(literal, _decimals(_parsed(shown), arrow))


def _parsed(shown: str) -> Any:
    # Not literals of Python, but what the repr of a float says.
    if shown in _SPECIAL:
        return _SPECIAL[shown]
    if shown.startswith("[nan"):
        return [_SPECIAL["nan"], *ast.literal_eval(shown.replace("[nan,", "["))]
    return ast.literal_eval(shown)


def _decimals(value: Any, arrow: pa.DataType) -> Any:
    if pa.types.is_list(arrow):
        return [_decimals(each, arrow.value_type) for each in value]
    return Decimal(value) if pa.types.is_decimal(arrow) and value is not None else value


def _unescaped(text: str) -> str:
    if text == "<empty>":
        return ""
    data = re.sub(
        rb"\\(\\|x[0-9a-f]{2})",
        lambda m: b"\\" if m[1] == b"\\" else bytes.fromhex(m[1][1:].decode()),
        text.encode(),
    )
    return data.decode()
