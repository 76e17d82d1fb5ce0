"""Times of transactions, so that every law about times runs over gaps between them.

A `Clock` names the transactions of a history, numbered in the order of their commits: by times that grow,
with gaps, and by GTIDs of several servers, in any order. `cut` gives the position behind the first so many.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st

from headrace.core.position import Position
from headrace.sources.mysql.gtid_set import Gtid, GtidOrigin
from tests.places import place_at

SERVERS = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", "ed102faf-eb00-11eb-8f20-0c5415bfaa1d")
ORIGINS = tuple(GtidOrigin(server, tag) for server in SERVERS for tag in ("", "audit"))


@dataclass(frozen=True)
class Clock:
    """The times and the GTIDs of transactions 0, 1, 2, ..."""

    times: tuple[int, ...]
    names: tuple[Gtid, ...]

    def column(self, some: list[int]) -> pa.Array:
        """The times of transactions, as an Arrow array."""
        return pa.array([self.times[number] for number in some], pa.int64())

    def cut(self, count: int) -> Position:
        """The position that covers the first so many transactions.

        The exclusive reading: the first time that is *not* covered is one, and so is the next number after
        the last one that is.
        """
        return place_at(self.times[count] if count < len(self.times) else max(self.times, default=0) + 1)


@st.composite
def clocks(draw: st.DrawFn, size: int) -> Clock:
    """A clock for `size` transactions."""
    steps = draw(st.lists(st.integers(1, 3), min_size=size, max_size=size))
    names = st.builds(Gtid, st.sampled_from(ORIGINS), st.integers(1, 3 * size + 3))
    return Clock(
        tuple(sum(steps[: number + 1]) for number in range(size)),
        tuple(draw(st.lists(names, min_size=size, max_size=size, unique=True))),
    )
