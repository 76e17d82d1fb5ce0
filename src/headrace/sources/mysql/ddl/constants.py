"""Constants: what a column that was added holds in the rows from before it, where that is certain.

    ADD n int                        NULL
    ADD n int NOT NULL               0       the type's own: nobody said a default
    ADD n int NOT NULL DEFAULT 7     7       whatever became of the default since

The server takes a constant as its type reads it. Listed are those in which nothing is left to a mode, a time
zone, a charset or a rounding: all else is None, *not proven*, and so are dates, of which the implicit one is
zero. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.errors import HeadraceError
from headrace.core.schema import Column
from headrace.sources.mysql.catalog.column_row import ColumnRow
from headrace.sources.mysql.ddl.steps import Add
from headrace.sources.mysql.ddl.widenings import bounds, is_integer
from headrace.sources.mysql.types.columns import arguments, base_of, column_of, is_unsigned

_WHOLE = re.compile(r"-?\d+", re.ASCII)
_NUMBER = re.compile(r"(-?)(\d+)(?:\.(\d+))?", re.ASCII)
_DATE = re.compile(r"[1-9]\d{3}-\d{2}-\d{2}", re.ASCII)
_MOMENT = re.compile(r"[1-9]\d{3}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}", re.ASCII)
_LABEL = re.compile(r"'((?:[^']|'')*)'")
_TEXTS = frozenset(("varchar", "char", "tinytext", "text", "mediumtext", "longtext"))
_BYTES = frozenset(("varbinary", "tinyblob", "blob", "mediumblob", "longblob"))


def value_before(add: Add, row: ColumnRow) -> pa.Scalar | None:
    """The value of an added column in rows from before, as the lake holds it; None where none is proven."""
    if row.generated:
        return None
    try:
        column = column_of(row.name, row.column_type, row.charset)
    except HeadraceError:
        return None
    if add.default is not None:
        found = _constant(add, add.default, row)
    elif row.nullable:
        return pa.scalar(None, column.type)
    else:
        found = None if add.says_null else _implicit(row)
    return None if found is None else _scalar(found, column)


def _scalar(value: Any, column: Column) -> pa.Scalar:
    if pa.types.is_boolean(column.type):
        return pa.scalar(bool(value), column.type)
    if pa.types.is_floating(column.type):
        return pa.scalar(float(value), column.type)
    if pa.types.is_decimal(column.type):
        return pa.scalar(Decimal(value).quantize(Decimal(1).scaleb(-column.type.scale)), column.type)
    return pa.scalar(value, column.type)


def _implicit(row: ColumnRow) -> Any | None:
    base = base_of(row.column_type)
    if is_integer(row.column_type) or base in ("decimal", "float", "double", "bit"):
        return 0 if not (base == "decimal" and _is_text_in_lake(row)) else None
    if base in _TEXTS or base == "set":
        return ""
    if base in _BYTES:
        return b""
    return _labels(row)[0] if base == "enum" else None


def _is_text_in_lake(row: ColumnRow) -> bool:
    return bool(pa.types.is_string(column_of(row.name, row.column_type, row.charset).type))


def _constant(add: Add, text: str, row: ColumnRow) -> Any | None:
    base = base_of(row.column_type)
    if is_integer(row.column_type):
        return _integer(text, row)
    reader = _READERS.get(base)
    return None if reader is None else reader(add, text, row)


def _integer(text: str, row: ColumnRow) -> int | None:
    if _WHOLE.fullmatch(text) is None:
        return None
    least, most = bounds(row.column_type)
    return int(text) if least <= int(text) <= most else None


def _decimal(add: Add, text: str, row: ColumnRow) -> Decimal | None:
    found = _NUMBER.fullmatch(text)
    if found is None or _is_text_in_lake(row):
        return None
    precision, scale = arguments(row.column_type)
    sign, whole, behind = found[1], found[2].lstrip("0"), found[3] or ""
    if len(behind) > scale or len(whole) > precision - scale or (sign and is_unsigned(row.column_type)):
        return None
    return Decimal(text)


def _float(add: Add, text: str, row: ColumnRow) -> float | None:
    """A number that has exactly this value in either width; with digits of its own it would be rounded."""
    if _NUMBER.fullmatch(text) is None or "(" in row.column_type or text.startswith("-"):
        return None
    narrow = float(np.float32(text))
    return narrow if np.isfinite(narrow) and Decimal(narrow) == Decimal(text) else None


def _bit(add: Add, text: str, row: ColumnRow) -> int | None:
    if add.is_text or _WHOLE.fullmatch(text) is None:
        return None
    return int(text) if 0 <= int(text) < 1 << arguments(row.column_type)[0] else None


def _text(add: Add, text: str, row: ColumnRow) -> str | None:
    base = base_of(row.column_type)
    if not add.is_text or (base in ("varchar", "char") and len(text) > arguments(row.column_type)[0]):
        return None
    return text.rstrip(" ") if base == "char" else text


def _label(add: Add, text: str, row: ColumnRow) -> str | None:
    """A label as it is written in the catalog: its collation may find others, too."""
    return text if add.is_text and text in _labels(row) else None


def _date(add: Add, text: str, row: ColumnRow) -> date | None:
    if not add.is_text or _DATE.fullmatch(text) is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _moment(add: Add, text: str, row: ColumnRow) -> datetime | None:
    if not add.is_text or _MOMENT.fullmatch(text) is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


_READERS: Mapping[str, Callable[[Add, str, ColumnRow], Any | None]] = {
    "decimal": _decimal,
    "float": _float,
    "double": _float,
    "bit": _bit,
    **dict.fromkeys(_TEXTS, _text),
    "enum": _label,
    "set": _label,
    "date": _date,
    "datetime": _moment,
}


def _labels(row: ColumnRow) -> list[str]:
    return [label.replace("''", "'") for label in _LABEL.findall(row.column_type)]
