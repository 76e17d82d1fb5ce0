"""Marks come at the requested pace, or at once if somebody waits for one; a locked table brings none."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from headrace.core.records import to_record
from headrace.lake.format import requests
from headrace.lake.format.status import TableStatus
from headrace.lake.store.open import open_store
from headrace.pipeline.state.owner import REACH
from headrace.sources.postgres.position import Lsn, PostgresTimeline
from headrace.status import sentences
from headrace.status.picture import pictures
from headrace_testing.postgres import Database, Server
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.serving import Served, serving

pytestmark = pytest.mark.server


@pytest.fixture
def mirrors(mirrors: Mirrors, database: Database) -> Mirrors:
    """Copy two tables."""
    database.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)", user="app")
    mirrors.once()
    return mirrors


def _end(database: Database) -> Lsn:
    [(end,)] = database.execute("SELECT pg_current_wal_insert_lsn()::text")
    return Lsn.parse(end)


def _seconds(served: Served, count: int) -> None:
    """So many records of the mirror's status, one of which comes a second."""
    until = served.records + count
    served.until(lambda: served.records >= until, "its status")


def test_a_mark_waits_for_its_time_unless_somebody_waits_for_it(mirrors: Mirrors, database: Database) -> None:
    mirrors.options["every"] = "1h"
    with serving(mirrors) as served:
        database.execute("INSERT INTO a VALUES (1)", user="app")
        served.until(lambda: served.holds("public.a", 1), "the first mark after a quiet time")
        epoch = mirrors.lake.at().epoch
        database.execute("INSERT INTO a VALUES (2); INSERT INTO b VALUES (1)", user="app")
        wanted = _end(database)
        served.until(lambda: served.received(wanted), "the stream")
        _seconds(served, 2)
        assert mirrors.lake.at().epoch == epoch
        assert served.position is not None
        assert served.position.lag_bytes > 0
        assert served.position.lag_seconds > 0
        requests.ask(
            open_store(mirrors.path),
            "main",
            REACH,
            {"frontier": to_record(PostgresTimeline().position(wanted))},
        )
        served.until(
            lambda: served.holds("public.a", 2) and served.holds("public.b", 1), "what was asked for"
        )


@pytest.mark.full
def test_marks_of_a_busy_source_come_at_the_pace_that_was_asked_for(
    mirrors: Mirrors, database: Database
) -> None:
    mirrors.options["every"] = "1s"
    with serving(mirrors) as served, database.connect(user="app") as connection:
        connection.autocommit = True
        first = mirrors.lake.at().epoch
        while mirrors.lake.at().epoch < first + 4:
            connection.execute("INSERT INTO a SELECT coalesce(max(id), 0) + 1 FROM a")
            assert not served.ended
    marks = [mark for mark in mirrors.lake.marks() if mark.epoch > first and mark.transactions]
    gaps = [(two.published_at - one.published_at).total_seconds() for one, two in pairwise(marks)]
    assert len(gaps) >= 3
    assert min(gaps) > 0.9


def test_a_table_that_is_never_unlocked_costs_no_marks_and_says_since_when(
    mirrors: Mirrors, database: Database
) -> None:
    """One migration hands the table to the next. Whoever wants it waits for these, and never for us."""
    with serving(mirrors) as served, database.connect(user="app") as one, database.connect(user="app") as two:
        one.execute("BEGIN; LOCK TABLE a IN ACCESS EXCLUSIVE MODE")
        database.execute("INSERT INTO b VALUES (1)", user="app")
        served.until(lambda: served.holds("public.b", 1), "the mark of the other table")
        mark = mirrors.lake.at().mark
        assert "public.a" not in mark.versions
        _seconds(served, 5)
        assert mirrors.lake.at().epoch == mark.epoch
        said = _said(mirrors)
        assert said.unseen_since is not None
        assert f"pid {one.info.backend_pid} " in (said.holder or "")
        next_one = threading.Thread(target=two.execute, args=["BEGIN; ALTER TABLE a ADD COLUMN more int"])
        next_one.start()
        served.until(lambda: _waiting(database) == [two.info.backend_pid], "the next one")
        one.execute("COMMIT")
        next_one.join()
        database.execute("INSERT INTO b VALUES (2)", user="app")
        served.until(lambda: served.holds("public.b", 2), "a later mark of the other table")
        served.until(lambda: f"pid {two.info.backend_pid} " in (_said(mirrors).holder or ""), "who it is now")
        assert _said(mirrors).unseen_since == said.unseen_since
        assert _waiting(database) == []
        assert sentences.unseen_line("public.a", _said(mirrors)) is not None
        two.execute("COMMIT")
        served.until(lambda: "public.a" in mirrors.lake.at().mark.versions, "the table, once it is free")
        served.until(lambda: _said(mirrors).unseen_since is None, "a word of that")
        assert mirrors.lake.at().schema("public.a").names == ["id", "more"]


def _said(mirrors: Mirrors) -> TableStatus:
    """Read the run's status of `a`."""
    return pictures(str(mirrors.path))[0].tables["public.a"]


def _waiting(database: Database) -> list[int]:
    """The sessions that wait for a lock on a table."""
    found = database.execute("SELECT pid FROM pg_locks WHERE NOT granted AND locktype = 'relation'")
    return [int(pid) for (pid,) in found]


def test_what_others_write_is_no_lag_of_ours(
    mirrors: Mirrors, database: Database, postgres_server: Server
) -> None:
    with serving(mirrors) as served, postgres_server.database() as other:
        other.execute("CREATE TABLE t AS SELECT repeat('x', 100) FROM generate_series(1, 30000)")
        end = _end(database)
        served.until(lambda: served.received(end), "the stream")
        said = served.position
        assert said is not None
        assert int(end) - int(Lsn.parse(said.frontier)) > 3_000_000  # no mark was worth it
        assert said.lag_bytes < 100_000
        assert said.lag_seconds == 0
