"""What `headrace status` says in a few lines, from the record of an owner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.cli.status import SHOWN, _beside, _columns, _head
from headrace.lake.format.status import (
    AlterationStatus,
    RunningStatus,
    SourceStatus,
    TableStatus,
    UpstreamStatus,
)
from headrace.sources.postgres.slot import _said
from headrace.status.picture import Source

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


def source(**known: Any) -> Source:
    return Source(SourceStatus("main", "running", **known), age=1.0, epoch=7)


def lines(slot: Mapping[str, Any] | None = None, running: RunningStatus | None = None) -> list[str]:
    upstream = None if slot is None else UpstreamStatus(slot, tuple(_said(slot)))
    return list(_head(source(upstream=upstream, streamed=running)))


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
    assert list(_beside(source(unmirrored=codes))) == [
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
