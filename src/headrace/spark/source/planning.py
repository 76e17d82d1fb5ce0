"""From the options of a read to a mark and a table of it; and from that to files, one task each.

The mark is looked for once, when the plan is made. Beside the user's tables:

    errors, errors.SOURCE              values without a lake form, up to the mark
    history.[[SOURCE.]SCHEMA.]TABLE    the table's history, up to the mark

A user's table of such a name comes first. Between two marks a table's rows are those of a mark and its
history, netted, which no task can do by itself: that is refused here, and `cut.table` does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from headrace.core.errors import Misconfigured
from headrace.core.history import free_names
from headrace.core.names import quote_identifier, split_identifiers
from headrace.core.near import did_you_mean
from headrace.core.position import plain
from headrace.lake.format import layout
from headrace.lake.format.vector import file_rows
from headrace.lake.log.errors_table import ERRORS
from headrace.lake.log.histories import own_columns
from headrace.lake.log.marks import Mark
from headrace.lake.log.table import LakeTable
from headrace.lake.read.cut import Cut, no_history_error
from headrace.lake.read.intervals import Name, matches
from headrace.lake.read.lake import Lake
from headrace.lake.read.resolve import CommitPlace
from headrace.lake.store.open import open_store
from headrace.spark.source.options import ReadOptions
from headrace.spark.source.table_read import METADATA, Files, TableRead, sharing

MOST_TASKS = 512  # a task costs Spark milliseconds: of a table of more files, neighbours share one


def plan_read(options: ReadOptions) -> TableRead:
    """Find the mark, and in it the table; none of its rows is read."""
    cut = Lake(options.lake).at(
        epoch=options.epoch, position=options.position, timestamp=options.timestamp, source=options.source
    )
    first, *rest = split_identifiers(options.table)
    special = {"errors": _errors, "history": _history}.get(first)
    if special is _errors and rest and (len(rest) > 1 or rest[0] not in cut.places):
        special = None  # of a source that the lake lacks
    if special is None or matches(options.table, cut.standings.list_tables()):
        found = _table(cut, options)
    else:
        found = special(cut, options, rest)
    if options.metadata:
        found = replace(found, metadata=tuple(free_names(found.schema.names, METADATA.names)))
    return replace(found, schema=select_columns(found.schema, options.columns))


def tasks(plan: TableRead) -> list[Files]:
    """The files of the plan, by task."""
    if plan.version < 0:
        return []
    store = open_store(plan.lake)
    with sharing(store):
        files = LakeTable(store, plan.folder).at(plan.version).files()
        live = [file_rows(files[path]) for path in sorted(files)]
    width = max(1, -(-len(live) // MOST_TASKS))
    return [tuple(live[start : start + width]) for start in range(0, len(live), width)]


def select_columns(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """The columns that are asked for, in that order."""
    for name in columns or ():
        if name not in schema.names:
            raise Misconfigured(
                "LAKE_COLUMN_UNKNOWN",
                f'the table has no column "{name}"',
                detail=did_you_mean(name, schema.names),
                hint=f"its columns are {', '.join(map(quote_identifier, schema.names[:40]))}",
            )
    return schema if columns is None else pa.schema([schema.field(name) for name in columns])


def _table(cut: Cut, options: ReadOptions) -> TableRead:
    full = cut.standings.resolve(options.table)
    standing = cut.standings.of(full)
    if standing.parts:
        raise _between_error(options, cut.places[full[0]])
    table = cut.standings.open(full, standing.base)
    return _read_at(_mark(cut, full[0], options), table, table.schema())


def _errors(cut: Cut, options: ReadOptions, rest: Sequence[str]) -> TableRead:
    source = rest[0] if rest else _only_source(cut)
    mark = _mark(cut, source, options)
    table = LakeTable(cut.store, layout.errors_folder(source))
    table.refresh()
    return _read_at(mark, table, ERRORS, "time")


def _history(cut: Cut, options: ReadOptions, rest: Sequence[str]) -> TableRead:
    full: Name = cut.standings.resolve(".".join(map(quote_identifier, rest)))
    table = cut.standings.history(full)
    if table is None:
        raise no_history_error(full[1])
    schema = table.schema()
    return _read_at(_mark(cut, full[0], options), table, schema, own_columns(schema)["_time"])


def _only_source(cut: Cut) -> str:
    _ = cut.mark if len(cut.places) > 1 else None  # raises where it is several
    return next(iter(cut.places))


def _mark(cut: Cut, source: str, options: ReadOptions) -> Mark:
    mark = cut.places[source].mark
    if mark is None:
        raise _between_error(options, cut.places[source])
    return mark


def _read_at(mark: Mark, table: LakeTable, schema: pa.Schema, time: str | None = None) -> TableRead:
    return TableRead(
        lake=table.store.url,
        folder=table.folder,
        version=table.version,
        schema=schema,
        epoch=mark.epoch,
        position=plain(mark.frontier),
        until=None if time is None else (time, mark.time),
    )


def _between_error(options: ReadOptions, place: CommitPlace) -> Misconfigured:
    chosen = (("epoch", options.epoch), ("position", options.position), ("timestamp", options.timestamp))
    told = ", ".join(f"{name}={value!r}" for name, value in chosen if value is not None)
    return Misconfigured(
        "LAKE_READ_BETWEEN_MARKS",
        f'the data source reads a table at a mark, and {place.text} is between two for "{options.table}"',
        hint=f"Lake({options.lake!r}).at({told}).table(spark, {options.table!r}) reads it; or name a mark",
    )
