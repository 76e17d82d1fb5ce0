"""A status goes to JSON and comes back, whatever another release wrote more or less."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

from headrace.core.records import to_record
from headrace.lake.format.status import (
    AlterationStatus,
    CopyStatus,
    EpochStatus,
    PositionStatus,
    RunningStatus,
    SourceStatus,
    TableStatus,
    UpstreamStatus,
    WorkStatus,
    moment_text,
)

ERROR = {"code": "TABLE_CHANGED", "primary": "it is another", "detail": None, "hint": "copy it anew"}
SAID = SourceStatus(
    "main",
    "running",
    {"pid": 7},
    "2026-01-01",
    error=ERROR,
    warnings={"PG_MAX_WAL": "much"},
    unmirrored_tables={"public.u": "TABLE_NOT_ADDED"},
    position=PositionStatus("0/10", "0/20", "0/30", lag_bytes=5, waiting_since="2026-01-01", at="2026-01-02"),
    upstream=UpstreamStatus({"restart_lsn": "0/8"}, ("slot reserved",), "2026-01-03"),
    work=WorkStatus("commits epoch 7 to the lake", "2026-01-04"),
    spark=WorkStatus("Spark is starting", "2026-01-05"),
    turned_at="2026-01-06",
    contact_at="2026-01-07",
    state_since="2026-01-08",
    warned_since={"PG_MAX_WAL": "2026-01-09"},
    running=RunningStatus(1, 2),
    epochs=EpochStatus(3, 4, 5, 6),
    copy=CopyStatus(10, 5, 100, 50),
    tables={
        "public.t": TableStatus("copying", "rewind", copy=CopyStatus(10, 5, 100, 50)),
        "public.s": TableStatus(
            "stopped", error=ERROR, stopped_at="0/9", schema_version=2, schema_since="0/7"
        ),
    },
    alterations=(AlterationStatus("public.s", 4, "0/7", "added", "public.s: column came"),),
)


def test_a_status_comes_back_from_json_as_it_was() -> None:
    for said in (SAID, SourceStatus("main", "waiting"), SourceStatus("main", "running", tables={})):
        assert SourceStatus.of(json.loads(json.dumps(to_record(said)))) == said


def test_a_record_of_another_release_is_read_as_far_as_it_goes() -> None:
    record = to_record(SAID) | {"mood": "fair"}
    del record["epochs"], record["upstream_lines"], record["upstream_at"]
    record["tables"]["public.t"]["colour"] = "green"
    record["position"] = {"frontier": "0/10", "depth": 3}
    read = SourceStatus.of(record)
    assert (read.epochs, read.position) == (None, PositionStatus("0/10"))
    assert read.upstream == UpstreamStatus({"restart_lsn": "0/8"})
    assert read.tables == SAID.tables


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def _lag(heard: float, waiting: float | None = None) -> float | None:
    """The lag at noon if the source was heard, and the oldest waiting commit was, so many seconds ago."""
    noon = NOON.timestamp()
    since = None if waiting is None else moment_text(noon - waiting)
    said = SourceStatus(
        "main", "running", position=PositionStatus("0/1", waiting_since=since, lag_seconds=0.9)
    )
    return replace(said, contact_at=moment_text(noon - heard)).lag_seconds(NOON)


def test_the_lag_grows_with_the_clock_whoever_runs() -> None:
    assert _lag(heard=1) == 0  # nothing waits, and the source would have said so
    assert _lag(heard=1, waiting=7) == 7
    assert _lag(heard=3600) == 3600  # nobody knows what was committed meanwhile
    assert _lag(heard=3600, waiting=4000) == 4000
    assert _lag(heard=-60, waiting=-60) == 0  # another machine's clock
    assert SourceStatus("main", "starting").lag_seconds(NOON) is None


def test_a_record_of_before_there_were_times_is_as_old_as_it_was_written() -> None:
    old = SourceStatus("main", "running", updated_at=moment_text(NOON.timestamp() - 600))
    assert replace(old, position=PositionStatus("0/1", lag_seconds=0.9)).lag_seconds(NOON) == 600
