"""Laws of positions in a binlog: time from text, growth, prepared transactions, a later life."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.errors import Misconfigured
from headrace.core.position import STEP, Position
from headrace.sources.mysql.gtid_set import Gtid, GtidOrigin, GtidSet
from headrace.sources.mysql.mariadb_position import MariadbGtid, MariadbPosition
from headrace.sources.mysql.position import (
    LoggedTransaction,
    MariadbProgress,
    MysqlProgress,
    MysqlTimeline,
    count,
    parse,
)
from headrace.sources.mysql.spelling import SPELLING

LAWS = settings(max_examples=100, deadline=None)
UUIDS = [f"{digit * 8}-71ca-11e1-9e33-c80aa9429562" for digit in "0af"]
ORIGINS = st.builds(GtidOrigin, st.sampled_from(UUIDS), st.sampled_from(["", "blue", "red_1"]))
GTIDS = st.builds(Gtid, ORIGINS, st.integers(1, 12))
BASES = st.integers(0, 1 << 58).map(lambda number: number * STEP)


LOGGED = st.builds(
    LoggedTransaction,
    st.sampled_from(["", f"{UUIDS[0]}:blue:5", "0-1-7"]),
    st.integers(0, 1 << 55),
    st.integers(0, 1 << 32),
    st.sampled_from(["6f2c01aa", ""]),
    st.sampled_from(["binlog.000001", "my last, log: 100%@home.000002", "\u00fc.000001"]),
)


@st.composite
def mysql(draw: st.DrawFn) -> MysqlProgress:
    """Any progress of a MySQL server."""
    names = draw(st.lists(GTIDS, unique=True))
    prepared = draw(st.sets(st.sampled_from(names))) if names else set()
    progress = MysqlProgress()
    for gtid in names:
        progress = progress.behind(gtid, is_prepared=gtid in prepared)
    return progress


@st.composite
def mariadb(draw: st.DrawFn) -> MariadbProgress:
    """Any progress of a MariaDB server: a start, what was read behind it, and some of that prepared."""
    ends = draw(
        st.dictionaries(st.integers(0, 3), st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=3)
    )
    start = MariadbPosition.of(MariadbGtid(domain, 1, low) for domain, (low, _) in ends.items())
    read = MariadbPosition.of(MariadbGtid(domain, 1, low + more) for domain, (low, more) in ends.items())
    between = [
        MariadbGtid(domain, 1, low + by) for domain, (low, more) in ends.items() for by in range(1, more + 1)
    ]
    prepared = sorted(draw(st.sets(st.sampled_from(between)))) if between else []
    return MariadbProgress(read, start if prepared else read, tuple(prepared))


@LAWS
@given(mysql() | mariadb(), BASES, st.lists(LOGGED, max_size=2))
def test_a_time_follows_from_a_text(
    progress: MysqlProgress | MariadbProgress, base: int, last: list[LoggedTransaction]
) -> None:
    text = str(replace(progress, last=tuple(last)))
    assert str(parse(text)) == text
    assert parse(text).last == tuple(last)
    assert parse(text).resume == progress.resume
    position = MysqlTimeline(base).position(text)
    assert position == Position(STEP * progress.count + base + 1, text)
    assert position.last < MysqlTimeline(base).next_time(progress.count) == position.time + STEP - 1
    assert SPELLING.time(text, position) == position.time
    # Marks of tables that were copied anew lie behind it, before the next transaction.
    assert all(SPELLING.time(text, position.shift(by)) == position.time for by in range(0, STEP - 1, 2))
    assert SPELLING.text(position.time, position) == text
    assert SPELLING.reads(text) == bool(text)


@LAWS
@given(mysql(), GTIDS, st.booleans())
def test_a_time_grows_by_one_step_with_each_transaction(
    progress: MysqlProgress, gtid: Gtid, prepared: bool
) -> None:
    if gtid in progress.brought_gtids:
        return
    after = progress.behind(gtid, is_prepared=prepared)
    assert after.count == progress.count + 1
    assert gtid in after.brought_gtids
    assert (gtid in GtidSet.parse(after.resume)) != prepared  # what is prepared has to come again


@LAWS
@given(mariadb(), st.integers(0, 3), st.integers(1, 3))
def test_a_time_grows_with_each_transaction_of_any_domain(
    progress: MariadbProgress, domain: int, further: int
) -> None:
    last = progress.read.last(domain)
    gtid = MariadbGtid(domain, 2, (0 if last is None else last.number) + further)
    after = MariadbProgress(progress.read.behind(gtid), progress.start, progress.prepared_gtids)
    assert after.count == progress.count + further


@LAWS
@given(mysql() | mariadb(), mysql() | mariadb(), BASES)
def test_a_later_life_begins_behind_all_that_was_reached(
    reached: MysqlProgress | MariadbProgress, start: MysqlProgress | MariadbProgress, base: int
) -> None:
    before = MysqlTimeline(base).position(str(reached))
    later = MysqlTimeline(base).behind(before, str(start))
    assert later.position(str(start)).time > before.time
    assert later.base > base


@pytest.mark.parametrize(
    "text",
    [
        "7",
        "0-1",
        "0-1-2,0-1-3",
        "0-1-2 open 0-1-3",
        "0-1-2 read 0-1-3",
        "0-1-2 read 0-1-4 open 0-1-5",
        "0-1-2 read 0-1-4 open 0-1-2",
        "0-1-4 read 0-1-2 open 0-1-3",
        "0-1-2 read 0-1-4 open 0-1-3,0-1-3",
        f"{UUIDS[0]}",
        f"{UUIDS[0]}:0",
        f"{UUIDS[0]}:3-1",
        f"{UUIDS[0]}:1-5 open {UUIDS[0]}:4",
        f"{UUIDS[0]}:1-5 open ",
        "binlog.000001:1234",
        "16/B374D848",
    ],
)
def test_a_text_that_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        count(text)
    assert refused.value.code == "POSITION_MALFORMED"
    assert not SPELLING.reads(text)
