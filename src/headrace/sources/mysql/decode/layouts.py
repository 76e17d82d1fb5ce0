"""Compare the stream's description of a table with the catalog's at the time of the copy.

What counts is what a value's decoding hangs on: names and their order, types, signs, digits, charsets,
labels, and the primary key. A longer VARCHAR, a larger TEXT, another collation of the same charset change no
value. DDL that was taken back is seen here and nowhere else, and so is the end of a unique key that rows were
known by: no statement says that it was this one.

MariaDB keeps a hash of a unique key over a long column in a column of its own, which its catalog does not
show: `DB_ROW_HASH_1`. Such columns are stepped over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from headrace.core.schema import Column, TableSchema
from headrace.decode.kernel import Ints
from headrace.decode.mysql import charsets, table_map
from headrace.decode.mysql.collations import BINARY, CHARSETS
from headrace.decode.mysql.forms import charset_of
from headrace.decode.mysql.table_map import LayoutColumn, TableMapLayout
from headrace.sources.mysql.types.columns import arguments, base_of, is_unsigned

_HASH = re.compile(r"DB_ROW_HASH_\d+")
_UTF8 = frozenset(("utf8mb4", "utf8mb3", "ascii"))
_LABEL = re.compile(r"'((?:[^']|'')*)'")
# How the catalog writes what would not stand well within quotes.
_ESCAPE = re.compile(r"''|\\(.)")
_ESCAPED = {"0": "\0", "n": "\n", "r": "\r"}
_BLOBS = frozenset(
    (
        table_map.BLOB,
        table_map.TINY_BLOB,
        table_map.MEDIUM_BLOB,
        table_map.LONG_BLOB,
        table_map.BLOB_COMPRESSED,
    )
)
_VARYING = frozenset((table_map.VARCHAR, table_map.VAR_STRING, table_map.VARCHAR_COMPRESSED))
_BINARIES = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"))
_INTEGERS: Mapping[str, int] = {
    "tinyint": table_map.TINY,
    "smallint": table_map.SHORT,
    "mediumint": table_map.INT24,
    "int": table_map.LONG,
    "bigint": table_map.LONGLONG,
}
_MOMENTS: Mapping[str, int] = {
    "datetime": table_map.DATETIME2,
    "timestamp": table_map.TIMESTAMP2,
    "time": table_map.TIME2,
}
_ADDRESSES: Mapping[str, int] = {"uuid": 16, "inet4": 4, "inet6": 16}


def positions(layout: TableMapLayout, schema: TableSchema) -> Ints | None:
    """The position in the schema of each column of a layout, -1 if it is hidden; None: it does not fit."""
    return positions_in(layout, schema.names, schema.columns, schema.key)


def positions_in(
    layout: TableMapLayout, names: Sequence[str], columns: Sequence[Column | None], key: Collection[str]
) -> Ints | None:
    """Find the positions of columns of these names; the type of some does not matter."""
    if not layout.is_full:
        return None
    hidden = [column.name not in names and _is_hash(column) for column in layout.columns]
    shown = [column for column, is_hidden in zip(layout.columns, hidden, strict=True) if not is_hidden]
    if tuple(column.name for column in shown) != tuple(names):
        return None
    if not all(column is None or _fits(column, each) for column, each in zip(columns, shown, strict=True)):
        return None
    known = {layout.columns[number].name for number in layout.key if number < len(layout.columns)}
    if key and known != set(key):
        return None
    found = np.full(len(layout.columns), -1, np.int64)
    found[~np.array(hidden, np.bool_)] = np.arange(len(shown))
    return found


def _is_hash(column: LayoutColumn) -> bool:
    return column.name is not None and bool(_HASH.fullmatch(column.name))


def _fits(column: Column, told: LayoutColumn) -> bool:
    """Tell whether values of this layout are those that the column was recorded with."""
    base = base_of(column.source_type)
    if base in _INTEGERS:
        return told.type == _INTEGERS[base] and told.is_unsigned == is_unsigned(column.source_type)
    if base in _MOMENTS:
        return (told.type, told.first) == (_MOMENTS[base], arguments(column.source_type)[0])
    if base in _ADDRESSES:
        return (told.type, told.first) == (table_map.STRING, _ADDRESSES[base])
    name, charset = charset_of(column.form)
    return _CHECKS.get(name, _is_other)(column, told, charset)


def _is_other(column: Column, told: LayoutColumn, charset: str | None) -> bool:
    kinds = {
        "year": (table_map.YEAR,),
        "date": (table_map.DATE, table_map.NEWDATE),
        "json": (table_map.JSON,),
    }
    return told.type in kinds.get(column.form, ())


def _is_vector(column: Column, told: LayoutColumn, charset: str | None) -> bool:
    """MySQL has a type of its own for vectors; MariaDB logs one as so many bytes."""
    size = 4 * arguments(column.source_type)[0]
    return told.type == table_map.VECTOR or (
        (told.type, told.first, told.collation) == (table_map.VARCHAR, size, BINARY)
    )


def _is_decimal(column: Column, told: LayoutColumn, charset: str | None) -> bool:
    return told.type == table_map.DECIMAL and (told.first, told.second) == arguments(column.source_type)


def _is_float(column: Column, told: LayoutColumn, charset: str | None) -> bool:
    single = base_of(column.source_type) == "float"
    return told.type == (table_map.FLOAT if single else table_map.DOUBLE)


def _is_bit(column: Column, told: LayoutColumn, charset: str | None) -> bool:
    return (told.type, told.first) == (table_map.BIT, arguments(column.source_type)[0])


def _is_bytes(column: Column, told: LayoutColumn, charset: str | None) -> bool:
    base = base_of(column.source_type)
    if base not in _BINARIES:
        return told.type == table_map.GEOMETRY
    if told.collation != BINARY:
        return False
    if base == "binary":
        return (told.type, told.first) == (table_map.STRING, arguments(column.source_type)[0])
    return told.type in (_VARYING if base == "varbinary" else _BLOBS)


def _is_text(column: Column, told: LayoutColumn, charset: str | None) -> bool:
    base = base_of(column.source_type)
    kinds = _VARYING if base == "varchar" else {table_map.STRING} if base == "char" else _BLOBS
    return told.type in kinds and _has_charset(told, charset)


def _is_labelled(column: Column, told: LayoutColumn, charset: str | None) -> bool:
    kind = table_map.ENUM if base_of(column.source_type) == "enum" else table_map.SET
    labels = [_ESCAPE.sub(_unescape, text) for text in _LABEL.findall(column.source_type)]
    spelled = [charsets.decode_one(label, charset) for label in told.labels]
    return told.type == kind and _has_charset(told, charset) and spelled == labels


def _unescape(found: re.Match[str]) -> str:
    return "'" if found[1] is None else _ESCAPED.get(found[1], found[1])


def _has_charset(told: LayoutColumn, charset: str | None) -> bool:
    named = CHARSETS.get(told.collation)
    return named in _UTF8 if charset is None else named == charset


_CHECKS: Mapping[str, Callable[[Column, LayoutColumn, str | None], bool]] = {
    "decimal": _is_decimal,
    "digits": _is_decimal,
    "float": _is_float,
    "bit": _is_bit,
    "bytes": _is_bytes,
    "text": _is_text,
    "enum": _is_labelled,
    "set": _is_labelled,
    "vector": _is_vector,
}
