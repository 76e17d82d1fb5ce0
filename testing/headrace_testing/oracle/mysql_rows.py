"""Rows of MySQL and MariaDB as text, made by the server itself: `headrace_testing.canonical` has the form.

The server converts charsets, counts days and spells labels. The bits of floating-point numbers are made here
of its exact decimals, as it has no function for them. Beyond the page of `canonical`:

    bit(1)               true, false; wider ones a number
    time                 as the server prints it: a signed duration
    spatial              hex of its SRID and its WKB
    vector               as an array of reals

NULL on both sides, as the lake's types have no such value: a date with a zero in it, the year 0, and days
that their month has not.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl
import pymysql

from headrace.core.names import TableName
from headrace_testing.canonical import Rows, counted

if TYPE_CHECKING:
    Connection = pymysql.Connection[Any]

# What a session must have, so that a hostile server or account cannot change how values print.
_SETTINGS = (
    "time_zone = '+00:00'",
    "sql_mode = ''",
    "character_set_results = utf8mb4",
    "sql_select_limit = DEFAULT",
)

_COLUMNS = """
    SELECT column_name, lower(data_type), lower(column_type), numeric_precision, numeric_scale
    FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
_FLOATS = ("float", "double")
_INTEGERS = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint"))
_BYTES = frozenset(
    "binary varbinary tinyblob blob mediumblob longblob geometry point linestring polygon multipoint"
    " multilinestring multipolygon geomcollection geometrycollection vector".split()
)
_EPOCH = 719528  # TO_DAYS('1970-01-01')
_IS_A_DAY = "YEAR({c}) > 0 AND MONTH({c}) > 0 AND DAYOFMONTH({c}) > 0 AND DATE({c}) <= LAST_DAY({c})"
_DAYS = f"TO_DAYS({{c}}) - {_EPOCH}"
_SECONDS = f"({_DAYS}) * 86400 + HOUR({{c}}) * 3600 + MINUTE({{c}}) * 60 + SECOND({{c}})"
_MICROS = f"({_SECONDS}) * 1000000 + MICROSECOND({{c}})"
_MOMENT = f"CASE WHEN {_IS_A_DAY} THEN {_MICROS} END"
_EXPRESSIONS = {
    "bit(1)": "CASE {c} + 0 WHEN 1 THEN 'true' WHEN 0 THEN 'false' END",
    "bit": "CAST({c} AS UNSIGNED)",
    "year": "CAST({c} AS UNSIGNED)",
    "date": f"CASE WHEN {_IS_A_DAY} THEN {_DAYS} END",
    "datetime": _MOMENT,
    "timestamp": _MOMENT,
    **dict.fromkeys(_BYTES, "HEX({c})"),
}


def source_rows(connection: Connection, table: TableName) -> Rows:
    """Read the source's rows in the transaction (or at the moment) of this connection."""
    with connection.cursor() as cursor:
        for setting in _SETTINGS:
            cursor.execute(f"SET {setting}")
        cursor.execute(_COLUMNS, [table.schema, table.name])
        columns = cursor.fetchall()
        shown = ", ".join(_shown(*column) for column in columns)
        cursor.execute(f"SELECT {shown} FROM {quoted(table.schema)}.{quoted(table.name)}")
        rows = cursor.fetchall()
    texts = [
        pl.Series(f"c{number}", [_text(row[number], kind) for row in rows], pl.String)
        for number, (_, kind, *_) in enumerate(columns)
    ]
    return Rows(
        tuple(str(column[0]) for column in columns),
        counted(pl.DataFrame(texts).with_columns(n=pl.lit(1, pl.Int64))),
    )


def quoted(name: str) -> str:
    """A name as a statement spells it."""
    return "`" + name.replace("`", "``") + "`"


def _shown(name: str, kind: str, described: str, precision: int | None, scale: int | None) -> str:
    """The SQL expression of a value's text, or of what `_FINISH` makes it of."""
    if kind in _FLOATS:
        # No text of it: MySQL makes one of 15 digits. The protocol's has all that there are.
        return f"{quoted(name)} * 1e0"
    if kind in _INTEGERS:
        # Without the zeros that ZEROFILL puts in front; likewise of decimals.
        shape = f"CAST({{c}} AS {'UNSIGNED' if 'unsigned' in described else 'SIGNED'})"
    elif kind == "decimal":
        shape = f"CAST({{c}} AS DECIMAL({precision}, {scale}))"
    else:
        shape = _EXPRESSIONS.get(described) or _EXPRESSIONS.get(kind, "{c}")
    # As text, whatever it is: a number of the protocol's would be Python's to spell.
    return f"CONVERT({shape.format(c=quoted(name))} USING utf8mb4)"


def _text(value: Any, kind: str) -> str | None:
    return None if value is None else _FINISH.get(kind, str)(value)


def _bits32(value: float) -> str:
    return str(struct.unpack("<i", struct.pack("<f", value))[0])


def _bits64(value: float) -> str:
    return str(struct.unpack("<q", struct.pack("<d", value))[0])


def _vector(text: str) -> str:
    elements = struct.iter_unpack("<i", bytes.fromhex(text))
    return "{" + "".join(f"{str(bits).encode().hex()}," for (bits,) in elements) + "}"


# What is made here of the server's answer, by the type's name.
_FINISH: dict[str, Callable[[Any], str]] = {
    "float": _bits32,
    "double": _bits64,
    "vector": _vector,
    **dict.fromkeys(_BYTES - {"vector"}, str.lower),
}
