"""Fold: apply a list of key events to a table's rows, and record exactly what happened to each.

For every key, its events apply to the key's row, if there is one, in the order of (time, ordinal, DELETE
before INSERT):

    INSERT   no row is there       the row appears              history: +1
    PUT      a row is there        the row becomes another      history: -1 the row before, +1 the row
    DELETE   a row is there        the row goes                 history: -1 the row before, whole

and a truncation is a DELETE of every key that has a row when it comes (`core.truncation`).

The row before comes from the state and not from the event. So history is whole however little of an old row
the source sends, and values that were not sent (holes) are carried forward from that row. After a change of
key they are under the old key as it was at that moment: both keys must be in one fold.

The fold reports events that do not fit, and never guesses:

    missing    keys at which a PUT or DELETE met no row
    conflict   keys at which an INSERT met a row (the new row counts, the old one goes to history as -1)
    holes      keys of rows with a value that is nowhere; these rows are left out, not filled with NULL

A caller that gets one of them does not publish. If there is none, contents(base) + history = final, and
folding in any split into epochs gives equal history and equal final rows. The fold is pure, and does about a
million events a second for ten columns. Rows and history come with wide offsets (`core.columns`): a column
may pass 2 GiB here.

For that, the present rows and the events of some keys are laid out as timelines (`Lives`), ordered by key and
then by time. They answer, for each position of that order, from which row a column's value is to be read. No
value is touched there: all of it is arithmetic on positions.

    position    0     1    2    3       4     5       6
    key         a     a    a    a       b     b       c
    what        BASE  PUT  PUT  DELETE  BASE  DELETE  INSERT (from b, same change as 5)
    column x    7     -    9    .       5     .       -            - was not sent, . is of no interest
    anchor      0     0    2            4             6            the last position that knows x, or
                                                                   else the one where the life began
    source      0     0    2            4             4            where the value stands

A life begins with a BASE row or an INSERT, or, wrongly, with a PUT where no row was. Within a life a
value that was not sent is the last one known, which `np.maximum.accumulate` finds for all positions at
once. A life that begins with a hole (a change of key that left a long value out) takes the value from where
the row was before: the position before the DELETE of the same change. That may be such a life again (k1 → k2
→ k3), so these are followed in rounds, each of which doubles the distance. Each step leads back in time, so
there are no cycles, not even in swaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.columns import Flags, Ints, column, flags_or_none_set, ints, wide, wide_schema
from headrace.core.errors import Definite
from headrace.core.history import history_schema
from headrace.core.key_events import KeyEvent
from headrace.core.keycode import keycode
from headrace.core.row_groups import Groups, by_group, rank
from headrace.core.schema import TableSchema
from headrace.core.truncation import Truncation, ends

# --- timelines ------------------------------------------------------------------------------------


NOWHERE = -1


class What(IntEnum):
    """The thing at a position; the events' own numbers, and one for the present rows."""

    BASE = 0
    INSERT = 1
    PUT = 2
    DELETE = 3


@dataclass(frozen=True, slots=True)
class Lives:
    """The timelines. Rows are numbered base first, then events in the order of the log.

    row[p]      the row at position p
    place[r]    the position of row r
    what[p]     What
    alive[p]    there is a row before position p happens
    begins[p]   a life begins here
    ends[p]     the last position of its key
    """

    row: Ints
    place: Ints
    what: npt.NDArray[np.uint8]
    alive: Flags
    begins: Flags
    ends: Flags

    @classmethod
    def of(cls, keys: Groups, what: npt.NDArray[np.uint8]) -> Lives:
        """Lay out rows of these keys (in ranks), given what each of them is."""
        row = by_group(keys.ids)
        place = np.empty_like(row)
        place[row] = np.arange(len(row))
        what = what[row]
        ids = keys.ids[row]
        first = np.ones(len(row), np.bool_)
        first[1:] = ids[1:] != ids[:-1]
        ends = np.ones(len(row), np.bool_)
        ends[:-1] = first[1:]
        alive = np.zeros(len(row), np.bool_)
        alive[1:] = ~first[1:] & (what[:-1] != What.DELETE)
        begins = (what <= What.INSERT) | ((what == What.PUT) & ~alive)
        return cls(row, place, what, alive, begins, ends)

    def sources(self, hole: Flags, came_from: Ints) -> Ints:
        """For each position the position where a column's value stands, or NOWHERE.

        `hole` tells, by row, where the column's value was not sent; `came_from` gives, by row, the
        row of the DELETE of the same change, or NOWHERE.
        """
        holes = hole[self.row]
        standing = np.where(self.begins | ~(holes | (self.what == What.DELETE)))[0]
        anchor = np.full(len(holes), NOWHERE, np.int64)
        anchor[standing] = standing
        anchor = np.maximum.accumulate(anchor)
        open_at = np.flatnonzero(self.begins & holes)
        return self._follow(anchor, open_at, came_from) if len(open_at) else anchor

    def _follow(self, anchor: Ints, open_at: Ints, came_from: Ints) -> Ints:
        """Lead the lives that begin with a hole to where their value stands."""
        goal = np.arange(len(anchor))
        goal[open_at] = self._before(anchor, came_from[self.row[open_at]])
        is_open = np.zeros(len(anchor), np.bool_)
        is_open[open_at] = True
        while True:
            ahead = goal[open_at]
            further = (ahead != NOWHERE) & is_open[ahead]
            if not further.any():
                return np.where(anchor == NOWHERE, NOWHERE, goal[anchor])
            goal[open_at[further]] = goal[ahead[further]]

    def _before(self, anchor: Ints, deleted: Ints) -> Ints:
        """The places where the rows that these DELETEs removed had their value."""
        at = self.place[deleted]
        # A DELETE knows no value, so that its anchor is still that of the row it removed.
        return np.where((deleted != NOWHERE) & self.alive[at], anchor[at], NOWHERE)


# --- the fold -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Stage:
    """The rows that a fold works on: base rows, then events, laid out as lives."""

    schema: TableSchema
    base: pa.Table
    events: pa.Table
    codes: pa.Array
    keys: Groups
    lives: Lives

    def codes_at(self, positions: Flags) -> pa.Array:
        """Return the distinct keycodes at the marked positions, in order."""
        hit = np.zeros(len(self.keys.first), np.bool_)
        hit[self.keys.ids[self.lives.row[positions]]] = True
        return self.codes.take(pa.array(self.keys.first[hit]))


@dataclass(frozen=True, slots=True)
class _Values:
    """The places of values: for each column a list of source positions; None: the positions themselves."""

    sources: tuple[Ints | None, ...]
    lost_rows: Flags  # positions that lack a value


@dataclass(frozen=True, slots=True)
class FoldResult:
    """The outcome of a fold. Keycodes are distinct and in order; `final` is in the order of `keys`."""

    final: pa.Table  # the rows afterwards, also those of untouched keys
    keys: pa.Array  # the keycode of each row of `final`
    missing: pa.Array
    conflict: pa.Array
    holes: pa.Array
    _stage: _Stage = field(repr=False, compare=False)
    _values: _Values = field(repr=False, compare=False)

    def history(self) -> pa.Table:
        """Return exactly what happened to the rows: twice their size, so made only on request."""
        return _history(self._stage, self._values)


def fold(
    schema: TableSchema, events: pa.Table, base: pa.Table, truncations: Sequence[Truncation] = ()
) -> FoldResult:
    """Apply the events to the present rows (`schema.arrow()`) of their keys, and to no others.

    A truncation removes the rows that these keys have at its place.
    """
    stage = _stage(schema, in_order(wide(events)), wide(base), truncations)
    lives = stage.lives
    values = _trace(stage)
    present = lives.ends & (lives.what != What.DELETE)
    last = np.flatnonzero(present & ~values.lost_rows)
    met_none = ((lives.what == What.PUT) | (lives.what == What.DELETE)) & ~lives.alive
    met_one = (lives.what == What.INSERT) & lives.alive
    return FoldResult(
        final=pa.Table.from_arrays(_take(stage, values, last), schema=wide_schema(schema.arrow())),
        keys=stage.codes.take(pa.array(lives.row[last])),
        missing=stage.codes_at(met_none),
        conflict=stage.codes_at(met_one),
        holes=stage.codes_at(values.lost_rows),
        _stage=stage,
        _values=values,
    )


def in_order(events: pa.Table) -> pa.Table:
    """Sort the events by time, ordinal, and DELETE before INSERT; mostly they are sorted already."""
    time, ordinal = ints(events, "_time"), ints(events, "_ordinal")
    appears = ints(events, "_event") != KeyEvent.DELETE
    later = _later(time, _later(ordinal, appears[1:] >= appears[:-1]))
    if later.all():
        return events
    return events.take(pa.array(np.lexsort((appears, ordinal, time))))


def _later(values: Ints, if_equal: Flags) -> Flags:
    """Tell for each value but the first whether it is at least the one before it."""
    return np.asarray((values[1:] > values[:-1]) | ((values[1:] == values[:-1]) & if_equal))


def _stage(
    schema: TableSchema, events: pa.Table, base: pa.Table, truncations: Sequence[Truncation]
) -> _Stage:
    base_codes = keycode([base.column(name) for name in schema.key])
    if truncations:
        events = in_order(pa.concat_tables([events, ends(truncations, events, base_codes)]))
    codes = pa.concat_arrays([base_codes, column(events, "_key")])
    keys = rank(codes)
    what = np.zeros(len(codes), np.uint8)
    what[base.num_rows :] = ints(events, "_event")
    lives = Lives.of(keys, what)
    doubled = int(((lives.what == What.BASE) & lives.alive).sum())
    if doubled:
        raise Definite(
            "FOLD_KEY_NOT_UNIQUE",
            f"the lake holds {doubled} rows with the key of another row",
            hint="headrace tables resync copies it anew",
        )
    return _Stage(schema, base, events, codes, keys, lives)


def _trace(stage: _Stage) -> _Values:
    """Find the place of every value of every column."""
    rows = len(stage.codes)
    came_from = _came_from(stage)
    sources: list[Ints | None] = []
    lost = np.zeros(rows, np.bool_)
    for index in range(len(stage.schema.columns)):
        hole = np.zeros(rows, np.bool_)
        hole[stage.base.num_rows :] = flags_or_none_set(stage.events, f"u{index}")
        if not hole.any():
            sources.append(None)
            continue
        found = stage.lives.sources(hole, came_from)
        # Nobody needs the values that a DELETE would read; they may lie beyond its key.
        lost |= (found == NOWHERE) & (stage.lives.what != What.DELETE)
        sources.append(found)
    return _Values(tuple(sources), lost)


def _came_from(stage: _Stage) -> Ints:
    """Find for each row that of the same change's DELETE, which stands just before its INSERT."""
    start, rows = stage.base.num_rows, len(stage.codes)
    came_from = np.full(rows, NOWHERE, np.int64)
    moved = np.flatnonzero(np.asarray(column(stage.events, "_from").is_valid()))
    moved = moved[moved > 0]
    time, ordinal = ints(stage.events, "_time"), ints(stage.events, "_ordinal")
    same = (time[moved] == time[moved - 1]) & (ordinal[moved] == ordinal[moved - 1])
    moved = moved[same & (ints(stage.events, "_event")[moved - 1] == KeyEvent.DELETE)]
    came_from[start + moved] = start + moved - 1
    return came_from


def _history(stage: _Stage, values: _Values) -> pa.Table:
    """Make the history: each event's row before (-1) and after (+1), in the order of the log."""
    lives, start = stage.lives, stage.base.num_rows
    at = lives.place[start:]
    before = lives.alive[at] & ~values.lost_rows[at - 1]
    after = (lives.what[at] != What.DELETE) & ~values.lost_rows[at]
    event = np.repeat(np.arange(len(at)), before.astype(np.int64) + after)
    first = np.ones(len(event), np.bool_)
    first[1:] = event[1:] != event[:-1]
    old = first & before[event]
    chosen = pa.array(event)

    def of_event(name: str) -> pa.Array:
        return column(stage.events, name).take(chosen)

    ours = [of_event("_time"), pa.array(np.where(old, -1, 1), pa.int64())]
    ours += [of_event(name) for name in ("_ordinal", "_transaction", "_commit_ts")]
    rows = _take(stage, values, at[event] - old)
    return pa.Table.from_arrays([*rows, *ours], schema=wide_schema(history_schema(stage.schema)))


def _take(stage: _Stage, values: _Values, positions: Ints) -> list[pa.Array]:
    """Take the columns of the rows as they were at these positions."""
    taken: list[pa.Array] = []
    plain = pa.array(stage.lives.row[positions])
    for index, name in enumerate(stage.schema.names):
        source = values.sources[index]
        rows = plain if source is None else pa.array(stage.lives.row[source[positions]])
        both = [column(stage.base, name), column(stage.events, f"c{index}")]
        taken.append(pa.concat_arrays(both).take(rows))
    return taken
