"""The law of batches: those of ticks, one after the other, hold each committed transaction once and whole."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given

from headrace.sources.queue.batch import TickBatch
from headrace.sources.queue.upstream import Objects
from tests.effort import examples
from tests.laws.sources.queue.histories import History, histories

LAWS = examples(300)


@LAWS
@given(histories())
def test_batches_partition_what_was_committed(history: History) -> None:
    batches = [TickBatch.between(*each) for each in pairwise(history.snapshots)]
    for xid, first in history.committed.items():
        assert [number for number, batch in enumerate(batches, 1) if batch.holds(xid)] == [first]


@LAWS
@given(histories())
def test_a_batch_lists_nothing_that_had_ended_before_and_nothing_that_runs(history: History) -> None:
    for before, now in pairwise(history.snapshots):
        batch = TickBatch.between(before, now)
        assert not set(batch.late) - set(before.xip)
        for xid in now.xip:
            assert not batch.holds(xid)
        assert batch.is_empty == (not any(batch.holds(xid) for xid in range(before.xmin, now.xmax)))


@LAWS
@given(histories())
def test_ticks_may_be_left_out(history: History) -> None:
    first, last = history.snapshots[0], history.snapshots[-1]
    batch = TickBatch.between(first, last)
    for xid, shown in history.committed.items():
        assert batch.holds(xid) == (shown >= 1)


def test_a_late_transaction_is_asked_for_by_name() -> None:
    statement = TickBatch(1000, 1010, (1003,), (7, 9)).query(Objects("headrace", "main"), "e.id")
    assert statement.count("e.tx = ANY ('{7,9}'::pg_catalog.xid8[])") == 3
    assert (
        statement.count("e.tx >= '1000' AND e.tx < '1010' AND e.tx <> ALL ('{1003}'::pg_catalog.xid8[])") == 3
    )


def test_one_that_runs_is_not_looked_at_where_an_event_is_asked_for() -> None:
    statement = TickBatch(1000, 1010, (1003, 1004), (7,)).question(Objects("headrace", "main"))
    spans = "unnest('{1000,1005,7}'::pg_catalog.xid8[], '{1003,1010,8}'::pg_catalog.xid8[])"
    assert statement.count(spans) == 3
