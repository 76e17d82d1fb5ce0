"""Laws of joining: whatever moment a table was copied at, it is the same table.

Random worlds, random snapshots: those of a slot (a prefix of the commits), and those of xids and GTID
sets, which hold later commits and not earlier ones. A real snapshot is closed under cause: a transaction
that touched a row after another one is visible only if that one is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from functools import reduce
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.collection import as_multiset, consolidate, of_rows
from headrace.core.handoff import HANDOFFS, ByPosition, BySet, ByXid, Handoff
from headrace.core.records import from_record, to_record
from headrace.sources.mysql.gtid_set import Gtid, GtidSet
from headrace_testing.reference.contents import accumulate
from headrace_testing.reference.rewind import rewind, skip
from tests.laws.core.times import Clock, clocks
from tests.laws.core.worlds import Row, World, rows, table, worlds

LAWS = settings(max_examples=60, deadline=None)
Case = tuple[World, Clock, int, set[int]]
Names = list[int] | list[Gtid]


def _closed(world: World, wanted: Iterable[int]) -> set[int]:
    """The wanted transactions whose causes are wanted as well."""
    hidden_keys: set[int] = set()
    visible = set()
    for number in range(len(world.transactions)):
        if number in set(wanted) and not world.keys(number) & hidden_keys:
            visible.add(number)
        else:
            hidden_keys |= world.keys(number)
    return visible


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A world, a clock, how many transactions come before the stream starts, and those of the snapshot."""
    world = draw(worlds(min_transactions=3, most_changes=2))
    size = len(world.transactions)
    clock = draw(clocks(size))
    everything = set(range(size))
    started = draw(st.integers(0, 2))
    running = set(draw(st.lists(st.integers(started, size - 1), min_size=1, max_size=2)))
    return world, clock, started, _closed(world, (everything - running) | set(range(started)))


def _updates(world: World, clock: Clock, names: Names, narrow: bool) -> pa.Table:
    history = world.history()
    times = clock.column([number for number, _, _, _ in history])
    named = _named([names[number] for number, _, _, _ in history], narrow)
    found = table([row for _, _, _, row in history]).append_column("_time", times)
    found = found.append_column("_transaction", named)
    return found.append_column("_diff", pa.array([diff for _, _, diff, _ in history], pa.int64()))


def _named(names: list[Any], narrow: bool) -> pa.Array:
    """The names of transactions: GTIDs, or xids of 64 bits or 32."""
    if names and isinstance(names[0], Gtid):
        return pa.array(map(str, names))
    numbers = [xid & 0xFFFFFFFF if narrow else xid for xid in names]
    return pa.array(numbers, pa.uint32() if narrow else pa.int64())


def _holding(world: World, transactions: set[int]) -> Counter[Row]:
    """Contents of the table after exactly these transactions."""
    held = Counter(world.start.values())
    for number, _, diff, row in world.history():
        if number in transactions:
            held[row] += diff
    assert all(count >= 0 for count in held.values())
    return +held


def _collection(held: Counter[Row]) -> pa.Table:
    return of_rows(table(list(held.elements())))


def _counted(collection: pa.Table) -> Counter[Row]:
    return Counter(rows(as_multiset(collection)))


@st.composite
def handoffs(draw: st.DrawFn, world: World, clock: Clock, held: set[int]) -> tuple[Handoff, Names]:
    """A handoff that holds exactly these transactions, and names for all."""
    size = len(world.transactions)
    # The second base lets xids run over the edge where the 32-bit ones begin anew.
    base = draw(st.sampled_from([3, (1 << 32) - 4, 7 << 32]))
    xids = [base + i for i in draw(st.permutations(range(size)))]
    is_prefix = held == set(range(len(held)))
    if is_prefix and draw(st.booleans()):
        return ByPosition(clock.cut(len(held))), xids
    until = clock.cut(max(held, default=-1) + 1) if draw(st.booleans()) else None
    if draw(st.booleans()):
        executed = [clock.names[number] for number in held]
        return BySet(_set_of(executed), until), list(clock.names)
    hidden = sorted(xids[i] for i in range(size) if i not in held)
    top = max((xids[i] for i in held), default=base - 1) + 1
    xmax = top + draw(st.integers(0, 3))
    xip = tuple(xid for xid in hidden if xid < xmax)
    xmin = min((*xip, xmax))
    return ByXid(xmin, xmax, xip, until), xids


def _set_of(names: Collection[Gtid]) -> GtidSet:
    return GtidSet.of({}) if not names else reduce(GtidSet.__or__, (_just(name) for name in names))


def _just(name: Gtid) -> GtidSet:
    return GtidSet.of({name.origin: [(name.number, name.number + 1)]})


@LAWS
@given(cases(), st.data(), st.booleans())
def test_a_snapshot_rewound_is_the_table_at_the_start_of_the_stream(
    case: Case, data: st.DataObject, narrow: bool
) -> None:
    world, clock, start, held = case
    handoff, xids = data.draw(handoffs(world, clock, held))
    handoff = handoff if isinstance(handoff, BySet) else from_record(HANDOFFS, to_record(handoff))
    snapshot = _collection(_holding(world, held))
    found = rewind(snapshot, _updates(world, clock, xids, narrow), clock.cut(start), handoff)
    assert _counted(found) == _holding(world, set(range(start)))


@LAWS
@given(cases(), st.data(), st.booleans())
def test_a_snapshot_and_what_it_does_not_hold_make_the_end(
    case: Case, data: st.DataObject, narrow: bool
) -> None:
    world, clock, _, held = case
    handoff, xids = data.draw(handoffs(world, clock, held))
    later = skip(_updates(world, clock, xids, narrow), handoff).drop_columns(["_time", "_transaction"])
    found = consolidate(pa.concat_tables([_collection(_holding(world, held)), later]))
    assert _counted(found) == Counter(world.end.values())


@LAWS
@given(cases())
def test_contents_from_an_earlier_and_from_a_later_mark_agree(case: Case) -> None:
    world, clock, early, _ = case
    later = set(range(len(world.transactions)))
    updates = _updates(world, clock, [0] * len(world.transactions), False).drop_columns(["_transaction"])
    at = clock.cut(early)
    expected = _holding(world, set(range(early)))
    assert _counted(rewind(_collection(_holding(world, later)), updates, at)) == expected
    whole = pa.concat_tables([_collection(Counter(world.start.values())), accumulate(updates, at)])
    assert _counted(consolidate(whole)) == expected


def test_the_snapshots_drawn_here_are_often_no_prefix() -> None:
    """The laws above are about these: were none drawn, they would claim too much."""
    others: list[int] = []

    @settings(max_examples=60, deadline=None, database=None, derandomize=True)
    @given(cases())
    def look(case: Case) -> None:
        held = case[3]
        others.append(held != set(range(len(held))))

    look()
    assert sum(others) > 10
