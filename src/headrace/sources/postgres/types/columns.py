"""Types: from PostgreSQL's catalog to a column of the lake.

The catalog calls `column_of` once when a table is chosen. The answer is recorded with the table and never
recomputed, so a value that comes years later is decoded as the first one was.

    bool                        bool            bool
    smallint int bigint oid     int16..64       int        (oid is unsigned: int64)
    real double precision       float32/64      float
    numeric(p,s), 0<=s<=p<=38   decimal128      decimal    (any other numeric is text)
    bytea                       binary          bytea
    date                        date32          date
    timestamp, timestamptz      timestamp[us]   timestamp, timestamptz
    T[]                         list of T       array(form of T)
    everything else             string          text       (as the server prints it)

A domain becomes its base type, with the domain's type modifier. Arrays are one-dimensional lists; the decoder
reports deeper arrays as values that the type can't hold. A type whose arrays are not separated by commas
(box) keeps its arrays as text.

All columns are nullable in the lake, whatever the source's constraints are: a value that the lake's type
can't hold becomes NULL there and a row of the errors table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.core.records import on_disk
from headrace.core.schema import Column

# The oids of built-in types are fixed for ever (pg_type.dat).
_BUILT_IN: Mapping[int, tuple[pa.DataType, str]] = {
    16: (pa.bool_(), "bool"),
    21: (pa.int16(), "int"),
    23: (pa.int32(), "int"),
    20: (pa.int64(), "int"),
    26: (pa.int64(), "int"),
    700: (pa.float32(), "float"),
    701: (pa.float64(), "float"),
    17: (pa.binary(), "bytea"),
    1082: (pa.date32(), "date"),
    1114: (pa.timestamp("us"), "timestamp"),
    1184: (pa.timestamp("us", tz="UTC"), "timestamptz"),
}
_NUMERIC = 1700
_TEXT: tuple[pa.DataType, str] = (pa.string(), "text")
_MOST_DIGITS = 38

# The values that make a column of this form a doubtful key: the source may hold them, but the column's lake
# type has no value for them, or more than one.
_DOUBTFUL_KEYS: Mapping[str, str] = {
    "decimal": "NaN",
    "date": "infinity",
    "timestamp": "infinity",
    "timestamptz": "infinity",
    "float": "NaN and -0",
}


CHARACTER = 1042  # char(n): the server pads its values, and ignores the padding when it compares them
# The types whose equal values have equal texts: smallint, int, bigint, text, varchar, char(n), date, uuid.
HASHABLE = frozenset((21, 23, 20, 25, 1043, CHARACTER, 1082, 2950))


@dataclass(frozen=True, slots=True)
class TypeEntry:
    """The catalog's facts on a user-defined type, as far as they decide how values print."""

    oid: int
    kind: str  # pg_type.typtype: b base, c composite, d domain, e enum, r range, m multirange, p pseudo
    base: int = 0  # of a domain
    base_typmod: int = -1
    element: int = 0  # of a true array
    delimiter: str = ","  # between the elements of the array
    subtype: int = 0  # of a range or a multirange
    labels: tuple[str, ...] = ()  # of an enum, in order
    attributes: tuple[tuple[int, str, int, int], ...] = ()  # of a composite: number, name, type, typmod
    # These distinguish types that look alike; None in an older record.
    # Of an enum: each label's oid, and the transaction that wrote its row.
    label_lives: tuple[str, ...] | None = field(default=None, metadata=on_disk(optional=True))
    # Of a composite: its attributes, counting those that were dropped.
    width: int | None = field(default=None, metadata=on_disk(optional=True))
    # As in `table_def.TableEntry`.
    replacing: frozenset[int] = field(default=frozenset(), compare=False, metadata=on_disk(outside=True))
    # One statement wrote everything that decides how its values print.
    as_made: bool = field(default=True, compare=False, metadata=on_disk(outside=True))


def column_of(
    name: str, type_oid: int, typmod: int, printed_type: str, types: Mapping[int, TypeEntry]
) -> Column:
    """The lake's column for a column of this type; `printed_type` is the type as the server prints it."""
    arrow, form = form_of(type_oid, typmod, types)
    return Column(name=name, type=arrow, form=form, source_type=printed_type)


def form_of(type_oid: int, typmod: int, types: Mapping[int, TypeEntry]) -> tuple[pa.DataType, str]:
    """The Arrow type and the decoder's form of a type; `types` holds the types that are not built in."""
    while (domain := types.get(type_oid)) is not None and domain.kind == "d":
        type_oid, typmod = domain.base, domain.base_typmod
    if type_oid == _NUMERIC:
        return _numeric(typmod)
    if type_oid in _BUILT_IN:
        return _BUILT_IN[type_oid]
    entry = types.get(type_oid)
    if entry is not None and entry.element and entry.delimiter == ",":
        arrow, form = form_of(entry.element, typmod, types)
        if pa.types.is_list(arrow):  # an array of a domain over an array prints its elements quoted
            arrow, form = _TEXT
        return pa.list_(arrow), f"array({form})"
    return _TEXT


# Types whose text is the same under every type modifier: it only limits the values that may be stored.
_LIMITED = frozenset((1083, 1114, 1184, 1186, 1266, 1562))  # times and timestamps, interval, varbit
_TEXTS = frozenset((25, 1043))  # text, varchar


def is_same_form(before: tuple[int, int], after: tuple[int, int]) -> bool:
    """Tell whether stored values print alike, and are decoded alike, under two types (oid and modifier).

    This is about values that the server keeps when it alters a column's type. If it rewrites the table,
    values may change, and the look at the catalog shows that.
    """
    if before == after or {before[0], after[0]} <= _TEXTS:
        return True
    if before[0] != after[0]:
        return False
    return before[0] in _LIMITED or (before[0] == _NUMERIC and _numeric(before[1]) == _numeric(after[1]))


def is_wider(before: tuple[int, int], after: tuple[int, int]) -> bool:
    """Tell whether the second is a number with the same scale and at least the same precision."""
    if not (before[0] == after[0] == _NUMERIC):
        return False
    (old, old_form), (new, new_form) = _numeric(before[1]), _numeric(after[1])
    decimals = pa.types.is_decimal(old) and pa.types.is_decimal(new) and old_form == new_form
    return decimals and old.scale == new.scale and old.precision <= new.precision


def enum_of(type_oid: int, types: Mapping[int, TypeEntry]) -> TypeEntry | None:
    """The enum of a column that holds only its labels, single or in a list; None for any other column."""
    known, depth = types.get(type_oid), 0
    while known is not None and (known.base or known.element):
        depth += bool(known.element)
        known = types.get(known.base or known.element)
    return known if known is not None and known.kind == "e" and depth < 2 else None


def _numeric(typmod: int) -> tuple[pa.DataType, str]:
    if typmod < 0:
        return _TEXT
    precision = ((typmod - 4) >> 16) & 0xFFFF
    # Eleven bits, signed, since PostgreSQL 15.
    scale = (((typmod - 4) & 0x7FF) ^ 1024) - 1024
    if precision <= _MOST_DIGITS and 0 <= scale <= precision:
        return pa.decimal128(precision, scale), "decimal"
    return _TEXT


def doubtful_key(column: Column) -> str | None:
    """The values that make a key column of this form doubtful; None if there are none."""
    return _DOUBTFUL_KEYS.get(column.form)
