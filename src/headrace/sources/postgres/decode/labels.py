"""Labels of enums, in rows of a stream or a copy: whether those that were met are labels still.

A label that was added since the last look, used, and renamed before the next one is known to no look: both
show labels of which none was altered. The stream has the rows under the first name. Those that the next look
knows are decoded again. A copy may meet such a one as well: what it read is read again, once a look knows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.errors import Definite, ShapeChanged
from headrace.core.names import TableName
from headrace.decode.copyrows import CopiedRows
from headrace.sources.postgres.catalog.table_def import labels_of, mirrored_columns

Values = Any  # an array, or one in chunks

_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^{},"]+)', re.DOTALL)


def stand(batch: pa.RecordBatch, bad: pa.Table, details: Mapping[str, Any]) -> bool:
    """Tell whether the enums of these rows are labels of the table as it is recorded."""
    return all(
        _are(labels, (batch.column(f"{side}{number}") for side in ("n", "o")), _texts(bad, number))
        for number, labels in enumerate(labels_of(details))
        if labels is not None
    )


def stand_copied(rows: CopiedRows, details: Mapping[str, Any]) -> bool:
    """Tell whether the enums of copied rows are recorded labels; a copy may have only some of the columns."""
    known = labels_of(details)
    if not known:
        return True
    names = [attribute["name"] for attribute in mirrored_columns(details)]
    texts = {each.column: each.texts for each in rows.unrepresentable}
    return all(
        _are(labels, [rows.rows.column(place)], texts.get(place, ()))
        for name, labels in zip(names, known, strict=True)
        if labels is not None and (place := rows.rows.schema.get_field_index(name)) >= 0
    )


def _are(labels: Iterable[str], columns: Iterable[Values], raw: Iterable[Any]) -> bool:
    return set(_labels_in(columns, raw)) <= {*labels, None}


def _labels_in(columns: Iterable[Values], raw: Iterable[Any]) -> Iterator[str | None]:
    """The labels in columns whose values are labels, or lists of them."""
    for values in columns:
        flat = pc.list_flatten(values) if pa.types.is_list(values.type) else values
        yield from pc.unique(flat).to_pylist()
    # A list of lists has no lake form, and is kept as the server prints it.
    for text in raw:
        yield from _elements(str(text))


def _texts(bad: pa.Table, number: int) -> Iterable[Any]:
    found: Iterable[Any] = pc.unique(bad.filter(pc.equal(bad["column"], number))["raw"]).to_pylist()
    return found


def _elements(text: str) -> Iterator[str | None]:
    """The elements of an array of any depth, as the server prints it; bounds may stand before it."""
    for quoted, plain in _ELEMENT.findall(text, text.index("{")):
        yield (
            (None if plain == "NULL" else plain)
            if plain
            else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        )


def renamed_error(table: TableName, time: int) -> Definite:
    """The failure of a table whose rows have other labels."""
    return ShapeChanged(
        "TABLE_ALTERED",
        f"{table} had a value of an enum that is none of its labels any more",
        detail=f"seen in the transaction of _time {time}, or behind it",
        hint=f"headrace tables resync {table}",
    )
