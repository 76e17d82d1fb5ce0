"""A stream straight from a source: its slot follows commits, and its memory does not grow.

G5: `status` shows what a query holds. G7: the process of a query's reader on the driver.
"""

from __future__ import annotations

import json
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.receiver import COLUMNS, VALUES
from headrace.cli.main import main
from headrace.sources.postgres.position import Lsn
from headrace.spark.session import SparkConfig, open_session
from headrace_testing.memory import ReaderPeak
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.integration.spark.source.direct import TypedQuery, direct_plan

pytestmark = pytest.mark.server

_DEADLINE = 1200.0
_CONF = {"spark.ui.enabled": "false"}


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


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("which", [{"tables": "public.t"}, {"table": "t"}], ids=["raw", "typed"])
def test_g7_the_reader_stays_small_whatever_comes(
    which: dict[str, str], database: Database, tmp_path: Path
) -> None:
    """A snapshot and a transaction of 5 million rows each; then another while a batch is not done."""
    database.execute(f"CREATE TABLE t ({COLUMNS}); ALTER TABLE t REPLICA IDENTITY FULL")
    insert = f"INSERT INTO t SELECT {VALUES} FROM generate_series(1, 5000000) i"
    database.execute(insert)
    over, stands = threading.Event(), threading.Event()
    counts: list[int] = []

    def stand(rows: Any, number: int) -> None:
        counts.append(rows.count())
        if counts[-1] == 1:
            stands.set()
            assert over.wait(_DEADLINE)

    with ReaderPeak() as peak, open_session(SparkConfig(master="local[2]", conf=_CONF)) as session:
        options = {"url": database.url(), "state": str(tmp_path / "state"), **which}
        frame = session.spark.readStream.format("headrace").options(**options).load()
        writer = frame.writeStream.foreachBatch(stand)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

        def has_read(rows: int) -> bool:
            assert query.isActive, query.exception()
            return sum(counts) >= rows

        wait_for(lambda: has_read(5_000_000), "the snapshot", deadline=_DEADLINE)
        database.execute(insert)
        wait_for(lambda: has_read(10_000_000), "the transaction", deadline=_DEADLINE)
        database.execute("INSERT INTO t (id) VALUES (0)")
        wait_for(stands.is_set, "a batch that stands still", deadline=_DEADLINE)
        database.execute(insert)
        [(end,)] = database.execute("SELECT pg_current_wal_flush_lsn()::text")
        wait_for(partial(_is_received, database, end), "what comes meanwhile", deadline=_DEADLINE)
        over.set()
        wait_for(lambda: has_read(15_000_001), "the rest", deadline=_DEADLINE)
        query.stop()
    assert counts.count(5_000_000) == 3  # the snapshot, and two transactions: each is one batch
    assert 0 < peak.bytes < 512 << 20, f"{peak.bytes >> 20} MiB"
    assert main(["drop", "--state", str(tmp_path / "state"), "--yes"]) == 0


def _is_received(database: Database, lsn: str) -> bool:
    """Tell whether the receiver has all that was committed before this position."""
    return bool(database.execute("SELECT 1 FROM pg_stat_replication WHERE write_lsn >= %s", [lsn]))
