"""A source as a relation: one row for each row of each of its tables, as text, as the source prints it.

    oid      BIGINT           of the table, at the source
    row_data ARRAY<STRING>    the row's values in the order of the table's columns, NULL where they are NULL

All tables are read at the cut's place in the source. A value that its lake type cannot hold is here in full:
its text comes from `errors/`, by the row's key. Each task reads only the texts of its own rows, a batch at a
time. In a table without a key, rows may differ in nothing but such values: then each of these rows gets one
of the texts.

A view that a user wrote names values by their index in the row. So its record holds the columns that each
table had when the view was written, and the view gets the values in that order, whatever columns were added
or moved since. A query ends with an error (`queries.Refusals`) as soon as it uses rows of a table that lacks
one of these columns, or that was not mirrored then. With or without a view, it also ends with an error if it
uses rows of a mirrored table that is not exact at the cut. A condition on `oid` that leaves such a table out
avoids these errors.

Spark's tasks print the values with the source's own decoder. A condition on `oid` leaves out the other tables
before any of their files is opened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.core.columns import across
from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.names import TableName, quote_identifier
from headrace.core.records import from_record
from headrace.core.schema import TableSchema
from headrace.core.spark_types import spark_type
from headrace.lake.format import datafile, layout
from headrace.lake.format.registry import Columns, RegisteredView
from headrace.lake.log import errors_table
from headrace.lake.read.cut import Cut
from headrace.lake.read.frames import own_python
from headrace.lake.read.intervals import Name
from headrace.lake.store.contract import Store
from headrace.pipeline.state.records import TABLE_PREFIX, TableRecord, source_of, tables_of
from headrace.pipeline.tasks.key_text import key_texts
from headrace.pipeline.tasks.table_task import LakeAddress
from headrace.sources import registry
from headrace.sources.contract.decoder import Decoder
from headrace.spark.queries import Refusals

DDL = "oid BIGINT, row_data ARRAY<STRING>"
_ROW = pa.schema([pa.field("row_data", pa.list_(pa.string()))])


@dataclass(frozen=True)
class TableRecords:
    """The catalog's record of a table at a cut, and the decoder of its source, which prints its values."""

    table: TableRecord
    decoder: Decoder


@dataclass(frozen=True)
class Printing:
    """All that a task needs to print rows of one table."""

    decoder: Decoder
    schema: TableSchema
    columns: pa.Schema  # of the table at the cut
    raw_columns: tuple[str, ...]  # the columns that may have texts in `errors/`
    lake: LakeAddress
    errors: str  # the folder
    table: TableName
    time: int

    def texts(self, keys: pl.Series) -> pl.DataFrame:
        """The texts of values that the lake's types could not hold, for the rows with these keys."""
        store = self.lake.open()
        return errors_table.standing(store, self.errors, self.table, self.time, keys)


@dataclass(frozen=True, slots=True)
class RowsRelation:
    """A source at a cut, and the view that reads it; None if a query reads it without a view."""

    store: Store
    cut: Cut
    source: str
    view: RegisteredView | None
    refusals: Refusals

    def frame(self, spark: Any) -> Any:
        """The source's rows as a DataFrame."""
        standings = self.cut.standings
        known = mirrored_tables(self.cut, self.source)
        names = {name for name in standings.list_tables() if name[0] == self.source}
        parts, numbers = [], {table.number for table in known.values()}
        for name in sorted(names | {(self.source, table) for table in known}):
            try:
                standings.of(name)
            except HeadraceError as error:
                if name[1] in known:
                    parts.append(self._absent(spark, known[name[1]].number, error))
                continue
            here = read_records(self.cut, name)
            numbers.add(here.table.number)
            parts.append(self._table(spark, name, here))
        for number, had in self._columns.items():
            if int(number) not in numbers:
                told = f"nothing that the source numbers {number} is mirrored here"
                parts.append(self._absent(spark, int(number), self._outdated_error(had["table"], told)))
        return reduce(lambda some, more: some.unionAll(more), parts, spark.createDataFrame([], DDL))

    def _table(self, spark: Any, name: Name, known: TableRecords) -> Any:
        if self.view is None:
            return _rows(spark, self.store, self.cut, name, known).select("oid", "row_data")
        had = self._columns.get(str(known.table.number))
        if had is None:
            return self._unreadable(spark, name, known, "it was not mirrored when the view was written")
        now = _columns(known.table.schema)
        gone = [column[0] for column in had["columns"] if column not in now]
        if gone:
            told = f'column "{gone[0]}" is gone, has another name or another type'
            return self._unreadable(spark, name, known, told)
        rows = _rows(spark, self.store, self.cut, name, known)
        places = ", ".join(f"row_data[{now.index(column)}]" for column in had["columns"])
        return rows.selectExpr("oid", f"array({places}) AS row_data")

    @property
    def _columns(self) -> Columns:
        return {} if self.view is None else self.view.columns.get(self.source, {})

    def _outdated_error(self, table: str, told: str) -> Misconfigured:
        assert self.view is not None
        return Misconfigured(
            "SQL_VIEW_OUTDATED",
            f'the view "{self.view.name}" was written for other columns of "{table}" than it has here',
            detail=told,
            hint=f"write it again by CREATE OR REPLACE VIEW {quote_identifier(self.view.name)} AS ...; "
            "headrace sql --at reads at an earlier mark",
        )

    def _unreadable(self, spark: Any, name: Name, known: TableRecords, told: str) -> Any:
        """The table's rows, with an error in place of their values."""
        raised = self.refusals.expression(self._outdated_error(str(name[1]), told))
        rows = self.cut.table(spark, f"{source_quoted(name[0])}.{name[1]}")
        return rows.selectExpr(_oid(known.table.number), f"CAST({raised} AS ARRAY<STRING>) AS row_data")

    def _absent(self, spark: Any, number: int, error: HeadraceError) -> Any:
        """One row in place of the table's rows; a query that evaluates it ends with the error."""
        row = spark.range(1).where(f"{self.refusals.expression(error)} IS NULL")
        return row.selectExpr(_oid(number), "CAST(NULL AS ARRAY<STRING>) AS row_data")


def mirrored_tables(cut: Cut, source: str) -> dict[TableName, TableRecord]:
    """The records of all tables that the source mirrors at the cut, exact there or not."""
    place, past = cut.places[source], cut.standings.pasts[source]
    mark = place.mark or past.first(place.time)
    return {} if mark is None else tables_of(past.records(mark))


def columns_of(cut: Cut, source: str) -> Columns:
    """The columns of the source's tables at the cut, in the form of a view's record."""
    known = (read_records(cut, name).table for name in cut.standings.names() if name[0] == source)
    return {
        str(table.number): {"table": str(table.name), "columns": _columns(table.schema)} for table in known
    }


def _columns(schema: TableSchema) -> list[list[str]]:
    """The name of each column, with its form and type, which decide how its values are printed."""
    return [[column.name, column.form, spark_type(column.name, column.type)] for column in schema.columns]


def _oid(number: int) -> str:
    return f"CAST({number} AS BIGINT) AS oid"


def read_records(cut: Cut, name: Name) -> TableRecords:
    """Read the catalog's records of a table at the cut."""
    source, table = name
    records = cut.standings.pasts[source].records(cut.standings.of(name).schema_mark)
    known = source_of(records)
    assert known is not None  # a table's record comes with its source's, or after it
    record = from_record(TableRecord, records[f"{TABLE_PREFIX}{table}"])
    return TableRecords(record, registry.by_kind(known.kind).decoder())


def _rows(spark: Any, store: Store, cut: Cut, name: Name, known: TableRecords) -> Any:
    """The table's rows as text."""
    source, table = name
    frame = cut.table(spark, f"{source_quoted(source)}.{table}")
    task = printing(store, cut, name, known)
    if task.raw_columns and task.schema.is_multiset:
        # One task must hand out the texts: two tasks could give one text twice.
        frame = frame.coalesce(1)
    # Name columns by number: Spark takes a dot in a name for a path.
    frame = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
    with own_python(spark):
        rows = frame.mapInArrow(_mapper(task), "row_data ARRAY<STRING>")
    return rows.selectExpr(_oid(known.table.number), "row_data")


def printing(store: Store, cut: Cut, name: Name, records: TableRecords) -> Printing:
    """The `Printing` of a table; it does not grow with the table's rows."""
    source, table = name
    schema = records.table.schema
    return Printing(
        records.decoder,
        schema,
        cut.standings.schema(name),
        tuple(schema.names[column] for column in records.table.raw_columns),
        LakeAddress(store.url, tuple(store.storage_options.items())),
        layout.errors_folder(source),
        table,
        cut.places[source].time,
    )


def source_quoted(source: str) -> str:
    """The source's name in quotes, as the first part of a table's name."""
    return '"' + source.replace('"', '""') + '"'


def _mapper(task: Printing) -> Callable[[Any], Any]:
    return partial(printed_rows, task)


def printed_rows(task: Printing, batches: Iterator[Any]) -> Iterator[Any]:
    """Turn batches of the table's rows into batches of their texts; runs in a Python worker."""
    texts = _Texts(task)
    for batch in batches:
        rows = datafile.conform(
            pa.Table.from_batches([batch]).rename_columns(task.columns.names), task.columns
        )
        values = [task.decoder.print_values(rows.column(column)) for column in task.columns.names]
        yield pa.RecordBatch.from_arrays([across(texts.put(rows, values), rows.num_rows)], schema=_ROW)


@dataclass
class _Texts:
    """Hands out texts from `errors/`; in a table without a key, each equal row gets a different one."""

    task: Printing
    texts_given: Counter[tuple[str, str]] = field(default_factory=Counter)  # by column and key

    def put(self, rows: pa.Table, values: list[Any]) -> list[Any]:
        """The values, with texts in place of those that the lake could not hold."""
        empty = {
            name: np.asarray(texts.is_null().to_numpy(zero_copy_only=False))
            for name, texts in zip(rows.column_names, values, strict=True)
            if name in self.task.raw_columns
        }
        asked = np.logical_or.reduce(list(empty.values())) if empty else np.zeros(0, np.bool_)
        if not asked.any():
            return values
        keys = key_texts(self.task.schema, rows)
        waiting: dict[str, dict[str, list[str]]] = {}
        answers = self.task.texts(keys.filter(pl.Series(asked))).sort("column", "key", "raw")
        for column, key, raw, copies in answers.select("column", "key", "raw", "diff").iter_rows():
            waiting.setdefault(column, {}).setdefault(key, []).extend([raw] * copies)
        return [
            self._column(name, waiting[name], keys, texts, empty[name]) if name in waiting else texts
            for name, texts in zip(rows.column_names, values, strict=True)
        ]

    def _column(
        self, name: str, waiting: dict[str, list[str]], keys: pl.Series, texts: Any, empty: Any
    ) -> Any:
        shown = texts.to_pylist()
        for at in np.flatnonzero(empty & keys.is_in(list(waiting)).to_numpy()).tolist():
            left, number = waiting[keys[at]], self.texts_given[name, keys[at]]
            if number < len(left):
                shown[at] = left[number]
                if self.task.schema.is_multiset:
                    self.texts_given[name, keys[at]] += 1
        return pa.array(shown, pa.string())
