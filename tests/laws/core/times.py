"""Three kinds of time, so that every law about times runs over each of them.

A `Clock` names the transactions of a history, numbered in the order of their commits, in one kind of
time. `cut(numbers)` is the frontier that covers exactly these transactions: any prefix for LSNs and
ticks, any set at all for GTIDs, gaps included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from headrace.core.frontier import AnyFrontier, GtidFrontier, LsnFrontier, Tick, TickFrontier, gtid_times
from headrace.core.gtid import Gtid, GtidSet, Origin
from headrace.core.position import Lsn

SERVERS = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", "ed102faf-eb00-11eb-8f20-0c5415bfaa1d")
ORIGINS = tuple(Origin(server, tag) for server in SERVERS for tag in ("", "audit"))


@dataclass(frozen=True)
class Clock:
    """The times of transactions 0, 1, 2, ... in one kind of time."""

    kind: str
    times: tuple[Any, ...]
    column: Callable[[list[int]], pa.Array]  # the times of transactions, as an Arrow array
    cut: Callable[[Iterable[int]], AnyFrontier]
    partial: bool  # whether any set of transactions has a frontier, or prefixes only


def _numbers(kind: str, values: list[int]) -> Clock:
    def cut(numbers: Iterable[int]) -> AnyFrontier:
        count = len(set(numbers))
        # The exclusive reading: the first time that is *not* covered is a frontier, and so is the next
        # number after the last one that is.
        bound = values[count] if count < len(values) else (values[-1] + 1 if values else 1)
        return LsnFrontier(Lsn(bound)) if kind == "lsn" else TickFrontier(Tick(bound))

    times: tuple[Any, ...] = tuple(Lsn(value) if kind == "lsn" else Tick(value) for value in values)
    return Clock(kind, times, lambda some: pa.array([values[i] for i in some], pa.int64()), cut, False)


def _gtids(names: list[Gtid]) -> Clock:
    def cut(numbers: Iterable[int]) -> AnyFrontier:
        spans: dict[Origin, list[tuple[int, int]]] = {}
        for number in numbers:
            gtid = names[number]
            spans.setdefault(gtid.origin, []).append((gtid.number, gtid.number + 1))
        return GtidFrontier(GtidSet.of(spans))

    return Clock("gtid", tuple(names), lambda some: gtid_times([names[i] for i in some]), cut, True)


@st.composite
def clocks(draw: st.DrawFn, size: int) -> Clock:
    """A clock for `size` transactions, of any kind."""
    kind = draw(st.sampled_from(["lsn", "tick", "gtid"]))
    if kind == "gtid":
        names = st.builds(Gtid, st.sampled_from(ORIGINS), st.integers(1, 3 * size + 3))
        return _gtids(draw(st.lists(names, min_size=size, max_size=size, unique=True)))
    steps = draw(st.lists(st.integers(1, 3), min_size=size, max_size=size))
    values = [sum(steps[: i + 1]) for i in range(size)]
    return _numbers(kind, values)


def frontiers(kind: str) -> st.SearchStrategy[AnyFrontier]:
    """Frontiers of one kind, near enough to each other to meet."""
    if kind == "lsn":
        return st.builds(lambda n: LsnFrontier(Lsn(n)), st.integers(0, 12))
    if kind == "tick":
        return st.builds(lambda n: TickFrontier(Tick(n)), st.integers(0, 12))
    span = st.tuples(st.integers(1, 12), st.integers(1, 4)).map(lambda pair: (pair[0], sum(pair)))
    spans = st.dictionaries(st.sampled_from(ORIGINS), st.lists(span, max_size=3), max_size=3)
    return spans.map(lambda found: GtidFrontier(GtidSet.of(found)))


def universe(kind: str) -> tuple[list[Any], pa.Array]:
    """All times that `frontiers` of this kind can tell apart: as values and as a column."""
    if kind == "gtid":
        gtids = [Gtid(origin, number) for origin in ORIGINS for number in range(1, 20)]
        return list(gtids), gtid_times(gtids)
    times: list[Any] = [Lsn(n) if kind == "lsn" else Tick(n) for n in range(20)]
    return times, pa.array(range(20), pa.int64())
