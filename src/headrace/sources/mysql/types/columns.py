"""Types: from MySQL's and MariaDB's catalogs to a column of the lake, the expression that a copy selects, and
the stream's description of the column.

The catalog calls `column_of` once when a table is chosen, with the facts of `information_schema.columns`. The
answer is recorded with the table and never recomputed.

    tinyint … bigint            int8 … int64        int        unsigned: the next wider, at last decimal(20,0)
    decimal(p,s), p <= 38       decimal128          decimal    (more digits: string, digits)
    float, double               float32, float64    float
    bit(1), bit(n)              bool, int16 …       bit        a number; of 64 bits decimal(20,0)
    year                        int16               year       0 where the server prints 0000
    date                        date32              date
    datetime                    timestamp[us]       timestamp
    timestamp                   timestamp[us, UTC]  timestamp
    time                        string              time       (a signed duration, as the server prints it)
    char, varchar, text         string              text       text(latin1): in another charset than utf8
    enum, set                   string              enum, set  alike; the label, the labels
    json                        string              json       (as the server prints it; MariaDB: text)
    binary, varbinary, blob     binary              bytes
    geometry and its kinds      binary              bytes      its SRID, 4 bytes, then its WKB
    vector                      list<float32>       vector
    uuid, inet4, inet6          string              uuid, inet4, inet6

The form decides how both the text of a result set and the bytes of a row event are read
(`decode.mysql.forms`). A text in another charset is selected as its bytes, so that both ways decode the same
bytes, and the session's charset does not matter. All columns are nullable in the lake, whatever the source's
constraints are: a value that the lake's type can't hold becomes NULL there and a row of the errors table.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.core.errors import Definite
from headrace.core.schema import Column, TableSchema
from headrace.decode.kernel import Ints
from headrace.decode.mysql import charsets, table_map
from headrace.decode.mysql.charsets import has_decoder
from headrace.decode.mysql.collations import BINARY, CHARSETS
from headrace.decode.mysql.forms import charset_of
from headrace.decode.mysql.table_map import LayoutColumn, TableMapLayout

Kind = tuple[pa.DataType, str]

MOST_DIGITS = 38
UNSIGNED_BIGINT = pa.decimal128(20, 0)

# Signed, and unsigned.
_INTEGERS: Mapping[str, tuple[pa.DataType, pa.DataType]] = {
    "tinyint": (pa.int8(), pa.int16()),
    "smallint": (pa.int16(), pa.int32()),
    "mediumint": (pa.int32(), pa.int32()),
    "int": (pa.int32(), pa.int64()),
    "bigint": (pa.int64(), UNSIGNED_BIGINT),
}
_SPATIAL = "geometry point linestring polygon multipoint multilinestring multipolygon".split()
_COLLECTIONS = ["geomcollection", "geometrycollection"]
_FIXED: Mapping[str, Kind] = {
    "float": (pa.float32(), "float"),
    "double": (pa.float64(), "float"),
    "year": (pa.int16(), "year"),
    "date": (pa.date32(), "date"),
    "datetime": (pa.timestamp("us"), "timestamp"),
    "timestamp": (pa.timestamp("us", tz="UTC"), "timestamp"),
    "time": (pa.string(), "time"),
    "json": (pa.string(), "json"),
    "uuid": (pa.string(), "uuid"),
    "inet4": (pa.string(), "inet4"),
    "inet6": (pa.string(), "inet6"),
    "vector": (pa.list_(pa.float32()), "vector"),
    **dict.fromkeys(
        ["binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", *_SPATIAL, *_COLLECTIONS],
        (pa.binary(), "bytes"),
    ),
}
_TEXTS = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"))
_HASHABLE = frozenset((*_INTEGERS, *_TEXTS, "date", "uuid"))
# Charsets whose bytes are UTF-8.
_UTF8 = frozenset(("utf8mb4", "utf8mb3", "utf8", "ascii"))
# The server's mark of columns that it still keeps in a layout from before MySQL 5.6.
_OLD_LAYOUT = re.compile(r"/\* (mariadb-5\.3|5\.5 binary format) \*/")
_WORD = re.compile(r"\w+")
_ARGUMENTS = re.compile(r"\((\d+)(?:,(\d+))?\)")


def column_of(name: str, column_type: str, charset: str | None, is_hashed: bool = False) -> Column:
    """The column of the lake; raises for a type, layout or charset that we cannot read.

    `column_type` and `charset` are from `information_schema.columns`. The type has lengths, labels, UNSIGNED
    and ZEROFILL; only texts, enums and sets have a charset.
    """
    arrow, form = _kind(name, column_type, (charset or "").lower())
    column = Column(name=name, type=arrow, form=form, source_type=column_type)
    return column.as_hashes if is_hashed else column


def is_hashable(column_type: str) -> bool:
    """Tell whether equal values of a type of the catalog have equal texts, on every server."""
    return base_of(column_type) in _HASHABLE


def hashable_kind(layout: LayoutColumn) -> Kind | None:
    """The form of a column to hash, from its layout in the stream alone; None if it can't be hashed.

    The type can hold more than that of `column_of`, and the text is the same.
    """
    if layout.type in _INTEGER_CODES.values():
        big = layout.type == table_map.LONGLONG and layout.is_unsigned
        return (UNSIGNED_BIGINT, "decimal") if big else (pa.int64(), "int")
    if layout.type in (table_map.DATE, table_map.NEWDATE):
        return _FIXED["date"]
    if (layout.type, layout.first, layout.collation) == (table_map.STRING, _ADDRESS_BYTES["uuid"], BINARY):
        return _FIXED["uuid"]  # or bytes, of which the look at the catalog says that they can't be hashed
    charset = CHARSETS.get(layout.collation)
    if layout.type not in (*_VARYING, *_BLOBS, table_map.STRING) or charset is None or charset == "binary":
        return None
    if charset in _UTF8:
        return pa.string(), "text"
    return (pa.string(), f"text({charset})") if has_decoder(charset) else None


def _kind(name: str, column_type: str, charset: str) -> Kind:
    base = base_of(column_type)
    if _OLD_LAYOUT.search(column_type):
        hint = f"ALTER TABLE ... MODIFY {quote(name)} {base}..., which stores it anew"
        raise _unreadable(name, column_type, "it is stored as before MySQL 5.6", hint)
    if base in _INTEGERS:
        return _integer(*_INTEGERS[base], unsigned=is_unsigned(column_type))
    if base in _TEXTS or base in ("enum", "set"):
        form = "text" if base in _TEXTS else base
        if charset in _UTF8:
            return pa.string(), form
        if has_decoder(charset):
            return pa.string(), f"{form}({charset})"
        hint = f"ALTER TABLE ... MODIFY {quote(name)} ... CHARACTER SET utf8mb4, or leave the table out"
        raise _unreadable(name, column_type, f'there is no decoder of the charset "{charset}"', hint)
    if base == "decimal":
        return _decimal(*arguments(column_type))
    if base == "bit":
        return _bits(arguments(column_type)[0]), "bit"
    if base in _FIXED:
        return _FIXED[base]
    raise _unreadable(name, column_type, "it is not one that we know", "leave the table out")


def _unreadable(name: str, column_type: str, why: str, hint: str) -> Definite:
    return Definite(
        "MY_COLUMN_UNREADABLE",
        f'column "{name}" has a type that cannot be mirrored',
        detail=f"{column_type.partition('(')[0]}: {why}",
        hint=hint,
    )


def _integer(signed: pa.DataType, unsigned_type: pa.DataType, *, unsigned: bool) -> Kind:
    kind = unsigned_type if unsigned else signed
    return kind, "decimal" if pa.types.is_decimal(kind) else "int"


def _decimal(precision: int, scale: int) -> Kind:
    if precision <= MOST_DIGITS:
        return pa.decimal128(precision, scale), "decimal"
    return pa.string(), "digits"


def _bits(width: int) -> pa.DataType:
    if width == 1:
        return pa.bool_()
    for most, kind in ((15, pa.int16()), (31, pa.int32()), (63, pa.int64())):
        if width <= most:
            return kind
    return UNSIGNED_BIGINT


def base_of(column_type: str) -> str:
    """The first word of a type of the catalog."""
    found = _WORD.match(column_type)
    return found[0].lower() if found else ""


def is_unsigned(column_type: str) -> bool:
    """Tell whether a type of the catalog has no negative values."""
    return " unsigned" in column_type.lower()


def arguments(column_type: str) -> tuple[int, int]:
    """The two numbers in the parentheses of a type; 0 for a missing one."""
    found = _ARGUMENTS.search(column_type)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def select_expression(column: Column) -> str:
    """The expression that a copy selects, so that nothing of the value is lost.

    The plain text of a FLOAT has only six digits, that of ZEROFILL has padding, and that of BIT is bytes. A
    text in another charset than UTF-8 comes as its bytes. All other values come as the text protocol has
    them, under the session's pins: `time_zone = '+00:00'`, `character_set_results` utf8mb4 or none.
    """
    name = quote(column.name)
    if column.form == "float":
        return f"{name} * 1e0"  # a double, of -0 too; MySQL casts to DOUBLE since 8.0.17 only
    if column.form == "bit":
        return f"{name} + 0"
    if column.form == "digits" and "zerofill" in column.source_type.lower():
        return "CAST({} AS DECIMAL({},{}))".format(name, *arguments(column.source_type))
    if column.form.endswith(")"):
        return f"CAST({name} AS BINARY)"
    return name


def quote(name: str) -> str:
    """A name as an identifier of SQL."""
    return "`" + name.replace("`", "``") + "`"


# The values that make a column of this form a doubtful key: the source may hold them, and the lake cannot.
_DOUBTFUL_KEYS: Mapping[str, str] = {"date": "zero dates", "timestamp": "zero dates"}


def doubtful_key(column: Column) -> str | None:
    """The values that make a key column of this form doubtful; None if there are none."""
    return _DOUBTFUL_KEYS.get(column.form)


# --- the stream's description of a column ----------------------------------------------------------

_LABEL = re.compile(r"'((?:[^']|'')*)'")
# The catalog's escapes within quotes.
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
_INTEGER_CODES: Mapping[str, int] = {
    "tinyint": table_map.TINY,
    "smallint": table_map.SHORT,
    "mediumint": table_map.INT24,
    "int": table_map.LONG,
    "bigint": table_map.LONGLONG,
}
_MOMENT_CODES: Mapping[str, int] = {
    "datetime": table_map.DATETIME2,
    "timestamp": table_map.TIMESTAMP2,
    "time": table_map.TIME2,
}
_ADDRESS_BYTES: Mapping[str, int] = {"uuid": 16, "inet4": 4, "inet6": 16}
_HASH = re.compile(r"DB_ROW_HASH_\d+")


def positions(layout: TableMapLayout, schema: TableSchema, left_out: Collection[str] = ()) -> Ints | None:
    """The schema's position of each column of a layout, -1 if hidden; None if the layout doesn't fit."""
    return positions_in(layout, schema.names, schema.columns, schema.key, left_out)


def positions_in(
    layout: TableMapLayout,
    names: Sequence[str],
    columns: Sequence[Column | None],
    key: Collection[str],
    left_out: Collection[str] = (),
) -> Ints | None:
    """Find the positions of columns with these names; a column that is None may have any type.

    It compares all facts that the decoding of a value depends on: names and their order, types, signs,
    digits, charsets, labels, and the primary key. A longer VARCHAR, a larger TEXT, or another collation of
    the same charset changes no value. Only here DDL that was undone shows, and so does the end of a unique
    key that identified rows: no statement says that it was this key.

    MariaDB keeps a hash of a unique key over a long column in a column that its catalog does not show:
    `DB_ROW_HASH_1`. Such columns are skipped, and so are those that a rule leaves out.
    """
    if not layout.is_full:
        return None
    hidden = [
        column.name not in names and (column.name in left_out or _is_hash(column))
        for column in layout.columns
    ]
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


def _fits(column: Column, layout: LayoutColumn) -> bool:
    """Tell whether a column of the layout has the values of the recorded one."""
    if column.clear_type is not None or layout.clear is not None:
        return (
            layout.clear is not None and column.clear_type is not None and _fits(column.clear, layout.clear)
        )
    base = base_of(column.source_type)
    if base in _INTEGER_CODES:
        return layout.type == _INTEGER_CODES[base] and layout.is_unsigned == is_unsigned(column.source_type)
    if base in _MOMENT_CODES:
        return (layout.type, layout.first) == (_MOMENT_CODES[base], arguments(column.source_type)[0])
    if base in _ADDRESS_BYTES:
        return (layout.type, layout.first) == (table_map.STRING, _ADDRESS_BYTES[base])
    name, charset = charset_of(column.form)
    return _CHECKS.get(name, _is_other)(column, layout, charset)


def _is_other(column: Column, layout: LayoutColumn, charset: str | None) -> bool:
    kinds = {
        "year": (table_map.YEAR,),
        "date": (table_map.DATE, table_map.NEWDATE),
        "json": (table_map.JSON,),
    }
    return layout.type in kinds.get(column.form, ())


def _is_vector(column: Column, layout: LayoutColumn, charset: str | None) -> bool:
    """Tell whether it is a vector: MySQL has a type for it, MariaDB logs it as bytes."""
    size = 4 * arguments(column.source_type)[0]
    return layout.type == table_map.VECTOR or (
        (layout.type, layout.first, layout.collation) == (table_map.VARCHAR, size, BINARY)
    )


def _is_decimal(column: Column, layout: LayoutColumn, charset: str | None) -> bool:
    return layout.type == table_map.DECIMAL and (layout.first, layout.second) == arguments(column.source_type)


def _is_float(column: Column, layout: LayoutColumn, charset: str | None) -> bool:
    single = base_of(column.source_type) == "float"
    return layout.type == (table_map.FLOAT if single else table_map.DOUBLE)


def _is_bit(column: Column, layout: LayoutColumn, charset: str | None) -> bool:
    return (layout.type, layout.first) == (table_map.BIT, arguments(column.source_type)[0])


def _is_bytes(column: Column, layout: LayoutColumn, charset: str | None) -> bool:
    base = base_of(column.source_type)
    if base not in _BINARIES:
        return layout.type == table_map.GEOMETRY
    if layout.collation != BINARY:
        return False
    if base == "binary":
        return (layout.type, layout.first) == (table_map.STRING, arguments(column.source_type)[0])
    return layout.type in (_VARYING if base == "varbinary" else _BLOBS)


def _is_text(column: Column, layout: LayoutColumn, charset: str | None) -> bool:
    base = base_of(column.source_type)
    kinds = _VARYING if base == "varchar" else {table_map.STRING} if base == "char" else _BLOBS
    return layout.type in kinds and _has_charset(layout, charset)


def _is_labelled(column: Column, layout: LayoutColumn, charset: str | None) -> bool:
    kind = table_map.ENUM if base_of(column.source_type) == "enum" else table_map.SET
    labels = [_ESCAPE.sub(_unescape, text) for text in _LABEL.findall(column.source_type)]
    spelled = [charsets.decode_one(label, charset) for label in layout.labels]
    return layout.type == kind and _has_charset(layout, charset) and spelled == labels


def _unescape(found: re.Match[str]) -> str:
    return "'" if found[1] is None else _ESCAPED.get(found[1], found[1])


def _has_charset(layout: LayoutColumn, charset: str | None) -> bool:
    named = CHARSETS.get(layout.collation)
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
