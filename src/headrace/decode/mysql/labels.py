"""ENUM and SET of a row event: a number, or bits, and the labels that the table map names.

    ENUM    its label's number from 1, little endian; 0 is the error value, which prints as the empty text
    SET     a bit for each label, little endian

Labels come in the column's charset, and are decoded once for a layout. A number without a label is no value
of the column, and bad.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.decode.kernel import Ints
from headrace.decode.mysql import charsets
from headrace.decode.mysql.numbers import read_unsigned
from headrace.decode.mysql.table_map import LayoutColumn
from headrace.decode.text import TEXT, TextColumn
from headrace.decode.values.outcome import DecodedColumn


def enums(column: TextColumn, layout: LayoutColumn, charset: str | None) -> DecodedColumn:
    """Form `enum`."""
    numbers = read_unsigned(column, layout.width)
    labels = pa.array(["", *_labels(layout, charset)], pa.string())
    known = (column.kinds == TEXT) & (numbers < len(labels))
    rows = pa.array(np.where(known, numbers, 0).astype(np.int64), mask=~known)
    return _label_column(labels.take(rows), column)


def sets(column: TextColumn, layout: LayoutColumn, charset: str | None) -> DecodedColumn:
    """Form `set`."""
    bits, numbers = np.unique(read_unsigned(column, layout.width), return_inverse=True)
    labels = _labels(layout, charset)
    texts = pa.array([_set(int(each), labels) for each in bits], pa.string())
    there = column.kinds == TEXT
    return _label_column(texts.take(pa.array(numbers.astype(np.int64), mask=~there)), column)


def number_text(value: bytes, digits: int) -> str:
    """A number that has no label."""
    return str(int.from_bytes(value, "little"))


def _labels(layout: LayoutColumn, charset: str | None) -> list[str | None]:
    return [charsets.decode_one(label, charset) for label in layout.labels]


def _set(bits: int, labels: list[str | None]) -> str | None:
    if bits >> len(labels):
        return None
    chosen = [label for i, label in enumerate(labels) if bits >> i & 1]
    return None if None in chosen else ",".join(map(str, chosen))


def _label_column(array: pa.Array, column: TextColumn) -> DecodedColumn:
    missing: npt.NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    bad: Ints = np.flatnonzero(missing & (column.kinds == TEXT))
    return DecodedColumn(array, bad)
