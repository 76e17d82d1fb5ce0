"""A cut: every table of a lake as of one place in its source's life, for any engine.

    cut.arrow("public.orders")           pyarrow.Table
    cut.polars("orders")                 polars.LazyFrame
    cut.table(spark, "public.orders")    Spark DataFrame; cut.register(spark): all of them as views
    cut.url(...), cut.version(...)       for any other engine of Delta, at a mark: the table and its version
    cut.files(...), cut.vectors(...)     for any reader of Parquet: the files, and the rows deleted in them

All tables of a cut are at the same position of the source, so a reader never sees half of a transaction.
Columns have the names, order and types of the table's schema, in every engine and however old the files are.
If a table is not exact there (`headrace.lake.read.intervals`), reading it raises an error that says where it
is exact; inexact contents are never shown.

This room uses Spark only through the caller's session and does not import it. Files have the lake's own
addresses, never those of delta-rs, which are percent-encoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.core.columns import Ints
from headrace.core.errors import Misconfigured
from headrace.core.history import free_names
from headrace.core.names import TableName, quote_identifier
from headrace.core.portions import portions
from headrace.core.position import plain
from headrace.lake.format import datafile, layout, schemas
from headrace.lake.format.vector import deleted_rows
from headrace.lake.log import histories
from headrace.lake.log.histories import HistoryPart
from headrace.lake.log.marks import Mark
from headrace.lake.log.table import LakeTable, LiveFile
from headrace.lake.read import pruning, travel
from headrace.lake.read.catalogs import Catalogs
from headrace.lake.read.intervals import Name, Standings
from headrace.lake.read.resolve import CommitPlace
from headrace.lake.store.contract import Store, locate

_MOST_ROWS = 1 << 27  # that Polars numbers in one scan


class Cut:
    """The tables of one or several sources, each source at one place."""

    def __init__(self, store: Store, places: Mapping[str, CommitPlace], catalogs: Catalogs) -> None:
        self.store = store
        self.places = dict(places)
        self.standings = Standings(store, self.places, catalogs)

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{source}@{place.mark.epoch if place.mark else place.frontier}"
            for source, place in self.places.items()
        )
        return f"Cut({shown})"

    @property
    def marks(self) -> dict[str, Mark]:
        """Return the marks that the cut stands at, by source; a source between two marks has none."""
        return {source: place.mark for source, place in self.places.items() if place.mark is not None}

    @property
    def mark(self) -> Mark:
        """Return the mark of a cut that has a single source and stands at a mark."""
        if len(self.places) != 1:
            raise Misconfigured(
                "LAKE_SOURCE_AMBIGUOUS",
                "this cut is through several sources, each at its own mark",
                detail=", ".join(sorted(self.places)),
                hint="name one: lake.at(source=...), or look into cut.marks",
            )
        [place] = self.places.values()
        if place.mark is None:
            raise between_error(f'the position "{plain(place.frontier)}" is between two marks')
        return place.mark

    @property
    def epoch(self) -> int:
        """Return the number of that mark."""
        return self.mark.epoch

    def tables(self) -> list[str]:
        """Return the tables that are exact here, as `schema.table` (with the source before it if several)."""
        return [print_name(self, name) for name in self.standings.names()]

    def version(self, name: str) -> int:
        """Return the Delta version of the table that is exact here."""
        full = self.standings.resolve(name)
        standing = self.standings.of(full)
        if standing.parts:
            raise between_error(f'table "{name}" has no version here: the cut is between two marks')
        return standing.base.versions[str(full[1])]

    def url(self, name: str) -> str:
        """Return the address of the table's Delta folder; open it at `version(name)`."""
        self.version(name)
        return locate(self.store, layout.table_folder(*self.standings.resolve(name)))

    def files(self, name: str, *, with_deleted: bool = False) -> list[str]:
        """Return the addresses of the Parquet files that hold the table here.

        `with_deleted` says that you leave out the rows of `vectors(name)`; without it such files are refused.
        """
        table = _at_mark(self, name)
        files = table.files()
        if not with_deleted and any(file.vector for file in files.values()):
            raise Misconfigured(
                "LAKE_FILES_WITH_DELETED",
                f'files of table "{name}" hold rows that are deleted',
                hint=f'leave out those of cut.vectors("{name}"), and call cut.files(..., with_deleted=True); '
                "or read it by cut.arrow, cut.polars or cut.table",
            )
        return [locate(self.store, f"{table.folder}/{path}") for path in sorted(files)]

    def vectors(self, name: str) -> dict[str, Ints]:
        """Return the positions of the rows that are deleted, from 0, for each of `files` that has any."""
        table = _at_mark(self, name)
        found = {path: deleted_rows(table.folder, file) for path, file in sorted(table.files().items())}
        return {
            locate(self.store, f"{table.folder}/{path}"): rows for path, rows in found.items() if len(rows)
        }

    def schema(self, name: str) -> pa.Schema:
        return self.standings.schema(self.standings.resolve(name))

    def arrow(self, name: str) -> pa.Table:
        """Return the table's rows, all of them in memory."""
        full = self.standings.resolve(name)
        standing = self.standings.of(full)
        rows = _rows(self.standings.open(full, standing.base))
        return travel.in_memory(rows, self.standings.journey(full)) if standing.parts else rows

    def polars(self, name: str) -> pl.LazyFrame:
        """Return the table as a Polars query; at a mark nothing is read before it is collected."""
        full = self.standings.resolve(name)
        standing = self.standings.of(full)
        if standing.parts:
            rows = pl.from_arrow(self.arrow(name))
            assert isinstance(rows, pl.DataFrame)
            return rows.lazy()
        return _scan(self.standings.open(full, standing.base))

    def table(self, spark: Any, name: str) -> Any:
        """Return the table as a DataFrame of the given Spark session (classic or Connect)."""
        full = self.standings.resolve(name)
        standing = self.standings.of(full)
        base = self.standings.open(full, standing.base)
        rows = pruning.frame(spark, base)
        if not standing.parts:
            return rows
        journey = self.standings.journey(full)
        return travel.on_spark(spark, travel.with_columns(rows, base.schema(), journey.schema), journey)

    def register(self, spark: Any) -> list[str]:
        """Make every table a temporary view, all at this cut; return the views' names.

        A view is called `schema.table` (one name, to be written in backticks), and also just `table`
        where only one schema has a table of that name.
        """
        names = self.standings.names()
        called = Counter(table.name.lower() for _, table in names)
        called.update(print_name(self, name).lower() for name in names)
        views: list[str] = []
        for name in names:
            frame = self.table(spark, print_name(self, name))
            wanted = [print_name(self, name)] + [name[1].name] * (called[name[1].name.lower()] == 1)
            for view in wanted:
                frame.createOrReplaceTempView(f"`{view.replace('`', '``')}`")
            views += wanted
        return views

    def history(self, name: str) -> pa.Table:
        """Return the history of the table's rows up to this cut, as `headrace.core.history` describes it.

        If the table's columns changed, this is the history under the columns that it has at this cut.
        """
        rows = _history(self, name).rows()
        if not rows.num_rows:
            raise no_history_error(self.standings.resolve(name)[1])
        return rows

    def history_polars(self, name: str) -> pl.LazyFrame:
        """Return the history as a Polars query; no file is read before it is collected."""
        return scan_part(_history(self, name))


class NoHistory(Misconfigured):
    """The error for a table that has no changes, or whose history was deleted."""

    codes = ("LAKE_NO_HISTORY",)


def _at_mark(cut: Cut, name: str) -> LakeTable:
    cut.version(name)
    full = cut.standings.resolve(name)
    return cut.standings.open(full, cut.standings.of(full).base)


def _history(cut: Cut, name: str) -> HistoryPart:
    full = cut.standings.resolve(name)
    folder = cut.standings.history(full)
    if folder is None:
        raise no_history_error(full[1])
    return histories.part_of(folder, (None, cut.places[full[0]].time))


def print_name(cut: Cut, name: Name) -> str:
    """Print a table's name in a cut: `schema.table`, with the source before it if several."""
    source, table = name
    return str(table) if len(cut.places) == 1 else f"{quote_identifier(source)}.{table}"


def no_history_error(table: TableName) -> NoHistory:
    """Make the error for a table without history up to a place."""
    return NoHistory(
        "LAKE_NO_HISTORY",
        f"table {table} has no history up to here",
        hint="history begins with the first change after the copy, and ends where its retention does",
    )


def between_error(primary: str) -> Misconfigured:
    """Make the error for a question that only a mark can answer."""
    return Misconfigured(
        "LAKE_BETWEEN_MARKS",
        primary,
        hint="read it by cut.table, cut.arrow or cut.polars, or go to a mark: at(epoch=...)",
    )


def _rows(table: LakeTable) -> pa.Table:
    schema = table.schema()
    files = table.files()
    parts = [datafile.read(table.store, table.folder, files[path], schema=schema) for path in sorted(files)]
    return pa.concat_tables(parts) if parts else schema.empty_table()


def _scan(table: LakeTable) -> pl.LazyFrame:
    files, schema = table.files(), table.schema()
    whole = _scan_files(table, sorted(path for path, file in files.items() if not file.vector), schema)
    with_deleted = [file for _, file in sorted(files.items()) if file.vector]
    groups = portions(with_deleted, (_MOST_ROWS, lambda file: file.rows))
    return pl.concat([whole, *(_scan_left(table, some) for some in groups)])


def scan_part(part: HistoryPart) -> pl.LazyFrame:
    """Return the updates of a part of history as a Polars query, with all columns."""
    time, (after, until) = pl.col(part.own["_time"]), part.times
    rows = _scan_files(part.table, part.paths, part.schema).filter(time <= until)
    return rows if after is None else rows.filter(time > after)


def _scan_left(table: LakeTable, files: Sequence[LiveFile]) -> pl.LazyFrame:
    """Scan files without the rows that are deleted: one bit for each row of all files, in their order."""
    stays = np.ones(sum(file.rows for file in files), np.bool_)
    start = 0
    for file in files:
        stays[start : start + file.rows][deleted_rows(table.folder, file)] = False
        start += file.rows
    schema = table.schema()
    [number] = free_names(schema.names, ["number"])
    rows = _scan_files(table, [file.path for file in files], schema, number)
    return rows.filter(pl.lit(pl.Series(stays)).gather(pl.col(number))).drop(number)


def _scan_files(
    table: LakeTable, paths: Iterable[str], schema: pa.Schema, number: str | None = None
) -> pl.LazyFrame:
    empty = pl.from_arrow(schemas.to_lake(schema).empty_table())
    assert isinstance(empty, pl.DataFrame)
    urls = [locate(table.store, f"{table.folder}/{path}") for path in paths]
    frame = empty.lazy()
    if urls:
        frame = pl.scan_parquet(
            urls,
            schema=empty.schema,
            missing_columns="insert",
            glob=False,
            storage_options=table.store.storage_options or None,
            row_index_name=number,
        )
    return frame.rename(dict(zip(empty.columns, schema.names, strict=True)))
