"""Frontiers are read exclusively, and refuse what they can't judge."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.core.errors import Misconfigured
from headrace.core.frontier import GtidFrontier, LsnFrontier, Tick, TickFrontier, frontier_of, gtid_times
from headrace.core.gtid import Gtid, GtidSet
from headrace.core.position import Lsn

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def test_a_commit_that_starts_at_the_frontier_is_not_covered() -> None:
    frontier = LsnFrontier(Lsn.parse("0/1000"))
    assert frontier.mask(pa.array([0xFFF, 0x1000, 0x1001])).to_pylist() == [True, False, False]
    assert not frontier.covers(Lsn.parse("0/1000"))


def test_a_set_covers_what_it_names_and_not_its_gaps() -> None:
    frontier = GtidFrontier(GtidSet.parse(f"{SERVER}:1-2:4:audit:1"))
    names = [f"{SERVER}:{n}" for n in (1, 2, 3, 4, 5)] + [f"{SERVER}:audit:1", f"{SERVER}:audit:2"]
    times = gtid_times([Gtid.parse(name) for name in names])
    assert frontier.mask(times).to_pylist() == [True, True, False, True, False, True, False]
    assert GtidFrontier(GtidSet()).mask(times).to_pylist() == [False] * 7


def test_chunked_columns_are_masked_as_one() -> None:
    times = pa.chunked_array([[1, 2], [], [3]], pa.int64())
    assert TickFrontier(Tick(3)).mask(times).to_pylist() == [True, True, False]


def test_an_update_without_a_time_is_refused() -> None:
    with pytest.raises(ValueError, match="without a time"):
        LsnFrontier(Lsn(5)).mask(pa.array([1, None]))


@pytest.mark.parametrize(
    ("kind", "text", "code"),
    [
        ("lsn", "16B374D848", "POSITION_MALFORMED"),
        ("tick", "-1", "POSITION_MALFORMED"),
        ("tick", "²", "POSITION_MALFORMED"),
        ("gtid", "0-1-7", "POSITION_MALFORMED"),
        ("scn", "7", "POSITION_KIND_UNKNOWN"),
    ],
)
def test_a_position_that_cannot_be_read_is_a_coded_error(kind: str, text: str, code: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        frontier_of(kind, text)
    assert caught.value.code == code
