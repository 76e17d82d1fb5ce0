"""The changes of a table between two places: its history, exactly, as a DataFrame.

    contents(until)  =  contents(after)  +  Σ changes(after, until)

Called by `lake` for `Lake.changes`. The rows are history's own, nothing is netted: an update is a row with
`_diff` -1 and one with +1, at one `_time`. Where history does not lead from one place to the other (the
table was copied anew in between, or began later) that is an error which says from where on it does.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headrace.core.errors import Definite, Misconfigured
from headrace.core.history import own_names
from headrace.lake.format import schemas
from headrace.lake.log import histories
from headrace.lake.log.histories import Part
from headrace.lake.read import travel
from headrace.lake.read.cut import Cut
from headrace.lake.read.intervals import Name
from headrace.lake.read.resolve import Place
from headrace.lake.store.contract import Store

SHOWN = ("_time", "_diff")


def changes(store: Store, spark: Any, end: Cut, full: Name, start: Place | None) -> Any:
    """The updates of a table with `start` < time <= `end`; without a start, all that lead to the end."""
    source, table = full
    schema = end.standings.schema(full)
    until = end.places[source].time
    after = _after(full, end, start)
    if after > until:
        raise Misconfigured(
            "LAKE_CHANGES_BACKWARDS",
            "the changes that are asked for end before they begin",
            hint="exchange after and until",
        )
    wanted = _wanted(schema)
    found = None
    parts = histories.parts(store, source, table, (after, until))
    if _after(full, end, start) > after:
        # It ran out of its retention while we looked: not to be missed in silence.
        raise _broken(full, end)
    for part in parts:
        if not travel.fits(schema, [part]):
            raise travel.incompatible(str(table))
        rows = _shown(spark, part, wanted)
        found = rows if found is None else found.unionAll(rows)
    return spark.createDataFrame([], schemas.spark_ddl(wanted)) if found is None else found


def _after(full: Name, end: Cut, start: Place | None) -> int:
    since = end.standings.since(full)
    if since is not None and start is None:
        return since - 1
    if since is None or start is None or start.time < since - 1:
        raise _broken(full, end)
    return start.time


def _broken(full: Name, end: Cut) -> Definite:
    since = end.standings.since(full)
    return Definite(
        "LAKE_HISTORY_BROKEN",
        f'the history of table "{full[1]}" does not lead from the one place to the other',
        detail=None if since is None else f"it is exact from {end.standings.past(full[0]).shown(since)} on",
        hint="begin there: after=...",
    )


def _wanted(schema: pa.Schema) -> pa.Schema:
    ours = own_names(schema.names)
    return pa.schema([*schema, *(pa.field(ours[name], pa.int64()) for name in SHOWN)])


def _shown(spark: Any, part: Part, wanted: pa.Schema) -> Any:
    """The part's updates with exactly the wanted columns."""
    own = wanted.names[-len(SHOWN) :]
    columns = [travel.quoted(name) for name in part.columns]
    ours = [
        f"{travel.quoted(part.own[plain])} AS {travel.quoted(name)}"
        for plain, name in zip(SHOWN, own, strict=True)
    ]
    rows = travel.frame(spark, part).selectExpr(*columns, *ours)
    return travel.widened(rows, pa.schema([wanted.field(name) for name in [*part.columns, *own]]), wanted)
