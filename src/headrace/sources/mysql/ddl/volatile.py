"""Generated columns whose values depend on the session that computes them.

A virtual column is computed at every read. The server logs the value that the writer's session computes, and
a copy reads the value that our session computes. If the two may differ, the table can't be mirrored. A stored
column holds the value of its writer's session, until a statement makes the server copy the table. Then it
holds the value of *that* session, and no row of the log shows it.

A column is safe if its expression is known to depend on no session (`expressions`), nor does the conversion
of the value to the column's type. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from headrace.sources.mysql.catalog.table_def import ColumnRow
from headrace.sources.mysql.ddl.expressions import (
    DAYS,
    MADE,
    NUMBERS,
    TEXTS,
    WRITTEN,
    UnknownValue,
    ValueKind,
    check,
    kind_of,
)

_WHOLE = frozenset("tinyint smallint mediumint int bigint".split())
# CHAR is not among these: PAD_CHAR_TO_FULL_LENGTH decides whether it has trailing blanks.
_KINDS: Mapping[str, ValueKind] = {
    **dict.fromkeys(_WHOLE | {"decimal"}, ValueKind.EXACT),
    **dict.fromkeys(("year", "bit"), ValueKind.UNSIGNED),
    **dict.fromkeys(("float", "double"), ValueKind.FLOAT),
    **dict.fromkeys(("varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"), ValueKind.TEXT),
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
        ValueKind.BYTES,
    ),
    "date": ValueKind.DATE,
    "datetime": ValueKind.MOMENT,
    "time": ValueKind.TIME,
    "json": ValueKind.JSON,
}
# By a column's kind: the kinds of values that it stores unchanged, or converts alike in every session.
_TAKES: Mapping[ValueKind, frozenset[ValueKind]] = {
    **dict.fromkeys(NUMBERS, NUMBERS | TEXTS | {ValueKind.JSON}),
    ValueKind.TEXT: NUMBERS | TEXTS | DAYS | {ValueKind.TIME, ValueKind.JSON},
    ValueKind.BYTES: WRITTEN,
    # The session may turn an invalid date into NULL or zeros, or keep it: in the lake all of these are NULL.
    ValueKind.DATE: frozenset((ValueKind.DATE, ValueKind.DAY)),
    ValueKind.MOMENT: DAYS | MADE,
    ValueKind.TIME: frozenset((ValueKind.TIME,)),
    ValueKind.JSON: frozenset((ValueKind.JSON,)),
}
_MADE = {ValueKind.DATE: ValueKind.DAY, ValueKind.MOMENT: ValueKind.INSTANT}
_NAME = re.compile(r"`((?:[^`]|``)*)`")
_LABELLED = ("enum", "set")


def volatile(columns: Sequence[ColumnRow]) -> list[str]:
    """The virtual columns whose values may depend on the session, in order."""
    return [row.name for row in _unsure(columns) if row.generation == "v"]


def volatile_stored(columns: Sequence[ColumnRow]) -> list[str]:
    """The stored columns whose values may change if a session has the table copied, in order."""
    return [row.name for row in _unsure(columns) if row.generation == "s"]


def _unsure(columns: Sequence[ColumnRow]) -> list[ColumnRow]:
    """The generated columns that are not known to be safe, and those that are computed from such a column."""
    unsure: set[str] = set()
    kinds = {row.name.lower(): kind for row in columns if (kind := _kind(row)) is not None}
    generated = [row for row in columns if row.generation]
    while more := [row for row in generated if row.name not in unsure and not _is_sure(row, kinds, columns)]:
        unsure |= {row.name for row in more}
        # All readers of a stored column see the same value.
        kinds = {
            name: kind
            for name, kind in kinds.items()
            if name not in {row.name.lower() for row in more if row.generation == "v"}
        }
    return [row for row in generated if row.name in unsure]


def _kind(row: ColumnRow) -> ValueKind | None:
    kind = _KINDS.get(row.data_type)
    if row.data_type in _WHOLE and "unsigned" in row.column_type:
        return ValueKind.UNSIGNED
    return _MADE.get(kind, kind) if kind and row.generation == "v" else kind


def _is_sure(row: ColumnRow, kinds: Mapping[str, ValueKind], columns: Sequence[ColumnRow]) -> bool:
    target = ValueKind.TEXT if row.data_type == "char" else _KINDS.get(row.data_type)
    if target is None or row.data_type in _LABELLED:
        return False
    try:
        check(kind_of(row.expression, kinds), _TAKES[target])
    except UnknownValue:
        return False
    return target not in (ValueKind.MOMENT, ValueKind.TIME) or (row.fraction or 0) >= _finest(row, columns)


def _finest(row: ColumnRow, columns: Sequence[ColumnRow]) -> int:
    """The most digits of a second in a column's inputs: without room, the mode decides to cut or to round."""
    names = {name.replace("``", "`").lower() for name in _NAME.findall(row.expression)}
    moments = (each for each in columns if each.data_type in ("datetime", "time"))
    return max((each.fraction or 0 for each in moments if each.name.lower() in names), default=0)
