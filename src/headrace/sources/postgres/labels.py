"""Labels of enums, in rows of a stream: whether those that were met are labels still.

A label that was added since the last look, used, and renamed before the next one is known to no look: both
show labels of which none was altered. The stream has the rows under the first name. Those that the next look
knows are decoded again. Called by the decoders of streams, PostgreSQL's and the queue's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.errors import Definite, ShapeChanged
from headrace.core.names import TableName
from headrace.sources.postgres.catalog.table_def_record import labels_of

_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^{},"]+)', re.DOTALL)


def stand(batch: pa.RecordBatch, bad: pa.Table, details: Mapping[str, Any]) -> bool:
    """Tell whether the enums of these rows are labels of the table as it is recorded."""
    return all(
        set(_met(batch, bad, number)) <= {*labels, None}
        for number, labels in enumerate(labels_of(details))
        if labels is not None
    )


def _met(batch: pa.RecordBatch, bad: pa.Table, number: int) -> Iterator[str | None]:
    """The labels in a column whose values are labels, or lists of them."""
    for side in ("n", "o"):
        values = batch.column(f"{side}{number}")
        yield from pc.unique(values.flatten() if pa.types.is_list(values.type) else values).to_pylist()
    # A list of lists has no lake form, and is kept as the server prints it.
    for raw in pc.unique(bad.filter(pc.equal(bad["column"], number))["raw"]).to_pylist():
        yield from _elements(raw)


def _elements(text: str) -> Iterator[str | None]:
    """The elements of an array of any depth, as the server prints it; bounds may stand before it."""
    for quoted, plain in _ELEMENT.findall(text, text.index("{")):
        yield (
            (None if plain == "NULL" else plain)
            if plain
            else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        )


def renamed(table: TableName, time: int) -> Definite:
    """The failure of a table whose rows have other labels."""
    return ShapeChanged(
        "TABLE_ALTERED",
        f"{table} had a value of an enum that is none of its labels any more",
        detail=f"seen in the transaction of _time {time}, or behind it",
        hint=f"headrace tables resync {table}",
    )
