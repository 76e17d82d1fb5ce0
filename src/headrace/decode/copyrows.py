"""COPY's text as rows of the lake, and the texts of values that the lake's types cannot hold.

    COPY text ─ copytext ─► texts, column by column ─ values ─► rows as the lake types them
                                                          └───► Unrepresentable: NULL there, its text here

A copy, a proof and the bound of a chunk all turn the source's rows into rows of the lake by this module, so
that equal rows are equal to all three. Pure. The caller decides which columns must not lose a value (keys,
those of a strict table).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.core.schema import Column
from headrace.decode import copytext
from headrace.decode.kernel import Bytes, Ints
from headrace.decode.text import TextColumn
from headrace.decode.values import DecodedColumn, decode_column, raw


@dataclass(frozen=True, slots=True)
class Unrepresentable:
    """The values of one column that its lake type cannot hold."""

    column: int
    rows: Ints
    texts: Any  # the source's text, one for each of these rows


@dataclass(frozen=True, slots=True)
class CopiedRows:
    """A piece of COPY's text, decoded."""

    rows: pa.Table
    unrepresentable: tuple[Unrepresentable, ...]  # in the order of their columns

    def those(self, values: Unrepresentable) -> pa.Table:
        """The rows that have these values."""
        return self.rows.take(pa.array(values.rows))


def decode(data: Bytes, columns: Sequence[Column]) -> CopiedRows:
    """Decode a buffer of whole lines, which hold these columns and no others."""
    texts = copytext.text_columns(data, len(columns))
    decoded = [decode_column(text, c.form, c.type) for text, c in zip(texts, columns, strict=True)]
    return of_columns(columns, texts, decoded)


def of_columns(
    columns: Sequence[Column], texts: Sequence[TextColumn], values: Sequence[DecodedColumn]
) -> CopiedRows:
    """Put decoded columns together, with the texts of the values that the lake can't hold."""
    schema = pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in columns])
    return CopiedRows(
        pa.Table.from_arrays([each.array for each in values], schema=schema),
        tuple(
            Unrepresentable(number, each.bad, raw(text, each.bad))
            for number, (text, each) in enumerate(zip(texts, values, strict=True))
            if len(each.bad)
        ),
    )
