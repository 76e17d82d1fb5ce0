"""Bytes of the stream: a line of JSON each, decoded where a task needs them.

{"time": 336, "number": 42, "at": 1764000000000000}     a batch of changes that were seen together
{"change": 41, "relation": 1, "old": null, "new": [1, "a"]}
{"change": 42, "relation": 1, "old": [1, "a"], "new": [1, "b"]}
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.change_batch import BAD, Image, Op, change_schema
from headrace.core.errors import Definite, ShapeChanged
from headrace.core.names import TableName
from headrace.core.records import from_record, to_record
from headrace.core.schema import Column
from headrace.sources.contract.decoder import (
    Bytes,
    Context,
    Decoder,
    SelectedBytes,
    TableChanges,
    TableFailure,
    TableFilter,
)
from headrace.sources.contract.values import Json

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToyContext:
    """The batch in whose middle bytes begin."""

    time: int = 0
    number: int = 0
    at: int = 0


class ToyDecoder(Decoder):
    """Lines to changes. It has no state: it pickles into any task."""

    def between(self, layouts: Iterable[bytes]) -> ToyContext:
        return ToyContext()

    def restore(self, record: Json) -> ToyContext:
        return from_record(ToyContext, record)

    def split(self, data: Bytes, context: Context) -> tuple[int, Context]:
        for context, _ in _lines(data, context):  # noqa: B007, B020 - the last one counts
            pass
        return data.tobytes().rfind(b"\n") + 1, context

    def select(self, data: Bytes, context: Context, tables: Collection[int]) -> SelectedBytes | None:
        found = [(batch, line) for batch, line in _lines(data, context) if line.get("relation") in tables]
        if not found:
            return None
        heads = {batch: [to_record(batch)] for batch, _ in found}
        for batch, line in found:
            heads[batch].append(line)
        lines = [json.dumps(line).encode() + b"\n" for each in heads.values() for line in each]
        return SelectedBytes(
            data=np.frombuffer(b"".join(lines), np.uint8),
            context=context,
            tables=frozenset(line["relation"] for _, line in found),
            changes=len(found),
            truncates=False,
        )

    def decode(
        self, data: Bytes, context: Context, tables: Mapping[int, TableFilter]
    ) -> Iterator[TableChanges | TableFailure]:
        rows: dict[int, list[tuple[ToyContext, Line]]] = {}
        for batch, line in _lines(data, context):
            table = tables.get(line.get("relation", -1))
            if table is not None and batch.time >= max(table.since, table.history_start):
                rows.setdefault(line["relation"], []).append((batch, line))
        for number, found in rows.items():
            try:
                yield TableChanges(number, _changes(tables[number], found), BAD.empty_table())
            except Definite as error:
                yield TableFailure(number, error)

    def print_values(self, values: pa.Array) -> pa.Array:
        return values.cast(pa.string())

    def cast(self, column: Column, text: str) -> str:
        return text if column.type == pa.string() else f"CAST({text} AS bigint)"


def _lines(data: Bytes, context: Context) -> Iterator[tuple[ToyContext, Line]]:
    """The whole lines, each with the batch that it is in."""
    assert isinstance(context, ToyContext)
    for text in data.tobytes().split(b"\n")[:-1]:
        line = json.loads(text)
        if "time" in line:
            context = ToyContext(**line)
        yield context, line


def _changes(table: TableFilter, found: Sequence[tuple[ToyContext, Line]]) -> pa.RecordBatch:
    sides = [(line["new"], line["old"]) for _, line in found]
    if {len(row) for side in sides for row in side if row is not None} != {len(table.schema.columns)}:
        raise ShapeChanged(
            "TABLE_ALTERED",
            f"{table.name} does not have the columns that were recorded",
            hint=f"headrace tables resync {table.name}",
        )
    records = []
    for batch, line in found:
        old, new = line["old"], line["new"]
        op = Op.DELETE if new is None else Op.INSERT if old is None else Op.UPDATE
        image = Image.NONE if old is None else Image.FULL
        head = {"_time": batch.time, "_ordinal": line["change"], "_transaction": batch.number}
        head |= {"_commit_ts": batch.at, "_op": op, "_image": image}
        values = {f"n{i}": value for i, value in enumerate(new or ())}
        records.append(head | values | {f"o{i}": value for i, value in enumerate(old or ())})
    return arrow(table.name, records, change_schema(table.schema)).combine_chunks().to_batches()[0]


def arrow(table: TableName, records: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Make an Arrow table of rows. SQLite lets a column hold what its type does not say: that is an error."""
    try:
        return pa.Table.from_pylist(records, schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise Definite(
            "TOY_VALUE",
            f"{table} has a value that is not of its column's type",
            hint=f"correct it, then: headrace tables resync {table}",
        ) from None
