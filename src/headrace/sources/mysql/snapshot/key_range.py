"""Keys as the server reads them: the literals of single keys, and the bounds of ranges at keys of the lake.

The text of a key is the one that `sources.mysql.values` prints. A literal takes the type of its column, whose
collation decides what is equal: where that finds more than one text alike, the text itself is compared, too.

Called by `reader`, and by who knows keys of the lake.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pyarrow as pa

from headrace.core.chunks import Bound
from headrace.core.keycode import keycode
from headrace.core.schema import Column, TableSchema
from headrace.sources.contract.copying import Key
from headrace.sources.mysql.session.statements import literal, quoted
from headrace.sources.mysql.values import printed

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_FLOAT = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?")
_NUMBERS = frozenset(("int", "decimal", "digits", "year", "bit"))
_TEXTS = frozenset(("text", "enum", "set"))


def bounds(schema: TableSchema, keys: pa.Table) -> list[Bound] | None:
    """The bounds at these keys, as the lake has them; None where the source could not read one."""
    columns = [keys.column(name) for name in schema.key]
    codes = keycode(columns).to_pylist()
    texts = zip(*(printed(column.combine_chunks()).to_pylist() for column in columns), strict=True)
    found = [Bound(tuple(row), code) for row, code in zip(texts, codes, strict=True)]
    return None if any(text is None for bound in found for text in bound.texts) else found


def where(schema: TableSchema, keys: Sequence[Key]) -> str:
    """The condition of the rows with these keys."""
    columns = [next(each for each in schema.columns if each.name == name) for name in schema.key]
    return " OR ".join(f"({' AND '.join(_equal(columns, key))})" for key in keys)


def _equal(columns: Sequence[Column], key: Key) -> Iterable[str]:
    for column, text in zip(columns, key, strict=True):
        name = quoted(column.name)
        yield f"{name} = {_spelled(column, text)}"
        if column.form.partition("(")[0] in _TEXTS:
            # The key's index has found all that the column's collation calls equal.
            yield f"CAST(CONVERT({name} USING utf8mb4) AS BINARY) = {literal(text.encode())}"


def _spelled(column: Column, text: str) -> str:
    form = column.form.partition("(")[0]
    if form in _NUMBERS and _NUMBER.fullmatch(text):
        return f"({text})"
    if form == "float" and _FLOAT.fullmatch(text):
        return f"CAST({literal(text)} AS DOUBLE)"
    if form == "bytes":
        return literal(bytes.fromhex(text.removeprefix("0x")))
    return literal(text)
