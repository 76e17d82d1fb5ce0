"""Widenings: pairs of types of which every value of the first is the same value under the second.

    is_pure(before, after)   the server changes no value of such a column, whatever the mode of its session

There is no USING: MODIFY and CHANGE convert by the server's own rules. Listed is what those keep, in bytes
and in the lake; a test asks both servers for each pair, at the bounds of its values. All else is not listed:

    int to a narrower or unsigned one    cut off, or refused, by the session's mode
    char to varchar                      the mode PAD_CHAR_TO_FULL_LENGTH brings blanks with it
    binary(n) to a longer one            zeros are put behind
    time(p), bit(1)                      the lake's value is another
    timestamp and datetime               by the session's time zone
    latin1 to utf8mb4, and others        more bytes, which may find no room; the server's own tables
    labels in another order, or fewer    values are known by their numbers, or gone

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.sources.mysql.catalog.column_row import ColumnRow
from headrace.sources.mysql.types.columns import MOST_DIGITS, arguments, base_of, is_unsigned

_BITS: Mapping[str, int] = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_TEXT_BYTES: Mapping[str, int] = {
    "tinytext": (1 << 8) - 1,
    "text": (1 << 16) - 1,
    "mediumtext": (1 << 24) - 1,
    "longtext": (1 << 32) - 1,
}
_BLOB_BYTES = {name.replace("text", "blob"): size for name, size in _TEXT_BYTES.items()}
_MOST_BYTES = 4  # of a character
_LABEL = re.compile(r"'(?:[^']|'')*'")
# In these the bytes of a text are the same ones.
_RECODED = {"ascii": ("utf8mb3", "utf8", "utf8mb4"), "utf8mb3": ("utf8", "utf8mb4"), "utf8": ("utf8mb4",)}


def is_pure(before: ColumnRow, after: ColumnRow) -> bool:
    """Tell whether each value of such a column is kept as it is."""
    if before.charset != after.charset and after.charset not in _RECODED.get(before.charset or "", ()):
        return False
    old, new = base_of(before.column_type), base_of(after.column_type)
    given, wider = before.column_type, after.column_type
    if old in ("enum", "set"):
        return old == new and _labels(wider)[: len(_labels(given))] == _labels(given)
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
    """Tell whether a type of the catalog is one of whole numbers."""
    return base_of(column_type) in _BITS


def _labels(column_type: str) -> list[str]:
    return _LABEL.findall(column_type)


def _has_more_digits(given: str, wider: str) -> bool:
    """Tell whether there are as many digits before the point and behind it, of a number of the lake."""
    (before, scale), (after, digits) = arguments(given), arguments(wider)
    return scale <= digits and before - scale <= after - digits and after <= MOST_DIGITS


def _fits(old: str, given: str, room: int | None, sizes: Mapping[str, int], varying: str, width: int) -> bool:
    """Tell whether there is room in bytes for all values of a text or a blob, or one with a length."""
    if room is None:
        return False
    return (arguments(given)[0] * width if old == varying else sizes.get(old, room + 1)) <= room
