"""`headrace status` sums up the record of an owner in a few lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from headrace.cli.status import SHOWN, _beside, _columns, _head
from headrace.lake.format.status import (
    AlterationStatus,
    PositionStatus,
    RunningStatus,
    SourceStatus,
    TableStatus,
    UpstreamStatus,
    WorkStatus,
    moment_text,
)
from headrace.sources.postgres.slot import _figures
from headrace.status.faults import faults
from headrace.status.picture import SourcePicture

SLOT = {
    "wal_status": "reserved",
    "restart_lsn": "0/10",
    "confirmed_flush_lsn": "0/20",
    "retained_bytes": 1234,
    "catalog_xmin_age": 5,
}
TRAFFIC = {
    "stream_txns": 3,
    "stream_count": 40,
    "stream_bytes": 5_000_000,
    "spill_txns": 1,
    "spill_count": 2,
    "spill_bytes": 70_000,
}


def source(**known: Any) -> SourcePicture:
    return SourcePicture(SourceStatus("main", "running", **known), age=1.0, epoch=7)


def lines(slot: Mapping[str, Any] | None = None, running: RunningStatus | None = None) -> list[str]:
    upstream = None if slot is None else UpstreamStatus(slot, tuple(_figures(slot)))
    return list(_head(source(upstream=upstream, running=running)))


def test_transactions_that_run_are_shown_and_what_the_server_streamed_and_spilled() -> None:
    told = lines({**SLOT, **TRAFFIC}, RunningStatus(2, 2_500_000))
    assert told[2:] == [
        "  streamed by the server: 3 transactions, 5,000,000 bytes · spilled to its disk: 1, 70,000 bytes",
        "  2 transactions are streamed and have not ended (2,500,000 bytes)",
    ]


def test_a_server_that_streams_nothing_is_not_spoken_of() -> None:
    assert len(lines(SLOT, RunningStatus())) == 2
    assert len(lines()) == 1


def test_a_table_that_stopped_is_shown_with_its_position_and_its_reason() -> None:
    error = {"code": "TABLE_CHANGED", "primary": "it changed", "detail": "a column", "hint": "copy it anew"}
    tables = {
        "public.t": TableStatus("stopped", error=error, stopped_at="0/15"),
        "public.u": TableStatus("stopped", error=error | {"detail": None}),
        "public.v": TableStatus("live"),
    }
    assert list(_beside(source(tables=tables))) == [
        "public.t stopped at 0/15: TABLE_CHANGED: it changed (a column); copy it anew",
        "public.u stopped: TABLE_CHANGED: it changed; copy it anew",
    ]


def test_tables_that_nobody_mirrors_are_shown_by_the_reason() -> None:
    codes = {f"public.k{number}": "PG_IDENTITY_MISSING" for number in range(7)} | {
        "public.n": "TABLE_NOT_ADDED"
    }
    assert list(_beside(source(unmirrored_tables=codes))) == [
        "not mirrored, PG_IDENTITY_MISSING: public.k0, public.k1, public.k2, public.k3, public.k4"
        " and 2 more; headrace check says more",
        "not mirrored, TABLE_NOT_ADDED: public.n; headrace tables add mirrors them",
    ]


def test_a_change_that_was_followed_is_a_line_and_the_newest_are_shown() -> None:
    what = 'public.t: column "more" was added'
    alterations = tuple(AlterationStatus("public.t", n, "0/7", "added", what) for n in range(9))
    assert list(_beside(source(tables={}, alterations=alterations)))[-1] == (
        'public.t: column "more" was added; no file is written (mark 8 at 0/7)'
    )
    assert len(list(_beside(source(tables={}, alterations=alterations)))) == SHOWN


def test_columns_are_shown_with_the_position_from_which_on_the_table_has_them() -> None:
    assert _columns(TableStatus("live", schema_version=3, schema_since="0/9")) == "3 since 0/9"
    assert _columns(TableStatus("live", schema_version=1)) == ""


NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> str:
    return moment_text(NOW.timestamp() - seconds)


def seen(state: str = "running", age: float | None = 1.0, **known: Any) -> SourcePicture:
    """A source at noon; what is known of it may be older."""
    position = PositionStatus("0/1", waiting_since=known.pop("waiting_since", None))
    known = {"contact_at": at(1), "turned_at": at(0), "position": position, **known}
    return SourcePicture(SourceStatus("main", state, **known), age, 7, NOW)


def codes(source: SourcePicture, max_lag: float = 60) -> list[str]:
    return [error.code for error in faults(source, max_lag)]


def test_a_step_that_takes_long_and_a_silent_source_are_shown_with_their_time() -> None:
    work, spark = WorkStatus("commits epoch 7 to the lake", at(20)), WorkStatus("Spark is starting", at(8))
    told = "\n".join(_head(seen(turned_at=at(25), contact_at=at(400), work=work, spark=spark)))
    assert "up to 6 min behind" in told
    assert "  the source last answered 6 min ago" in told
    assert "  busy for 20 s: commits epoch 7 to the lake" in told
    assert "  Spark is starting (for 8 s)" in told
    told = "\n".join(_head(seen(warnings={"PG_MAX_WAL": "much"}, warned_since={"PG_MAX_WAL": at(7200)})))
    assert "  warning PG_MAX_WAL (for 2 h): much" in told
    assert "busy" not in told
    assert "answered" not in told


def test_a_source_without_a_fault_has_none_and_each_fault_has_a_code() -> None:
    error = {"family": "misconfigured", "code": "PG_WRONG", "primary": "p", "detail": None, "hint": "h"}
    stopped = TableStatus("stopped", error=error)
    assert codes(seen()) == []
    assert codes(seen(waiting_since=at(50))) == []
    assert codes(seen(waiting_since=at(70))) == ["STATUS_BEHIND"]
    assert codes(seen(waiting_since=at(70)), max_lag=100) == []
    assert codes(seen(turned_at=at(70))) == ["STATUS_BEHIND"]
    assert codes(seen(tables={"t": TableStatus("live", unseen_since=at(70))})) == ["STATUS_BEHIND"]
    assert codes(seen("waiting", contact_at=at(30), error=error)) == []
    assert codes(seen("waiting", contact_at=at(70), error=error)) == ["STATUS_BEHIND"]
    assert codes(seen(tables={"t": stopped})) == ["STATUS_TABLE_STOPPED"]
    assert codes(seen(tables={"t": replace(stopped, follows=True, stopped_since=at(50))})) == []
    assert codes(seen(tables={"t": replace(stopped, follows=True, stopped_since=at(70))})) == [
        "STATUS_BEHIND"
    ]
    assert codes(seen(tables={"t": replace(stopped, is_missing=True)})) == []
    for state in ("stopped", "dropped", "never run"):
        assert codes(seen(state)) == ["STATUS_NOT_RUNNING"]
    assert codes(seen(age=40.0)) == ["STATUS_NOT_RUNNING"]  # nobody writes any more
    assert codes(seen("starting", position=None, state_since=at(3))) == ["STATUS_BEHIND"]
    assert codes(seen("failed", error=error, contact_at=at(70))) == ["PG_WRONG", "STATUS_BEHIND"]


def test_a_run_that_ended_without_a_word_is_said_not_to_run() -> None:
    for killed in (replace(seen(age=2.0), is_gone=True), seen(age=40.0)):
        age = f"{killed.age:.0f} s ago"
        assert next(_head(killed)) == f"main: not running (last seen {age}, running)"
        assert next(faults(killed, 60)).detail == f"last seen {age}, running"
        assert not killed.runs
    assert next(_head(seen("stopped", age=40.0))) == "main: stopped (as of 40 s ago)"


def test_a_table_that_comes_back_by_itself_is_no_stop() -> None:
    error = {"code": "PG_IDENTITY_MISSING", "primary": "no key", "detail": None, "hint": "it is tried again"}
    waits = TableStatus("stopped", error=error, follows=True, retry_at="2026-01-01T12:00:07.123+00:00")
    tables = {
        "public.new": TableStatus("stopped", error=error, follows=True),  # it is taken up this very second
        "public.waits": waits,
        "public.gone": replace(waits, is_missing=True),
    }
    assert list(_beside(source(tables=tables))) == [
        "public.waits is in no mark: PG_IDENTITY_MISSING: no key; next try 2026-01-01T12:00:07Z; "
        "it is tried again",
        "not at the source any more: public.gone; each comes back by itself if it is made again; "
        "if it is gone for good: headrace tables drop public.gone",
    ]
