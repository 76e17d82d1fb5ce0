"""Laws of MariaDB's positions: a partial order, what it covers, and the first position behind two."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.sources.mysql.mariadb_position import MariadbGtid, MariadbPosition

LAWS = settings(max_examples=100, deadline=None)
DOMAINS, SERVERS, NUMBERS = range(3), (1, 2), range(1, 6)
UNIVERSE = [MariadbGtid(*each) for each in ((d, s, n) for d in DOMAINS for s in SERVERS for n in NUMBERS)]
POSITIONS = st.lists(st.sampled_from(UNIVERSE), unique_by=lambda gtid: gtid.domain).map(MariadbPosition.of)


def _covered(position: MariadbPosition) -> set[MariadbGtid]:
    return {gtid for gtid in UNIVERSE if gtid in position}


@LAWS
@given(POSITIONS, POSITIONS, POSITIONS)
def test_positions_are_partly_ordered(
    one: MariadbPosition, other: MariadbPosition, third: MariadbPosition
) -> None:
    assert one <= one
    assert (one == other) == (one <= other and other <= one)
    assert not (one <= other and other <= third) or one <= third


@LAWS
@given(POSITIONS, POSITIONS)
def test_a_later_position_covers_all_that_an_earlier_one_does(
    one: MariadbPosition, other: MariadbPosition
) -> None:
    if one <= other:
        assert _covered(one) <= _covered(other)
        assert one.count < other.count or one == other
    elif _covered(one) <= _covered(other):
        # Covered by their numbers, but one of them was given out by another server.
        assert any(gtid not in other.newest and other.last(gtid.domain) is not None for gtid in one.newest)


@LAWS
@given(POSITIONS)
def test_a_mask_says_of_many_what_membership_says_of_one(position: MariadbPosition) -> None:
    names = pa.array(map(str, UNIVERSE))
    assert position.mask(names).to_pylist() == [gtid in position for gtid in UNIVERSE]
    assert position.mask(names.slice(7)).to_pylist() == [gtid in position for gtid in UNIVERSE[7:]]


@LAWS
@given(POSITIONS, POSITIONS, POSITIONS)
def test_a_union_is_the_first_position_behind_both(
    one: MariadbPosition, other: MariadbPosition, third: MariadbPosition
) -> None:
    both = one.union(other)
    assert both == other.union(one)
    if both is None:
        # Where they parted there is no first position behind both: any next number would do.
        assert any(
            mine.number == last.number and mine.server != last.server
            for mine in one.newest
            for last in other.newest
            if mine.domain == last.domain
        )
    else:
        assert one <= both
        assert other <= both
        assert not (one <= third and other <= third) or both <= third


@LAWS
@given(POSITIONS, st.sampled_from(UNIVERSE))
def test_behind_a_further_transaction_lies_what_was_covered_and_it(
    position: MariadbPosition, gtid: MariadbGtid
) -> None:
    if gtid not in position:
        later = position.behind(gtid)
        assert position <= later
        assert gtid in later
        assert later.last(gtid.domain) == gtid
        assert position.count < later.count


@LAWS
@given(POSITIONS)
def test_a_position_survives_being_printed(position: MariadbPosition) -> None:
    assert MariadbPosition.parse(str(position)) == position
