"""A status goes to JSON and comes back, whatever another release wrote more or less."""

from __future__ import annotations

import json

from headrace.lake.format.status import (
    AlterationStatus,
    CopyStatus,
    EpochStatus,
    PositionStatus,
    RunningStatus,
    SourceStatus,
    TableStatus,
    UpstreamStatus,
)

ERROR = {"code": "TABLE_CHANGED", "primary": "it is another", "detail": None, "hint": "copy it anew"}
SAID = SourceStatus(
    "main",
    "running",
    {"pid": 7},
    "2026-01-01",
    error=ERROR,
    warnings={"PG_MAX_WAL": "much"},
    unmirrored={"public.u": "TABLE_NOT_ADDED"},
    position=PositionStatus("0/10", "0/20", "0/30", lag_bytes=5),
    upstream=UpstreamStatus({"restart_lsn": "0/8"}, ("slot reserved",)),
    streamed=RunningStatus(1, 2),
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
        assert SourceStatus.of(json.loads(json.dumps(said.as_record()))) == said


def test_a_record_of_another_release_is_read_as_far_as_it_goes() -> None:
    record = SAID.as_record() | {"mood": "fair"}
    del record["epochs"], record["upstream_lines"]
    record["tables"]["public.t"]["colour"] = "green"
    record["position"] = {"frontier": "0/10", "depth": 3}
    read = SourceStatus.of(record)
    assert (read.epochs, read.position) == (None, PositionStatus("0/10"))
    assert read.upstream == UpstreamStatus({"restart_lsn": "0/8"})
    assert read.tables == SAID.tables
