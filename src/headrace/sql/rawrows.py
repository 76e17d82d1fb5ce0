"""A source as a relation: one row for each row of each of its tables, as text, as the source prints it.

    oid      BIGINT           of the table, at the source
    row_data ARRAY<STRING>    the row's values in the order of the table's columns, NULL where they are NULL

All tables are at the cut's one place. A value that its lake type cannot hold is here in full: its text comes
from `errors/`, by the row's key. In a table without a key, rows that are alike but for such values are told
apart by nothing but those texts: each text is given to one of them.

Values are printed by Spark's tasks (`decode.printing`); a condition on `oid` leaves out the other tables
before any of their files is opened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.core.schema import TableSchema
from headrace.decode.printing import printed
from headrace.lake import catalog, datafile, errors_table, layout
from headrace.lake.cut import Cut
from headrace.lake.frames import own_python
from headrace.lake.standing import Name
from headrace.lake.store import Store
from headrace.pipeline.keytext import key_texts
from headrace.pipeline.records import TableRecord, tables_of

DDL = "oid BIGINT, row_data ARRAY<STRING>"
_ROW = pa.schema([pa.field("row_data", pa.list_(pa.string()))])


@dataclass(frozen=True)
class Printing:
    """One table, as its printing tasks need it."""

    schema: TableSchema
    columns: pa.Schema  # of the table at the cut
    texts: pa.Table  # key, column, raw, diff: what the lake's types could not hold


def relation(spark: Any, store: Store, cut: Cut, source: str) -> Any:
    """The source's rows as a DataFrame."""
    found = None
    for name in cut.standings.names():
        if name[0] == source:
            rows = _table(spark, store, cut, name)
            found = rows if found is None else found.unionAll(rows)
    return spark.createDataFrame([], DDL) if found is None else found


def record(store: Store, cut: Cut, name: Name) -> TableRecord:
    """What the catalog says of a table at the cut."""
    source, table = name
    epoch = cut.standings.of(name).shown.epoch
    return tables_of(catalog.load(store, source, epoch).records)[table]


def _table(spark: Any, store: Store, cut: Cut, name: Name) -> Any:
    source, table = name
    known = record(store, cut, name)
    frame = cut.table(spark, f"{source_quoted(source)}.{table}")
    texts = errors_table.standing(store, layout.errors_folder(source), table, cut.places[source].time)
    if texts.height and known.schema.is_multiset:
        # Which text is given to which of the rows that are alike must be decided in one place.
        frame = frame.coalesce(1)
    task = Printing(known.schema, cut.standings.schema(name), texts.to_arrow())
    # By number: Spark looks columns up by name here, and takes a dot in one for a path.
    frame = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
    with own_python(spark):
        rows = frame.mapInArrow(_mapper(task), "row_data ARRAY<STRING>")
    return rows.selectExpr(f"CAST({known.oid} AS BIGINT) AS oid", "row_data")


def source_quoted(source: str) -> str:
    """The source as the first part of a table's name."""
    return '"' + source.replace('"', '""') + '"'


def _mapper(task: Printing) -> Callable[[Any], Any]:
    return partial(_printed, task)


def _printed(task: Printing, batches: Iterator[Any]) -> Iterator[Any]:
    """Batches of the table's rows to batches of their texts; runs in a Python worker."""
    texts = _Texts.of(task)
    for batch in batches:
        rows = datafile.conform(
            pa.Table.from_batches([batch]).rename_columns(task.columns.names), task.columns
        )
        values = [printed(rows.column(column)) for column in task.columns.names]
        yield pa.RecordBatch.from_arrays([_across(texts.put(rows, values))], schema=_ROW)


@dataclass
class _Texts:
    """The texts that still wait for their row, by column and key."""

    task: Printing
    waiting: dict[str, dict[str, Counter[str]]]

    @classmethod
    def of(cls, task: Printing) -> _Texts:
        waiting: dict[str, dict[str, Counter[str]]] = {}
        for each in task.texts.to_pylist():
            by_key = waiting.setdefault(each["column"], {})
            by_key.setdefault(each["key"], Counter())[each["raw"]] += each["diff"]
        return cls(task, waiting)

    def put(self, rows: pa.Table, values: list[Any]) -> list[Any]:
        """The values, with texts where there was nothing to print."""
        if not self.waiting or not rows.num_rows:
            return values
        keys = key_texts(self.task.schema, rows)
        return [
            self._column(self.waiting[name], keys, texts) if name in self.waiting else texts
            for name, texts in zip(rows.column_names, values, strict=True)
        ]

    def _column(self, waiting: dict[str, Counter[str]], keys: pl.Series, texts: Any) -> Any:
        nulls = np.asarray(texts.is_null().to_numpy(zero_copy_only=False))
        asked = np.flatnonzero(nulls & keys.is_in(list(waiting)).to_numpy())
        if not len(asked):
            return texts
        shown = texts.to_pylist()
        for at in asked.tolist():
            left = waiting[keys[at]]
            text = next((raw for raw, copies in left.items() if copies), None)
            if text is not None:
                shown[at] = text
                left[text] -= 1
        return pa.array(shown, pa.string())


def _across(columns: list[Any]) -> Any:
    """Columns to rows: a list of all columns' values for each row."""
    width, height = len(columns), len(columns[0])
    order = np.arange(width * height).reshape(width, height).T.ravel()
    flat = pa.concat_arrays(columns).take(pa.array(order))
    offsets = np.arange(height + 1, dtype=np.int32) * width
    return pa.ListArray.from_arrays(pa.array(offsets), flat)
