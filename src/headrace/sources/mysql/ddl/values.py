"""The proven values of altered columns: those of an added column in older rows, and types that keep values.

    ADD n int                        NULL
    ADD n int NOT NULL               0       the type's implicit default: the statement names none
    ADD n int NOT NULL DEFAULT 7     7       even if the default was changed later

`value_before` gives such a value. The server reads a constant by the column's type. A constant is listed only
if no mode, time zone, charset or rounding can change it. All others are None, *not proven*; so are implicit
defaults of dates, which are zero.

    is_pure(before, after)   the server keeps every value of such a column, whatever its session's mode

`is_pure` lists pairs of types. MySQL has no USING: MODIFY and CHANGE convert by the server's own rules. A
pair is listed if they keep each value, in bytes and in the lake; a test asks both servers for each pair, at
the bounds of its values. These, among others, are not listed:

    int to a narrower or unsigned one    cut off, or refused, by the session's mode
    char to varchar                      the mode PAD_CHAR_TO_FULL_LENGTH adds blanks
    binary(n) to a longer one            the server appends zeros
    time(p), bit(1)                      the lake's value differs
    timestamp and datetime               converted by the session's time zone
    latin1 to utf8mb4, and others        more bytes, which may not fit; converted by the server's own tables
    labels in another order, or fewer    values are stored as numbers of labels, or are gone

Pure.
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
from headrace.sources.mysql.catalog.table_def import ColumnRow
from headrace.sources.mysql.ddl.steps import Add
from headrace.sources.mysql.types.columns import MOST_DIGITS, arguments, base_of, column_of, is_unsigned

_BITS: Mapping[str, int] = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_TEXT_BYTES: Mapping[str, int] = {
    "tinytext": (1 << 8) - 1,
    "text": (1 << 16) - 1,
    "mediumtext": (1 << 24) - 1,
    "longtext": (1 << 32) - 1,
}
_BLOB_BYTES = {name.replace("text", "blob"): size for name, size in _TEXT_BYTES.items()}
_MOST_BYTES = 4  # of a character
_QUOTED = re.compile(r"'(?:[^']|'')*'")
# A text has the same bytes in a charset and in these others.
_RECODED = {"ascii": ("utf8mb3", "utf8", "utf8mb4"), "utf8mb3": ("utf8", "utf8mb4"), "utf8": ("utf8mb4",)}


def is_pure(before: ColumnRow, after: ColumnRow) -> bool:
    """Tell whether the server keeps every value of such a column."""
    if before.charset != after.charset and after.charset not in _RECODED.get(before.charset or "", ()):
        return False
    old, new = base_of(before.column_type), base_of(after.column_type)
    given, wider = before.column_type, after.column_type
    if old in ("enum", "set"):
        return old == new and _quoted_labels(wider)[: len(_quoted_labels(given))] == _quoted_labels(given)
    if old in _BITS and new in _BITS:
        (low, high), (least, most) = bounds(given), bounds(wider)
        return least <= low and high <= most
    if given == wider:
        return True
    if is_unsigned(wider) and not is_unsigned(given):
        return False
    if old == new == "decimal":
        return _has_more_digits(given, wider)
    if (given, wider) in (("float", "double"), ("float unsigned", "double"), ("float unsigned", "float")):
        return True
    if old == new and old in ("datetime", "timestamp", "varchar", "char", "varbinary"):
        return arguments(given)[0] <= arguments(wider)[0]
    if old == new == "bit":
        return 1 < arguments(given)[0] <= arguments(wider)[0]
    return _fits(old, given, _TEXT_BYTES.get(new), _TEXT_BYTES, "varchar", _MOST_BYTES) or _fits(
        old, given, _BLOB_BYTES.get(new), _BLOB_BYTES, "varbinary", 1
    )


def bounds(column_type: str) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    bits = _BITS[base_of(column_type)]
    return (0, (1 << bits) - 1) if is_unsigned(column_type) else (-(1 << bits - 1), (1 << bits - 1) - 1)


def is_integer(column_type: str) -> bool:
    """Tell whether a type of the catalog is an integer type."""
    return base_of(column_type) in _BITS


def _quoted_labels(column_type: str) -> list[str]:
    return _QUOTED.findall(column_type)


def _has_more_digits(given: str, wider: str) -> bool:
    """Tell whether a decimal of the lake gets no fewer digits before the point, nor after it."""
    (before, scale), (after, digits) = arguments(given), arguments(wider)
    return scale <= digits and before - scale <= after - digits and after <= MOST_DIGITS


def _fits(old: str, given: str, room: int | None, sizes: Mapping[str, int], varying: str, width: int) -> bool:
    """Tell whether a type has room, in bytes, for all values of a text or blob type."""
    if room is None:
        return False
    return (arguments(given)[0] * width if old == varying else sizes.get(old, room + 1)) <= room


_WHOLE = re.compile(r"-?\d+", re.ASCII)
_NUMBER = re.compile(r"(-?)(\d+)(?:\.(\d+))?", re.ASCII)
_DATE = re.compile(r"[1-9]\d{3}-\d{2}-\d{2}", re.ASCII)
_MOMENT = re.compile(r"[1-9]\d{3}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}", re.ASCII)
_LABEL = re.compile(r"'((?:[^']|'')*)'")
_TEXTS = frozenset(("varchar", "char", "tinytext", "text", "mediumtext", "longtext"))
_BYTES = frozenset(("varbinary", "tinyblob", "blob", "mediumblob", "longblob"))


def value_before(add: Add, row: ColumnRow) -> pa.Scalar | None:
    """The value of an added column in older rows, as the lake holds it; None if it is not proven."""
    if row.generation:
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
    """The number if it is exact in both widths; None if not, or if the column has a number of digits."""
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
    """The label, if the catalog has exactly this one: the server would accept others by collation."""
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
