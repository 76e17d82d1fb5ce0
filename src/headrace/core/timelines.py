"""Lives: the rows of some keys laid out as timelines, and where each value of them comes from.

`fold` puts the present rows and the events of some keys side by side; this module orders them by key
and then by time, and answers, for each position of that order, from which row a column's value is to be
read. No value is touched here: all of it is arithmetic on positions.

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

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from headrace.core.columns import Flags, Ints
from headrace.core.row_groups import Groups, by_group

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
