"""A stream straight from a source: its slot follows commits, and status shows what a query holds."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from headrace.cli.main import main
from headrace.sources.postgres.position import Lsn
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.integration.spark.source.direct import TypedQuery, direct_plan

pytestmark = pytest.mark.server


def test_g5_the_slot_moves_with_commits_and_never_beyond_and_status_shows_what_a_query_holds(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t REPLICA IDENTITY FULL")
    query = TypedQuery(direct_plan(database.url(), tmp_path / "state", table="t"))
    try:
        query.catch_up()
        for number in range(3):
            database.execute("INSERT INTO t VALUES (%s)", [number])
            committed_end = _end(query, query.at.batch)
            query.catch_up(commit=False)
            assert _confirmed(database) <= committed_end
            query.stream.commit(query.at)
            wait_for(partial(_is_behind, database, committed_end), "the slot follows")
            assert _confirmed(database) <= _end(query, query.at.batch)
    finally:
        query.close()
    stopped = _confirmed(database)
    database.execute(
        "SELECT pg_logical_emit_message(true, 'x', repeat('x', 1000)) FROM generate_series(1, 9999)"
    )
    assert _confirmed(database) == stopped
    assert main(["status", "--state", str(tmp_path / "state"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["retained_bytes"]
    assert 9_999_000 < shown <= _retained(database)
    assert _retained(database) - shown < 1_000_000
    assert main(["drop", "--state", str(tmp_path / "state"), "--yes"]) == 0


def _is_behind(database: Database, position: int) -> bool:
    return _confirmed(database) > position


def _end(query: TypedQuery, batch: int) -> int:
    return int(Lsn.parse(str(query.state.end_of(batch))))


def _confirmed(database: Database) -> int:
    return _of_slot(database, "confirmed_flush_lsn - '0/0'::pg_lsn")


def _retained(database: Database) -> int:
    return _of_slot(database, "pg_current_wal_lsn() - restart_lsn")


def _of_slot(database: Database, what: str) -> int:
    [(found,)] = database.execute(
        f"SELECT {what} FROM pg_replication_slots WHERE database = current_database()"
    )
    return int(found)
