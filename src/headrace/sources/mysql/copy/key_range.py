"""Keys as the server reads them: the literals of single keys, the bounds of ranges, and their conditions.

The text of a key is the one that `mysql.types.printing` prints. A literal takes the type of its column, whose
collation decides what is equal. If several texts are equal by collation, the text itself is compared too.

A range of keys is a range of the primary key, in types whose order is the same at the server and in the lake:
whole and decimal numbers, dates and times, bytes. For any other table `disorder` says why it has no ranges.

    (a, b) >= (1, 5)      a > 1 OR a = 1 AND b >= 5       the server finds no range in the former

A reader that goes on after a row (`beyond`) needs only the server's own order. The server sorts an ENUM by
the numbers of its labels but compares it by their letters. So the condition lists the labels that come later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from headrace.core.chunks import Bound, KeySpan
from headrace.core.keycode import keycode
from headrace.core.schema import Column, TableSchema
from headrace.sources.contract.copying import Key
from headrace.sources.mysql.catalog.table_def import CODES_ALIKE, LABEL, TableLook
from headrace.sources.mysql.session.statements import literal, quote
from headrace.sources.mysql.types.columns import base_of
from headrace.sources.mysql.types.printing import print_values

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_FLOAT = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?")
_NUMBERS = frozenset(("int", "decimal", "digits", "year", "bit"))
_TEXTS = frozenset(("text", "enum", "set"))
_ORDERED = frozenset(
    "tinyint smallint mediumint int bigint decimal date datetime timestamp binary varbinary".split()
)
_WALKABLE = frozenset(
    "int decimal digits bit year float date timestamp time text bytes enum uuid inet4 inet6".split()
)
_MOST_DIGITS = 38  # of a decimal that the lake has as a number


def bounds(schema: TableSchema, keys: pa.Table) -> list[Bound] | None:
    """The bounds at these keys, as the lake has them; None if the source could not read one."""
    columns = [keys.column(name) for name in schema.key]
    codes = keycode(columns).to_pylist()
    texts = zip(*(print_values(column.combine_chunks()).to_pylist() for column in columns), strict=True)
    found = [Bound(tuple(row), code) for row, code in zip(texts, codes, strict=True)]
    return None if any(text is None for bound in found for text in bound.texts) else found


def of_key(schema: TableSchema) -> list[Column]:
    """The columns of the key, in its order."""
    return [next(each for each in schema.columns if each.name == name) for name in schema.key]


def disorder(look: TableLook) -> str | None:
    """The reason why a table has no key ranges; None if it has them."""
    if not look.primary:
        return "it has no primary key"
    types = {row.name: (row.column_type, row.precision or 0) for row in look.columns}
    hashed = {row.name for row in look.columns if row.is_hashed}
    for name in look.key:
        if name in hashed:
            return f'its key column "{name}" is hashed'
        kind, digits = types[name]
        if base_of(kind) not in _ORDERED or (base_of(kind) == "decimal" and digits > _MOST_DIGITS):
            return f'its key column "{name}" is of type {kind}'
    return None if look.key else "its primary key does not tell rows apart in the lake"


def within(columns: Sequence[Column], spans: Sequence[KeySpan]) -> str:
    """The WHERE clause of the rows with keys in these spans; empty if a span has no limits."""
    conditions = [" AND ".join(_limits(columns, span)) for span in spans]
    return "" if "" in conditions else f" WHERE {' OR '.join(f'({each})' for each in conditions)}"


def _limits(columns: Sequence[Column], span: KeySpan) -> Iterator[str]:
    if span.one_key and span.low:
        yield " AND ".join(_equal(columns, span.low.texts))
        return
    if span.low:
        yield _beyond(columns, span.low.texts, ">", or_equal=not span.low.after)
    if span.high:
        yield _beyond(columns, span.high.texts, "<", or_equal=span.high.after)


def _beyond(columns: Sequence[Column], key: Key, sign: str, *, or_equal: bool) -> str:
    """The condition of the keys above or below this one."""
    compared = list(zip(columns, key, strict=True))
    steps = [
        " AND ".join(
            [*(f"{quote(c.name)} = {_spell(c, t)}" for c, t in compared[:n]), _passes(column, sign, text)]
        )
        for n, (column, text) in enumerate(compared)
    ]
    steps += [" AND ".join(_equal(columns, key))] if or_equal else []
    return f"({' OR '.join(steps)})"


def _passes(column: Column, sign: str, text: str) -> str:
    """The condition of the values above or below this one."""
    name = quote(column.name)
    if base_of(column.source_type) != "enum":
        return f"{name} {sign} {_spell(column, text)}"
    labels = _labels(column)
    number = labels.index(text) + 1 if text in labels else 0  # 0: the error value
    others = range(number + 1, len(labels) + 1) if sign == ">" else range(number)
    return f"{name} IN ({', '.join(map(str, others)) or 'NULL'})"


def beyond(columns: Sequence[Column], keys: pa.Table) -> str | None:
    """The condition of the rows after the one with this key; None if it can't be written.

    `keys` has the columns of the key and one row.
    """
    texts = [print_values(keys.column(c.name).combine_chunks()).to_pylist()[0] for c in columns]
    for column, text in zip(columns, texts, strict=True):
        is_label = base_of(column.source_type) == "enum"
        if text is None or (is_label and text not in ("", *_labels(column))):
            return None  # a value without a lake form, or a label that the catalog prints with escapes
    return _beyond(columns, tuple(texts), ">", or_equal=False)


def _labels(column: Column) -> list[str]:
    return [each[1:-1].replace("''", "'") for each in LABEL.findall(column.source_type)]


def walkable(column: Column) -> bool:
    """Tell whether rows can be read along this column of an index: each value must tell which rows follow.

    A text does not tell if other bytes mean the same text; nor does an empty label.
    """
    form, _, charset = column.form.rstrip(")").partition("(")
    if form == "enum" and "''" in LABEL.findall(column.source_type):
        return False
    return form in _WALKABLE and charset not in CODES_ALIKE


def where(schema: TableSchema, keys: Sequence[Key]) -> str:
    """The condition of the rows with these keys."""
    columns = of_key(schema)
    return " OR ".join(f"({' AND '.join(_equal(columns, key))})" for key in keys)


def _equal(columns: Sequence[Column], key: Key) -> Iterable[str]:
    for column, text in zip(columns, key, strict=True):
        name = quote(column.name)
        yield f"{name} = {_spell(column, text)}"
        if column.form.partition("(")[0] in _TEXTS:
            # The condition on the key finds all rows that are equal by collation; this one picks the row.
            yield f"CAST(CONVERT({name} USING utf8mb4) AS BINARY) = {literal(text.encode())}"


def _spell(column: Column, text: str) -> str:
    form = column.form.partition("(")[0]
    if form in _NUMBERS and _NUMBER.fullmatch(text):
        return f"({text})"
    if form == "float" and _FLOAT.fullmatch(text):
        return f"({literal(text)} * 1e0)"
    if form == "bytes":
        return literal(bytes.fromhex(text.removeprefix("0x")))
    return literal(text)
