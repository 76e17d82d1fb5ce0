"""A cut: every table of a lake as of one mark, in whatever engine the reader likes.

    cut.arrow("public.orders")           pyarrow.Table
    cut.polars("orders")                 polars.LazyFrame
    cut.table(spark, "public.orders")    Spark DataFrame; cut.register(spark): all of them as views
    cut.files(...), cut.version(...)     for any other engine: pin the version, or take the files

All tables of a cut are at the same position of the source: nobody who reads through it sees half of a
transaction. Columns are named, ordered and typed as the table's schema says, whatever the engine and
however old the files are. A table that is not exact at the mark is an error that names the last mark that
has it; it is never shown as it happens to be.

Spark is used only through the session that is handed in; this room does not import it. Files are named by
the lake's own addresses, never by delta-rs's, which are percent-encoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.errors import Definite, Misconfigured
from headrace.core.history import OWN
from headrace.core.names import TableName, quote_identifier, split_identifiers
from headrace.lake import datafile, layout, schemas
from headrace.lake.marks import Mark, Marks
from headrace.lake.store import Store
from headrace.lake.table import LakeTable

Name = tuple[str, TableName]  # of a table in the lake: its source, and its name there


class Cut:
    """The tables of one or several sources, each source at one mark."""

    def __init__(self, store: Store, marks: Mapping[str, Mark]) -> None:
        self._store = store
        self.marks = dict(marks)
        self._opened: dict[Name, LakeTable] = {}

    def __repr__(self) -> str:
        places = ", ".join(f"{source}@{mark.epoch}" for source, mark in self.marks.items())
        return f"Cut({places})"

    @property
    def mark(self) -> Mark:
        """The mark, where the cut is of a single source."""
        if len(self.marks) != 1:
            raise Misconfigured(
                "LAKE_SOURCE_AMBIGUOUS",
                "this cut is through several sources, each at its own mark",
                detail=", ".join(sorted(self.marks)),
                hint="name one: lake.at(source=...), or look into cut.marks",
            )
        return next(iter(self.marks.values()))

    def tables(self) -> list[str]:
        """The tables that are exact here, as `schema.table` (with the source before it if several)."""
        return [self._printed(name) for name in self._names()]

    def version(self, name: str) -> int:
        """The Delta version of the table that is exact here."""
        source, table = self._resolve(name)
        return self.marks[source].versions[str(table)]

    def url(self, name: str) -> str:
        """The address of the table's Delta folder; open it at `version(name)`."""
        return self._store.locate(self._open(name).folder)

    def files(self, name: str) -> list[str]:
        """The addresses of the Parquet files that hold the table here."""
        table = self._open(name)
        return [self._store.locate(f"{table.folder}/{path}") for path in sorted(table.files())]

    def schema(self, name: str) -> pa.Schema:
        return self._open(name).schema()

    def arrow(self, name: str) -> pa.Table:
        """The table's rows, all of them in memory."""
        return _rows(self._open(name))

    def polars(self, name: str) -> pl.LazyFrame:
        """The table as a Polars query; nothing is read before it is collected."""
        return _scan(self._open(name))

    def table(self, spark: Any, name: str) -> Any:
        """The table as a DataFrame of the given Spark session (classic or Connect)."""
        table = self._open(name)
        schema = schemas.to_lake(table.schema())
        ddl = schemas.spark_ddl(schema)
        urls = [_for_spark(url) for url in self.files(name)]
        frame = spark.read.schema(ddl).parquet(*urls) if urls else spark.createDataFrame([], ddl)
        return frame.toDF(*table.schema().names)

    def register(self, spark: Any) -> list[str]:
        """Make every table a temporary view, all at this cut; the views' names are returned.

        A view is called `schema.table` (one name, to be written in backticks), and also just `table`
        where only one schema has a table of that name.
        """
        names = self._names()
        bare = [table.name for _, table in names]
        views: list[str] = []
        for name in names:
            frame = self.table(spark, self._printed(name))
            wanted = [self._printed(name)] + ([name[1].name] if bare.count(name[1].name) == 1 else [])
            for view in wanted:
                frame.createOrReplaceTempView(f"`{view.replace('`', '``')}`")
            views += wanted
        return views

    def history(self, name: str) -> pa.Table:
        """What happened to the table's rows up to this cut, as `headrace.core.history` describes it."""
        source, table = self._resolve(name)
        newest = _history_table(self._store, source, table)
        rows = _rows(newest)
        return rows.filter(pc.field(_time_column(rows.schema)) <= self.marks[source].time)

    def _open(self, name: str) -> LakeTable:
        full = self._resolve(name)
        if full not in self._opened:
            source, table = full
            folder = LakeTable(self._store, layout.table_folder(source, table))
            self._opened[full] = folder.at(self.marks[source].versions[str(table)])
        return self._opened[full]

    def _names(self) -> list[Name]:
        return [
            (source, TableName.parse(text))
            for source, mark in sorted(self.marks.items())
            for text in sorted(mark.versions)
        ]

    def _printed(self, name: Name) -> str:
        source, table = name
        return str(table) if len(self.marks) == 1 else f"{quote_identifier(source)}.{table}"

    def _resolve(self, text: str) -> Name:
        """The table that is meant; parts that are unambiguous may be left out."""
        matching = _matching(text, self._names())
        if len(matching) == 1:
            return matching[0]
        if matching:
            raise Misconfigured(
                "LAKE_NAME_AMBIGUOUS",
                f'"{text}" names more than one table of this lake',
                detail=", ".join(f"{quote_identifier(source)}.{table}" for source, table in matching),
                hint="write the schema, and the source where the lake has several",
            )
        raise _absent(self._store, self.marks, text)


def _matching(text: str, names: list[Name]) -> list[Name]:
    parts = split_identifiers(text)
    return [
        (source, table)
        for source, table in names
        if (source, table.schema, table.name)[-len(parts) :] == parts
    ]


def _absent(store: Store, marks: Mapping[str, Mark], text: str) -> Misconfigured | Definite:
    """Why a table can't be read here: it left the marks, or never was in one."""
    for source, mark in sorted(marks.items()):
        for older in reversed(Marks(store, source).all()):
            known = [(source, TableName.parse(name)) for name in older.versions]
            if _matching(text, known):
                return Definite(
                    "LAKE_TABLE_NOT_EXACT",
                    f'table "{text}" is not exact at epoch {mark.epoch}',
                    detail=f'the last mark that has it is epoch {older.epoch} at "{older.frontier}"',
                    hint=f"read it there: at(epoch={older.epoch}); headrace status tells why it stopped",
                )
    return Misconfigured(
        "LAKE_TABLE_UNKNOWN",
        f'no mark of this lake has a table "{text}"',
        hint="headrace status lists the tables and how far each is copied",
    )


def _history_table(store: Store, source: str, table: TableName) -> LakeTable:
    """The history under the last incompatible schema that the table had."""
    found: LakeTable | None = None
    k = 1
    while True:
        candidate = LakeTable(store, layout.history_folder(source, table, k))
        if candidate.refresh() < 0:
            break
        found, k = candidate, k + 1
    if found is None:
        raise Misconfigured(
            "LAKE_NO_HISTORY",
            f"table {table} has no history in this lake",
            hint="history begins with the first change after the copy; it can be off by configuration",
        )
    return found


def _rows(table: LakeTable) -> pa.Table:
    schema = table.schema()
    parts = [datafile.read(table.store, table.folder, path, schema=schema) for path in sorted(table.files())]
    return pa.concat_tables(parts) if parts else schema.empty_table()


def _scan(table: LakeTable) -> pl.LazyFrame:
    schema = table.schema()
    empty = pl.from_arrow(schemas.to_lake(schema).empty_table())
    assert isinstance(empty, pl.DataFrame)
    urls = [table.store.locate(f"{table.folder}/{path}") for path in sorted(table.files())]
    frame = empty.lazy()
    if urls:
        frame = pl.scan_parquet(
            urls,
            schema=empty.schema,
            missing_columns="insert",
            glob=False,
            storage_options=table.store.storage_options or None,
        )
    return frame.rename(dict(zip(empty.columns, schema.names, strict=True)))


def _for_spark(url: str) -> str:
    """Hadoop's file systems: S3 is called s3a there, and a bare path would mean the default one."""
    return "s3a" + url[2:] if url.startswith("s3:") else f"file://{url}"


def _time_column(schema: pa.Schema) -> str:
    """The name of our `_time` in a history table: our columns stand together, in their order."""
    ours = [name.lstrip("_") for name in OWN.names]
    names = [name.lstrip("_") for name in schema.names]
    width = len(ours)
    at = next(i for i in range(len(names)) if names[i : i + width] == ours and schema.types[i] == pa.int64())
    return str(schema.names[at])
