"""The pace of a source: rates of the last minute, from sums that a status repeats."""

from __future__ import annotations

from headrace.lake.format.status import CopyStatus, SourceStatus, TableStatus, TotalsStatus
from headrace.status.pace import Pace, Rates


def said(marks: int, changes: int, copied: int | None = None) -> SourceStatus:
    copy = None if copied is None else CopyStatus(bytes_known=10**9, bytes_done=copied)
    totals = TotalsStatus(changes=changes, marks={"stream": marks, "empty": marks})
    return SourceStatus("main", "running", totals=totals, tables={"t": TableStatus("copying", copy=copy)})


def test_nothing_is_known_before_two_looks_are_apart() -> None:
    pace = Pace()
    assert pace.rates() == Rates()
    for at in (0.0, 1.0):
        pace.see(at, said(1, 1))
        assert pace.rates() == Rates()


def test_rates_are_of_the_last_minute() -> None:
    pace = Pace()
    for at in range(600):
        slow = min(at, 300)  # no change after five minutes
        pace.see(float(at), said(at, 10 * slow, 1000 * slow))
        if at == 200:
            assert pace.rates() == Rates({"t": 1000.0}, 120.0, 600.0)
    assert pace.rates() == Rates({"t": 0.0}, 120.0, 0.0)
    assert len(pace._points) <= 18  # a point every five seconds, however often it looks


def test_sums_that_fall_begin_the_minute_anew() -> None:
    pace = Pace()
    for at, changes in ((0.0, 100), (10.0, 200), (20.0, 5)):
        pace.see(at, said(1, changes))
    assert pace.rates() == Rates()
    pace.see(30.0, said(1, 10))
    assert pace.rates().changes == 30.0
