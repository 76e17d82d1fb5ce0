"""The check that enum values in rows of a stream or a copy are labels that the table's record has.

A label may be added after a look, used, and renamed before the next look. Then neither look shows that a
label was altered, but the stream has rows with its first name. Rows with unknown labels are a failure: they
are decoded again with the labels of the next look. A copy may read such a label too; it is read again after
the next look.
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

Values = Any  # an array or a chunked array

_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^{},"]+)', re.DOTALL)


def stand(batch: pa.RecordBatch, bad: pa.Table, details: Mapping[str, Any]) -> bool:
    """Tell whether all enum values of these rows are recorded labels."""
    return all(
        _are(labels, (batch.column(f"{side}{number}") for side in ("n", "o")), _texts(bad, number))
        for number, labels in enumerate(labels_of(details))
        if labels is not None
    )


def stand_copied(rows: CopiedRows, details: Mapping[str, Any]) -> bool:
    """Tell whether all enum values of copied rows are recorded labels; a copy may lack some columns."""
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
    """Yield the labels in columns of labels or of lists of labels, and in the texts `raw`."""
    for values in columns:
        flat = pc.list_flatten(values) if pa.types.is_list(values.type) else values
        yield from pc.unique(flat).to_pylist()
    # A list of lists has no lake form, so its text is kept as the server prints it.
    for text in raw:
        yield from _elements(str(text))


def _texts(bad: pa.Table, number: int) -> Iterable[Any]:
    found: Iterable[Any] = pc.unique(bad.filter(pc.equal(bad["column"], number))["raw"]).to_pylist()
    return found


def _elements(text: str) -> Iterator[str | None]:
    """The elements of an array of any depth, from the server's text; bounds may precede it."""
    for quoted, plain in _ELEMENT.findall(text, text.index("{")):
        yield (
            (None if plain == "NULL" else plain)
            if plain
            else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        )


def renamed_error(table: TableName, time: int) -> Definite:
    """The failure of a table whose rows have unknown labels."""
    return ShapeChanged(
        "TABLE_ALTERED",
        f"{table} had a value of an enum that is none of its labels any more",
        detail=f"seen in the transaction of _time {time}, or behind it",
        hint=f"headrace tables resync {table}",
    )
