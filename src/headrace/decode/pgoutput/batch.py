"""Change batches: the messages of one relation version as Arrow, in the shape of `core.change_batch`.

The caller has split a segment by relation and relation version, and knows the transaction of each message
(`PgoutputChangeMeta`). The batch adds the operation (`_op`), how much of the old row there is (`_image`), and
the old and new rows, decoded column by column with the snapshot's decoders.

A column of the schema that no position names has one value in every row, usually NULL: the caller has decided
that the relation may lack the column, and gives the value. Values that the lake's types can't hold are NULL
in the batch and rows of `bad`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.change_batch import BAD, TIMESTAMP, Image, Op, bad_values, change_schema
from headrace.core.columns import Flags
from headrace.core.schema import Column, TableSchema
from headrace.decode.kernel import Bytes, Ints
from headrace.decode.pgoutput.framing import DELETE, INSERT, UPDATE, Messages
from headrace.decode.pgoutput.tuples import Side, tuples
from headrace.decode.text import TEXT, UNCHANGED
from headrace.decode.values import decode_column, raw

_OPS = np.zeros(256, np.uint8)
_OPS[[INSERT, UPDATE, DELETE]] = Op.INSERT, Op.UPDATE, Op.DELETE


@dataclass(frozen=True, slots=True)
class PgoutputChangeMeta:
    """The facts of each message that come from its transaction."""

    time: Ints
    ordinal: Ints
    xid: Ints
    commit_ts: Ints  # microseconds since 1970


@dataclass(frozen=True, slots=True)
class PgoutputChanges:
    """A change batch, and the values that it could not hold."""

    batch: Any
    bad: Any


def changes(
    data: Bytes,
    messages: Messages,
    positions: Ints,
    schema: TableSchema,
    meta: PgoutputChangeMeta,
    values: Mapping[int, pa.Scalar] | None = None,
) -> PgoutputChanges:
    """Decode I, U and D messages of one relation version.

    `positions[i]` is the schema's position of the relation's column `i`, or -1 if it is not mirrored.
    `values` are the values of columns that no position names, by the schema's position.
    """
    found = tuples(data, messages, positions, len(schema.columns))
    new, new_bad = _decode(found.new, "n", data, schema, meta)
    old, old_bad = _decode(found.old, "o", data, schema, meta)
    for position, value in (values or {}).items():
        new[position] = _repeat(value, messages.kind != DELETE)
        old[position] = _repeat(value, found.image == Image.FULL)
    unchanged = [(i, kinds == UNCHANGED) for i, kinds in enumerate(found.new.kinds)]
    holes = {i: pa.array(flags) for i, flags in unchanged if flags.any()}
    arrays = [
        pa.array(meta.time, pa.int64()),
        pa.array(meta.ordinal, pa.int64()),
        pa.array(meta.xid, pa.int64()),
        pa.array(meta.commit_ts, pa.int64()).view(TIMESTAMP),
        pa.array(_OPS[messages.kind]),
        pa.array(found.image),
        *new,
        *old,
        *holes.values(),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=change_schema(schema, tuple(holes)))
    return PgoutputChanges(batch, pa.concat_tables([BAD.empty_table(), *new_bad, *old_bad]))


def _decode(
    side: Side, name: str, data: Bytes, schema: TableSchema, meta: PgoutputChangeMeta
) -> tuple[list[Any], list[Any]]:
    """The columns of one side, and the tables of their bad values."""
    arrays: list[Any] = []
    bad: list[Any] = []
    for position, column in enumerate(schema.columns):
        array, rejected = _column(side, position, column, data)
        arrays.append(array)
        bad.extend(
            bad_values(name, position, texts, meta.time[rows], meta.ordinal[rows]) for rows, texts in rejected
        )
    return arrays, bad


def _column(side: Side, position: int, column: Column, data: Bytes) -> tuple[Any, list[tuple[Ints, Any]]]:
    text = side.column(position, data)
    if not (text.kinds == TEXT).any():
        return pa.nulls(len(text), column.type), []
    decoded = decode_column(text, column.form, column.type)
    if not len(decoded.bad):
        return decoded.array, []
    return decoded.array, [(decoded.bad, raw(text, decoded.bad))]


def _repeat(value: pa.Scalar, there: Flags) -> Any:
    """Repeat one value in all rows that exist."""
    return pa.repeat(value, 1).take(pa.array(np.zeros(len(there), np.int64), mask=~there))
