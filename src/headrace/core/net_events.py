"""Net events: at most one event of a key at one time, for sources whose times have no order within.

A source that captures by statement writes a change of an outer statement after those of the statements that
it fired, though it came first. So for one time it brings a collection in any order: whole rows that went and
whole rows that came (`core.schema.TableSchema.is_ordered`). A fold applies events one after the other, so
they are netted first:

    equal rows that go and come    cancel each other out
    the rest of a key              nothing │ a DELETE │ an INSERT │ both: a PUT of the row that came

At the beginning and at the end of a time a key has one row or none, so no more than that can be left. If more
is left, updates are missing or came twice: they all stay, DELETEs first, and `fold` reports them in any
order. Truncations have their place among the events (`core.truncation`): each generation is netted by itself.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.columns import Flags, Ints, column, flags, ints
from headrace.core.key_events import KeyEvent
from headrace.core.keycode import keycode
from headrace.core.row_groups import by_group, group
from headrace.core.schema import TableSchema
from headrace.core.truncation import Truncation, generations

_UNLIKE = (pa.types.is_nested, pa.types.is_floating, pa.types.is_interval)  # of Arrow's comparison


def net_events(schema: TableSchema, events: pa.Table, truncations: Sequence[Truncation] = ()) -> pa.Table:
    """The events, netted within each time; those of a source whose times have an order as they are."""
    if schema.is_ordered or events.num_rows < 2:
        return events
    moments = _moments(events, truncations)
    appears = ints(events, "_event") == KeyEvent.INSERT
    many = np.bincount(moments)[moments] > 1
    if not many.any():
        return events
    doubtful = many & ~_is_update(events, moments, appears)[moments]
    left = np.ones(len(moments), np.bool_)
    if doubtful.any():
        left[doubtful] = _uneven(events, np.flatnonzero(doubtful), moments, appears)
    return _as_events(events, left, moments, appears)


def _moments(events: pa.Table, truncations: Sequence[Truncation]) -> Ints:
    """Number the events by key, time and generation."""
    found = group(column(events, "_key")).ids
    parts = [ints(events, "_time")]
    if truncations:
        parts.append(generations(truncations, events))
    for part in parts:
        distinct, of_row = np.unique(part, return_inverse=True)
        if len(distinct) > 1:
            found = np.unique(found * len(distinct) + of_row, return_inverse=True)[1]
    return np.asarray(found, np.int64)


def _is_update(events: pa.Table, moments: Ints, appears: Flags) -> Flags:
    """Tell of which moments one row went and another came: mostly a column's values tell them apart.

    Only what Arrow compares as we do is asked; of the others it is told by all of their bits.
    """
    came, went = (
        np.bincount(moments[each], minlength=int(moments.max()) + 1) for each in (appears, ~appears)
    )
    pairs = (came == 1) & (went == 1)
    places = np.zeros((2, len(came)), np.int64)
    places[appears.astype(np.int64), moments] = np.arange(len(moments))
    alike = np.flatnonzero(pairs)
    for name in filter(_is_value, events.column_names):
        values = column(events, name)
        if len(alike) and not any(unlike(values.type) for unlike in _UNLIKE):
            old, new = (values.take(pa.array(side[alike])) for side in places)
            same = pc.fill_null(pc.equal(old, new), False)
            both_null = pc.and_(old.is_null(), new.is_null())
            alike = alike[flags(pc.or_(same, both_null))]
    pairs[alike] = False
    return np.asarray(pairs, np.bool_)


def _uneven(events: pa.Table, rows: Ints, moments: Ints, appears: Flags) -> Flags:
    """Tell which of these events are left when rows that go and come alike at a moment have cancelled out."""
    chosen = pa.array(rows)
    values = [column(events, name).take(chosen) for name in events.column_names if _is_value(name)]
    same = group(keycode([pa.array(moments[rows]), *values])).ids
    signs = np.where(appears[rows], 1, -1)
    sums = np.zeros(int(same.max()) + 1, np.int64)
    np.add.at(sums, same, signs)
    # Of rows that are left over as many stay as there are too many.
    mine = np.sign(sums)[same] == signs
    kept = np.zeros(len(rows), np.bool_)
    order = by_group(same[mine])
    ids = same[mine][order]
    nth = np.arange(len(ids)) - np.searchsorted(ids, ids)
    kept[np.flatnonzero(mine)[order]] = nth < np.abs(sums)[ids]
    return kept


def _is_value(name: str) -> bool:
    return name.startswith("c") and name[1:].isdigit()


def _as_events(events: pa.Table, left: Flags, moments: Ints, appears: Flags) -> pa.Table:
    """The events that are left: of a moment that has both, a PUT; DELETEs first where that can't be."""
    came = np.bincount(moments[left & appears], minlength=int(moments.max()) + 1)
    went = np.bincount(moments[left & ~appears], minlength=len(came))
    put = (came == 1) & (went == 1)
    chosen = left & ~(put[moments] & ~appears)
    kinds: npt.NDArray[np.uint8] = np.where(
        put[moments] & appears, KeyEvent.PUT, ints(events, "_event")
    ).astype(np.uint8)
    ordinals = ints(events, "_ordinal")
    wrong = (came + went > 1) & ~put
    if wrong.any():
        first = np.full(len(came), np.iinfo(np.int64).max)
        np.minimum.at(first, moments, ordinals)
        ordinals = np.where(wrong[moments], first[moments], ordinals)
    rows = pa.array(np.flatnonzero(chosen))
    netted = {"_event": pa.array(kinds), "_ordinal": pa.array(ordinals)}
    for name, values in netted.items():
        events = events.set_column(events.column_names.index(name), name, values)
    return events.take(rows)
