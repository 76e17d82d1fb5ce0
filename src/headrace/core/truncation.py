"""Truncations: the places in the log where a table was emptied, and their effect on its rows.

A TRUNCATE stands in the order of (time, ordinal) like any change, and takes every row that is there.
It cuts the life of a table into **generations**: no row of one is seen by a change of another.

    log           I  U  D │ I  I │ U!  I          U!  meets no row: there is none that old
    generation      0     │  1   │   2
                          ▲      ▲
                      truncations 0, 1            generation g ends with truncation g; the last one goes on

    generations     to which generation each of these changes belongs
    ends            the DELETEs by which a fold does it: one for each row that is there at a truncation
    retracted       the history of rows that a truncation took: all -1, at its time and ordinal
    of_truncations  which rows of a history are such

Generation 0 begins with the rows of the lake's files. Every other generation begins empty, so its changes
need no file: to empty and refill a table costs no more than to fill it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.core.change_batch import TIMESTAMP
from headrace.core.columns import Flags, Ints, column, ints, wide, wide_schema
from headrace.core.history import OWN, history_schema
from headrace.core.key_events import KeyEvent
from headrace.core.row_groups import by_group, group
from headrace.core.schema import TableSchema


class Truncation(NamedTuple):
    """One TRUNCATE of one table: its place in the log, and the transaction's marks for history."""

    time: int
    ordinal: int
    transaction: int | str
    commit_ts: int  # microseconds since 1970


Truncations = tuple[Truncation, ...]  # in the order of the log


def generations(truncations: Sequence[Truncation], rows: pa.Table) -> Ints:
    """For each row (with `_time` and `_ordinal`) how many of the truncations come before it."""
    marks, places = _places(truncations, ints(rows, "_time"), ints(rows, "_ordinal"))
    return np.searchsorted(marks, places, side="left").astype(np.int64)


def ends(truncations: Sequence[Truncation], events: pa.Table, base: pa.Array) -> pa.Table:
    """The DELETEs of the rows that are there at each truncation; `base` are the keys of the rows before."""
    codes = pa.concat_arrays([base, column(events, "_key")])
    ids = group(codes).ids
    order = by_group(ids)
    keys = ids[order]
    generation = np.concatenate([np.zeros(len(base), np.int64), generations(truncations, events)])[order]
    stays = np.concatenate([np.ones(len(base), np.bool_), ints(events, "_event") != KeyEvent.DELETE])[order]
    last = np.ones(len(order), np.bool_)
    last[:-1] = (keys[1:] != keys[:-1]) | (generation[1:] != generation[:-1])
    taken = np.flatnonzero(last & stays & (generation < len(truncations)))
    named = {"_key": codes.take(pa.array(order[taken]))}
    named |= _marks(truncations, generation[taken])
    named["_event"] = pa.array(np.full(len(taken), KeyEvent.DELETE), pa.uint8())
    return pa.Table.from_arrays(
        [named.get(field.name, pa.nulls(len(taken))).cast(field.type) for field in events.schema],
        schema=events.schema,
    )


def take_back(schema: TableSchema, rows: pa.Table, truncation: Truncation) -> pa.Table:
    """The history of these rows when the truncation takes them."""
    count = rows.num_rows
    marks = _marks([truncation], np.zeros(count, np.int64))
    own = [
        marks["_time"],
        pa.array(np.full(count, -1), pa.int64()),
        *(marks[name] for name in ("_ordinal", "_transaction", "_commit_ts")),
    ]
    rows = wide(rows)
    values = [rows.column(name) for name in schema.names]
    wanted = wide_schema(history_schema(schema))
    ours = [each.cast(kind) for each, kind in zip(own, wanted.types[len(values) :], strict=True)]
    return pa.Table.from_arrays([*values, *ours], schema=wanted)


def of_truncations(truncations: Sequence[Truncation], history: pa.Table) -> Flags:
    """Pick the rows of a history that tell of the truncations."""
    time, _, ordinal = history.column_names[-len(OWN) :][:3]
    marks, places = _places(truncations, ints(history, time), ints(history, ordinal))
    return np.isin(places, marks)


def _places(truncations: Sequence[Truncation], time: Ints, ordinal: Ints) -> tuple[Ints, Ints]:
    """(time, ordinal) as one number that orders alike with truncations, for these and for rows.

    An ordinal may be any number, so what counts is its rank among those of truncations, or between them.
    """
    marks = np.array([(t.time, t.ordinal) for t in truncations], np.int64).reshape(-1, 2)
    times, ordinals = np.unique(marks[:, 0]), np.unique(marks[:, 1])

    def place(time: Ints, ordinal: Ints) -> Ints:
        at = np.searchsorted(times, time, side="left").astype(np.int64)
        same = times[np.minimum(at, len(times) - 1)] == time if len(times) else np.zeros(len(time), np.bool_)
        rank = sum(np.searchsorted(ordinals, ordinal, side=side) for side in ("left", "right"))
        # At a time without a truncation only the time counts: before all of the next one.
        return np.asarray(at * (2 * len(ordinals) + 2) + np.where(same, rank + 1, 0), np.int64)

    return place(marks[:, 0], marks[:, 1]), place(time, ordinal)


def _marks(truncations: Sequence[Truncation], which: Ints) -> dict[str, pa.Array]:
    """The meta columns of rows that belong to these truncations."""
    rows = pa.array(which)
    columns = {
        f"_{name}": pa.array([place[i] for place in truncations]).take(rows)
        for i, name in enumerate(Truncation._fields)
    }
    return columns | {"_commit_ts": columns["_commit_ts"].cast(pa.timestamp("us")).cast(TIMESTAMP)}
