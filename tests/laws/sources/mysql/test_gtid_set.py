"""Laws of GTID sets: inclusion is a partial order, and a union the least set above both."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.sources.mysql.gtid_set import Gtid, GtidSet
from tests.laws.core.times import ORIGINS

LAWS = settings(max_examples=100, deadline=None)
SPANS = st.tuples(st.integers(1, 12), st.integers(1, 4)).map(lambda pair: (pair[0], sum(pair)))
SETS = st.dictionaries(st.sampled_from(ORIGINS), st.lists(SPANS, max_size=3), max_size=3).map(GtidSet.of)
UNIVERSE = [Gtid(origin, number) for origin in ORIGINS for number in range(1, 20)]


def _members(some: GtidSet) -> set[Gtid]:
    return {name for name in UNIVERSE if name in some}


@LAWS
@given(SETS)
def test_a_mask_says_of_many_what_membership_says_of_one(some: GtidSet) -> None:
    names = pa.array(map(str, UNIVERSE))
    assert some.mask(names).to_pylist() == [name in some for name in UNIVERSE]
    assert some.mask(names.slice(7)).to_pylist() == [name in some for name in UNIVERSE[7:]]
    twice = pa.chunked_array([names, names])
    assert some.mask(twice).to_pylist() == 2 * [name in some for name in UNIVERSE]


@LAWS
@given(SETS, SETS)
def test_the_order_of_sets_is_inclusion(one: GtidSet, other: GtidSet) -> None:
    assert (one <= other) == (_members(one) <= _members(other))
    assert (one == other) == (one <= other and other <= one)


@LAWS
@given(SETS, SETS, SETS)
def test_a_union_is_the_least_set_above_both(one: GtidSet, other: GtidSet, third: GtidSet) -> None:
    both = one | other
    assert _members(both) == _members(one) | _members(other)
    assert one <= both
    assert other <= both
    assert (both <= third) == (one <= third and other <= third)
    assert both == other | one


@LAWS
@given(SETS)
def test_a_set_survives_being_printed(some: GtidSet) -> None:
    assert GtidSet.parse(str(some)) == some


@LAWS
@given(SETS, st.sampled_from(UNIVERSE))
def test_a_set_counts_its_transactions_so_that_each_further_one_adds_one(some: GtidSet, name: Gtid) -> None:
    assert some.count == len(list(some))
    more = some | GtidSet.of({name.origin: [(name.number, name.number + 1)]})
    assert more.count == some.count + (name not in some)
