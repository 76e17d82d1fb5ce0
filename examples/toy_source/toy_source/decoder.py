"""Bytes of the stream: a line of JSON each, decoded where a task needs them.

{"time": 336, "number": 42, "at": 1764000000000000}     a batch of changes that were seen together
{"change": 41, "relation": 1, "old": null, "new": [1, "a"]}
{"change": 42, "relation": 1, "old": [1, "a"], "new": [1, "b"]}
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headrace.core.change_batch import BAD, TIMESTAMP, Image, Op, change_schema
from headrace.core.errors import ShapeChanged
from headrace.core.records import from_record, to_record
from headrace.core.schema import Column
from headrace.core.transaction_id import TransactionId
from headrace.core.truncation import Truncations
from headrace.sources.contract.decoder import (
    Bytes,
    Context,
    SelectedBytes,
    TableChanges,
    TableFailure,
    TableFilter,
)
from headrace.sources.contract.values import Json

CASTS = {"INTEGER": "bigint", "TEXT": "string"}
Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToyContext:
    """The batch in whose middle bytes begin."""

    time: int = 0
    number: int = 0
    at: int = 0


@dataclass(frozen=True, slots=True)
class ToyDecoder:
    """Lines to changes. It has no state: it pickles into any task."""

    transaction_id: ClassVar[None] = None  # nobody asks a file for a transaction by its number
    running: ClassVar[None] = None  # a change is in the file once it has committed
    statements: ClassVar[None] = None  # no trigger runs on DDL

    @property
    def names(self) -> TransactionId:
        return TransactionId.XID

    def between(self, layouts: Iterable[bytes]) -> ToyContext:
        return ToyContext()

    def restore(self, record: Json) -> ToyContext:
        return from_record(ToyContext, record)

    def split(self, data: Bytes, context: Context) -> tuple[int, ToyContext]:
        whole = data.tobytes().rpartition(b"\n")
        for batch, _ in _lines(data, context):
            context = batch
        assert isinstance(context, ToyContext)
        return len(whole[0]) + len(whole[1]), context

    def select(self, data: Bytes, context: Context, tables: Collection[int]) -> SelectedBytes | None:
        found = [(batch, line) for batch, line in _lines(data, context) if line.get("relation") in tables]
        if not found:
            return None
        heads = {batch.time: to_record(batch) for batch, _ in found}
        lines = [
            each for batch in heads for each in (heads[batch], *(li for b, li in found if b.time == batch))
        ]
        return SelectedBytes(
            data=encode(lines),
            context=context,
            tables=frozenset(line["relation"] for _, line in found),
            changes=len(found),
            truncates=False,
        )

    def truncations(self, data: Bytes, context: Context, tables: Mapping[int, int]) -> dict[int, Truncations]:
        return dict[int, Truncations]()  # SQLite has no TRUNCATE: DELETE says which rows

    def decode(
        self, data: Bytes, context: Context, tables: Mapping[int, TableFilter]
    ) -> Iterator[TableChanges | TableFailure]:
        rows: dict[int, list[tuple[ToyContext, Line]]] = {}
        for batch, line in _lines(data, context):
            number = line.get("relation", -1)
            if number in tables and batch.time >= max(tables[number].since, tables[number].history_start):
                rows.setdefault(number, []).append((batch, line))
        for number, found in rows.items():
            yield _changes(number, tables[number], found)

    def print_values(self, values: pa.Array) -> pa.Array:
        return values.cast(pa.string())

    def cast(self, column: Column, text: str) -> str:
        return f"CAST({text} AS {CASTS[column.source_type]})"


def encode(lines: Iterable[Line]) -> Bytes:
    return np.frombuffer(b"".join(json.dumps(line).encode() + b"\n" for line in lines), np.uint8)


def _lines(data: Bytes, context: Context) -> Iterator[tuple[ToyContext, Line]]:
    """The whole lines, each with the batch that it is in."""
    assert isinstance(context, ToyContext)
    for text in data.tobytes().split(b"\n")[:-1]:
        line = json.loads(text)
        if "time" in line:
            context = ToyContext(**line)
        yield context, line


def _changes(
    number: int, wanted: TableFilter, found: list[tuple[ToyContext, Line]]
) -> TableChanges | TableFailure:
    schema, width = wanted.schema, len(wanted.schema.columns)
    nothing = [None] * width
    sides = {side: [line[side] or nothing for _, line in found] for side in ("new", "old")}
    if any(len(row) != width for side in sides.values() for row in side):
        return TableFailure(
            number,
            ShapeChanged(
                "TABLE_ALTERED",
                f"{wanted.name} does not have the columns that were recorded",
                hint=f"headrace tables resync {wanted.name}",
            ),
        )
    columns = [
        pa.array([row[place] for row in sides[side]], column.type)
        for side in ("new", "old")
        for place, column in enumerate(schema.columns)
    ]
    had = [line["old"] is not None for _, line in found]
    ops = [Op.DELETE if line["new"] is None else Op.UPDATE if line["old"] else Op.INSERT for _, line in found]
    meta = [
        pa.array([batch.time for batch, _ in found], pa.int64()),
        pa.array([line["change"] for _, line in found], pa.int64()),
        pa.array([batch.number for batch, _ in found], pa.int64()),
        pa.array([batch.at for batch, _ in found], TIMESTAMP),
        pa.array(ops, pa.uint8()),
        pa.array([Image.FULL if whole else Image.NONE for whole in had], pa.uint8()),
    ]
    batch = pa.RecordBatch.from_arrays([*meta, *columns], schema=change_schema(schema))
    return TableChanges(number, batch, BAD.empty_table())
