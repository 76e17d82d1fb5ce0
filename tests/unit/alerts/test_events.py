"""Events: each state of a source is told once, however often a status repeats it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.alerts.events import MOST_TEXT, Comparison, Event, KnownStates
from headrace.alerts.hooks import HookConfig, hooks_of
from headrace.core.records import to_record
from headrace.lake.format.prooffile import TableProof
from headrace.lake.format.status import (
    AlterationStatus,
    EpochStatus,
    PositionStatus,
    SourceStatus,
    TableStatus,
    UpstreamStatus,
)

NOW = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)
REASON = {
    "code": "TABLE_CHANGED",
    "primary": "it changed",
    "detail": None,
    "hint": "headrace tables resync t",
}
LOST = {
    "code": "PG_SLOT_LOST",
    "primary": "the slot is lost",
    "detail": "d",
    "hint": "headrace run --reconcile",
}
TABLES = {"public.t": TableStatus("live"), "public.u": TableStatus("live")}
OWNER = {"pid": 7, "host": "here", "started_at": "2026-11-25T11:00:00+00:00"}


def _at(seconds: float) -> str:
    return (NOW + timedelta(seconds=seconds)).isoformat()


def _said(**more: Any) -> SourceStatus:
    said = SourceStatus(
        "main", "running", owner=OWNER, tables=TABLES, epochs=EpochStatus(newest=9),
        position=PositionStatus(), contact_at=_at(0), state_since=_at(-60),
    )  # fmt: skip
    return replace(said, **more)


class Told:
    """A hook that hears one status after another."""

    def __init__(self, **section: Any) -> None:
        [self.hook] = hooks_of({"default": HookConfig(webhook="http://hook.test/", **section)}, {})
        self.known = KnownStates()
        self.hears(_said())

    def hears(
        self, said: SourceStatus, proofs: Mapping[str, TableProof] | None = None, after: float = 0
    ) -> list[Event]:
        now = NOW + timedelta(seconds=after)
        comparison = Comparison(self.hook, "./lake", self.known, said, proofs or {}, now)
        events, self.known = comparison.events()
        # What a hook knows survives a file.
        assert KnownStates.of(to_record(self.known)) == self.known
        return events


def _stopped(**more: Any) -> SourceStatus:
    return _said(
        tables={**TABLES, "public.t": TableStatus("stopped", error=REASON, stopped_at="0/18", **more)}
    )


def test_a_table_is_told_of_once_when_it_stops_and_once_when_it_is_live_again() -> None:
    told = Told()
    [event] = told.hears(_stopped())
    assert (event.kind, event.table, event.code, event.mark) == (
        "table_stopped",
        "public.t",
        "TABLE_CHANGED",
        9,
    )
    assert event.hint == REASON["hint"]
    for part in ("public.t", "0/18", "TABLE_CHANGED", "it changed", "headrace tables resync t", "./lake"):
        assert part in event.text
    assert told.hears(_stopped()) == []
    assert told.hears(_said(tables={**TABLES, "public.t": TableStatus("copying")})) == []
    [event] = told.hears(_said())
    assert (event.kind, event.table) == ("table_live", "public.t")
    assert told.hears(_said()) == []


def test_another_reason_is_told_and_a_table_that_nobody_mirrors_is_forgotten() -> None:
    told = Told()
    told.hears(_stopped())
    other = {**REASON, "code": "TOAST_LOST"}
    [event] = told.hears(_said(tables={"public.t": TableStatus("stopped", error=other)}))
    assert event.code == "TOAST_LOST"
    assert told.hears(_said(tables={})) == []
    assert told.hears(_said()) == []


@pytest.mark.parametrize("more", [{"follows": True}, {"is_missing": True}])
def test_a_table_that_the_run_takes_up_by_itself_is_no_event(more: dict[str, bool]) -> None:
    assert Told().hears(_stopped(**more)) == []


def test_a_source_stops_by_its_failure_and_by_a_long_wait_and_recovers_once() -> None:
    told = Told()
    waits = _said(state="waiting", error=LOST, state_since=_at(0))
    assert told.hears(waits, after=14) == []
    [event] = told.hears(waits, after=16)
    assert (event.kind, event.code) == ("source_stopped", "PG_SLOT_LOST")
    assert told.hears(waits, after=300) == []
    failed = told.hears(_said(state="failed", error=LOST))
    assert [event.kind for event in failed] == ["run_ended", "source_stopped"]
    assert failed[0].code == "PG_SLOT_LOST"
    assert told.hears(_said(state="failed", error=LOST)) == []
    again = {**OWNER, "started_at": "2026-11-25T12:30:00+00:00"}
    assert [e.kind for e in told.hears(_said(state="starting", owner=again))] == ["run_started"]
    assert [e.kind for e in told.hears(_said(state="failed", error=LOST, owner=again))] == ["run_ended"]
    later = {**OWNER, "started_at": "2026-11-25T12:40:00+00:00"}
    assert [e.kind for e in told.hears(_said(owner=later))] == ["run_started", "source_recovered"]
    assert told.hears(_said(owner=later)) == []


def test_a_run_that_was_killed_is_told_of_by_the_next() -> None:
    told = Told()
    again = _said(owner={**OWNER, "started_at": "2026-11-25T12:30:00+00:00"})
    assert [event.kind for event in told.hears(again)] == ["run_ended", "run_started"]
    assert [event.kind for event in told.hears(replace(again, state="stopped"))] == ["run_ended"]
    assert told.hears(replace(again, state="stopped")) == []


def test_lag_is_told_when_it_is_over_and_only_after_it_was_under_for_as_long() -> None:
    told = Told(lag="60s")

    def lag(seconds: float, after: float) -> list[str]:
        waiting = _said(position=PositionStatus(waiting_since=_at(after - seconds)), contact_at=_at(after))
        return [event.kind for event in told.hears(waiting, after=after)]

    assert lag(59, 0) == []
    assert lag(61, 2) == ["lag_over"]
    # Epochs that take longer than the limit each: one event, not one an epoch.
    assert lag(0, 3) == lag(59, 62) == lag(61, 64) == lag(0, 65) == []
    assert lag(1, 124) == []
    assert lag(1, 126) == ["lag_under"]
    assert lag(61, 3600) == ["lag_over"]
    # The clock is set back by an hour: the minute is counted from there.
    assert lag(0, 3601) == lag(0, 10) == lag(0, 69) == []
    assert lag(0, 71) == ["lag_under"]
    assert lag(1, 127) == []


def test_log_near_its_limit_is_told_until_it_falls_well_below() -> None:
    told = Told(max_wal=0.5)

    def log(held: int, limit: int | None = 100) -> list[str]:
        upstream = UpstreamStatus(retained_bytes=held, limit_bytes=limit)
        return [event.kind for event in told.hears(_said(upstream=upstream))]

    assert log(50) == log(1000, None) == []
    assert log(51) == ["log_over"]
    assert log(60) == log(49) == log(51) == log(44) == []
    assert log(51) == ["log_over"]


def test_a_difference_is_told_once_and_again_after_it_was_mended() -> None:
    told, different = Told(), {"public.t": TableProof("different", _at(0))}
    [event] = told.hears(_said(), different)
    assert (event.kind, event.table, event.code) == ("verify_differs", "public.t", "VERIFY_DIFFERENT")
    assert told.hears(_said(), {"public.t": TableProof("different", _at(9))}) == []
    assert told.hears(_said(), {"public.t": TableProof("equal", _at(10))}) == []
    assert [event.kind for event in told.hears(_said(), different)] == ["verify_differs"]


def test_each_change_of_a_shape_is_told_once() -> None:
    told, first = Told(), AlterationStatus("public.t", 8, "0/1", "added", 'column "a" was added')
    [event] = told.hears(_said(alterations=(first,)))
    assert (event.kind, event.table) == ("ddl_followed", "public.t")
    assert 'column "a" was added' in event.text
    second = AlterationStatus("public.u", 9, "0/2", "copied", "it is another")
    assert [event.table for event in told.hears(_said(alterations=(first, second)))] == ["public.u"]
    assert told.hears(_said(alterations=(second,))) == []


def test_a_hook_hears_the_kinds_that_it_asked_for_and_nothing_before_it_asks() -> None:
    told = Told(events=("table_live",))
    assert told.hears(_stopped()) == []
    assert [event.kind for event in told.hears(_said())] == ["table_live"]


def test_a_hook_that_knows_nothing_hears_what_is_wrong_now() -> None:
    told = Told()
    told.known = KnownStates()
    assert {event.kind for event in told.hears(_stopped())} == {"run_started", "table_stopped"}


def test_a_text_is_never_too_long_for_a_chat() -> None:
    long = {**REASON, "primary": "x" * 9999}
    [event] = Told().hears(_said(tables={"public.t": TableStatus("stopped", error=long)}))
    assert len(event.text) == MOST_TEXT
