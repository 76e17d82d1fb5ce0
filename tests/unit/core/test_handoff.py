"""Handoffs: what a snapshot holds of a stream."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from headrace.core.errors import Misconfigured
from headrace.core.handoff import HANDOFFS, ByPosition, BySet, ByXid, by_name, widen
from headrace.core.records import from_record, to_record
from headrace.sources.mysql.gtid_set import GtidSet
from headrace.sources.postgres.position import Lsn, PostgresTimeline
from tests.places import place_at

WRAP = 1 << 32


def _held(snapshot: str, xids: list[int]) -> list[bool]:
    times = pa.array(range(len(xids)), pa.int64())
    found: list[bool] = ByXid.parse(snapshot).holds(times, pa.array(xids, pa.int64())).to_pylist()
    return found


def test_running_transactions_and_later_ones_are_not_held() -> None:
    assert _held("10:20:10,14", [9, 10, 11, 14, 19, 20, 21]) == [True, False, True, False, True, False, False]
    assert _held("5:5:", [4, 5]) == [True, False]


def test_a_subtransaction_is_decided_by_its_top_level_xid() -> None:
    """12 is a sub-transaction of 10, which runs: its own number would pass for a finished one."""
    snapshot = "10:20:10"
    assert _held(snapshot, [12]) == [True]
    assert _held(snapshot, [10]) == [False]


def test_a_transaction_is_not_held_for_being_early_in_the_log() -> None:
    """The commit of 14 is in the log (time 0) before that of 11, and still not visible."""
    held = ByXid.parse("14:15:14").holds(pa.array([0, 1], pa.int64()), pa.array([14, 11], pa.int64()))
    assert held.to_pylist() == [False, True]


def test_narrow_xids_are_widened_across_the_edge_of_four_billion() -> None:
    narrow = pa.array([WRAP - 2, WRAP - 1, 3, 4], pa.uint32())
    assert widen(narrow, WRAP + 5).to_pylist() == [WRAP - 2, WRAP - 1, WRAP + 3, WRAP + 4]
    assert widen(narrow, 2 * WRAP - 5).to_pylist() == [2 * WRAP - 2, 2 * WRAP - 1, 2 * WRAP + 3, 2 * WRAP + 4]
    snapshot = ByXid.parse(f"{WRAP - 1}:{WRAP + 4}:{WRAP - 1}")
    assert snapshot.holds(pa.array([1, 2, 3, 4]), narrow).to_pylist() == [True, False, True, False]


def test_wide_xids_are_taken_as_they_are() -> None:
    assert widen(pa.array([3], pa.int64()), 2 * WRAP).to_pylist() == [3]


def test_past_the_settled_frontier_an_xid_that_came_round_again_is_not_held() -> None:
    snapshot = ByXid.parse("10:20:", place_at(1000))
    xids = pa.array([15, 15], pa.uint32())
    assert snapshot.holds(pa.array([999, 1000]), xids).to_pylist() == [True, False]


@pytest.mark.parametrize("xids", [pa.array([-1], pa.int64()), pa.array([None], pa.int64())])
def test_a_transaction_without_an_xid_is_refused(xids: pa.Array) -> None:
    with pytest.raises(ValueError, match="without an xid"):
        ByXid.parse("10:20:").holds(pa.array([1]), xids)


def test_a_position_holds_what_lies_before_it() -> None:
    handoff = ByPosition(place_at(7))
    assert handoff.holds(pa.array([6, 7]), pa.nulls(2, pa.int64())).to_pylist() == [True, False]


@pytest.mark.parametrize(
    "handoff",
    [
        ByPosition(PostgresTimeline().position(Lsn.parse("16/B374D848"))),
        ByXid.parse("10:20:10,14"),
        ByXid.parse(f"{WRAP}:{WRAP}:", place_at(7)),
    ],
)
def test_a_handoff_survives_being_written_down(handoff: ByPosition | ByXid) -> None:
    assert from_record(HANDOFFS, json.loads(json.dumps(to_record(handoff)))) == handoff


@pytest.mark.parametrize("text", ["", "10:20", "10:20:10,", "20:10:", "a:b:", "10:20:10;11"])
def test_what_is_no_snapshot_is_refused(text: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        ByXid.parse(text)
    assert caught.value.code == "SNAPSHOT_MALFORMED"


def test_by_name_a_transaction_is_held_whatever_its_time() -> None:
    late = pa.array([10_000], pa.int64())
    seven, ten = pa.array([7], pa.int64()), pa.array([10], pa.int64())
    snapshot = ByXid.parse("10:20:10", place_at(1000))
    assert not snapshot.holds(late, seven)[0].as_py()
    assert by_name(snapshot).holds(late, seven)[0].as_py()
    assert not by_name(snapshot).holds(late, ten)[0].as_py()
    assert by_name(snapshot).floor == 10
    server = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    executed = GtidSet.parse(f"{server}:1-5")
    shown = by_name(BySet(executed, place_at(1000)))
    names = pa.array([f"{server}:5", f"{server}:6"])
    assert shown.holds(pa.array([10_000, 10_000], pa.int64()), names).to_pylist() == [True, False]
    assert shown.floor is None
    assert str(shown) == str(executed)
