"""The changes of a table between two places: its history, exactly, in whatever engine the reader likes.

    contents(until)  =  contents(after)  +  Σ changes(after, until)

The rows are history's own, nothing is netted: an update is a row with `_diff` -1 and one with +1, at one
`_time`. Where history does not lead from one place to the other (the table was copied anew in between, or
began later) that is an error which says from where on it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import polars as pl
import pyarrow as pa

from headrace.core.errors import Definite, Misconfigured
from headrace.core.history import own_names
from headrace.lake.format import datafile, schemas
from headrace.lake.log import histories
from headrace.lake.log.histories import HistoryPart, OpenTable
from headrace.lake.read import travel
from headrace.lake.read.cut import Cut, scan_part
from headrace.lake.read.intervals import Name
from headrace.lake.read.resolve import CommitPlace
from headrace.lake.store.contract import Store

SHOWN = ("_time", "_diff")


@dataclass(frozen=True, slots=True)
class Changes:
    """The updates of a table between two places, under the columns that it has at the end."""

    parts: Sequence[HistoryPart]
    schema: pa.Schema  # the table's columns, `_time` and `_diff`

    def table(self, spark: Any) -> Any:
        """A DataFrame of the given Spark session."""
        frames = [self._frame(spark, part) for part in self.parts]
        empty = spark.createDataFrame([], schemas.spark_ddl(self.schema))
        return reduce(lambda some, more: some.unionAll(more), frames) if frames else empty

    def arrow(self) -> pa.Table:
        """All of them in memory."""
        tables = [self._rows(part) for part in self.parts]
        return pa.concat_tables([self.schema.empty_table(), *tables])

    def polars(self) -> pl.LazyFrame:
        """A Polars query; no file is read before it is collected."""
        empty = pl.from_arrow(self.schema.empty_table())
        assert isinstance(empty, pl.DataFrame)
        return pl.concat([empty.lazy(), *(self._scan(part, empty.schema) for part in self.parts)])

    def _own(self, part: HistoryPart) -> dict[str, str]:
        """The part's names of our columns, by those that they are shown under."""
        shown = self.schema.names[-len(SHOWN) :]
        return {name: part.own[plain] for plain, name in zip(SHOWN, shown, strict=True)}

    def _frame(self, spark: Any, part: HistoryPart) -> Any:
        columns = [travel.quote(name) for name in part.columns]
        own = self._own(part)
        ours = [f"{travel.quote(there)} AS {travel.quote(name)}" for name, there in own.items()]
        rows = travel.frame(spark, part).selectExpr(*columns, *ours)
        had = pa.schema([self.schema.field(name) for name in [*part.columns, *own]])
        return travel.with_columns(rows, had, self.schema)

    def _rows(self, part: HistoryPart) -> pa.Table:
        rows, own = part.rows(), self._own(part)
        had = rows.select([*part.columns, *own.values()]).rename_columns([*part.columns, *own])
        return datafile.conform(had, self.schema)

    def _scan(self, part: HistoryPart, types: pl.Schema) -> pl.LazyFrame:
        own = self._own(part)
        columns = [
            (
                pl.col(own.get(name, name)) if name in own or name in part.columns else pl.lit(None, kind)
            ).alias(name)
            for name, kind in types.items()
        ]
        return scan_part(part).select(columns)


def changes(store: Store, end: Cut, full: Name, start: CommitPlace | None) -> Changes:
    """The updates of a table with `start` < time <= `end`; without a start, all that lead to the end."""
    schema = end.standings.schema(full)
    return Changes(changed_parts(store, end, full, start, schema), _wanted_schema(schema))


def changed_parts(
    store: Store,
    end: Cut,
    full: Name,
    start: CommitPlace | None,
    schema: pa.Schema,
    open_table: OpenTable | None = None,
) -> list[HistoryPart]:
    """The files of these updates; `schema` is the table's at the end."""
    source, table = full
    until = end.places[source].time
    after = _after(full, end, start)
    if after > until:
        raise Misconfigured(
            "LAKE_CHANGES_BACKWARDS",
            "the changes that are asked for end before they begin",
            hint="exchange after and until",
        )
    parts = histories.parts(store, source, table, (after, until), open_table)
    if _after(full, end, start) > after:
        # It ran out of its retention while we looked: not to be missed in silence.
        raise _broken_error(full, end)
    for part in parts:
        if not travel.fits(schema, [part]):
            raise travel.incompatible(str(table))
    return parts


def _after(full: Name, end: Cut, start: CommitPlace | None) -> int:
    since = end.standings.since(full)
    if since is not None and start is None:
        return since - 1
    if since is None or start is None or start.time < since - 1:
        raise _broken_error(full, end)
    return start.time


def _broken_error(full: Name, end: Cut) -> Definite:
    since, past = end.standings.since(full), end.standings.pasts[full[0]]
    first = None if since is None else past.first(since - 1, full[1])
    return Definite(
        "LAKE_HISTORY_BROKEN",
        f'the history of table "{full[1]}" does not reach back to where the changes are to begin',
        detail=None if since is None else f"it begins at {past.show(since)}",
        hint="begin there: after=..." if first is None else f"begin there: after={first.epoch}",
    )


def _wanted_schema(schema: pa.Schema) -> pa.Schema:
    ours = own_names(schema.names)
    return pa.schema([*schema, *(pa.field(ours[name], pa.int64()) for name in SHOWN)])
