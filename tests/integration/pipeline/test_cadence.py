"""When marks come: at the pace that was asked for, at once if one is waited for, not while a lock lasts."""

from __future__ import annotations

from itertools import pairwise

import pytest

from headrace.lake.format import requests
from headrace.lake.store.open import open_store
from headrace.pipeline.state import reach
from headrace.sources.postgres.lsn import Log, Lsn
from headrace.testing.postgres import Database, Server
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.serving import Served, serving

pytestmark = pytest.mark.server


@pytest.fixture
def mirrors(mirrors: Mirrors, database: Database) -> Mirrors:
    """Of two tables, copied."""
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
            open_store(mirrors.path), "main", reach.REACH, {"frontier": Log().position(wanted).as_record()}
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


def test_a_table_that_stays_locked_costs_no_marks(mirrors: Mirrors, database: Database) -> None:
    with serving(mirrors) as served:
        with database.connect(user="app") as holder, holder.transaction():
            holder.execute("LOCK TABLE a IN ACCESS EXCLUSIVE MODE")
            database.execute("INSERT INTO b VALUES (1)", user="app")
            served.until(lambda: served.holds("public.b", 1), "the mark of the other table")
            mark = mirrors.lake.at().mark
            assert "public.a" not in mark.versions
            _seconds(served, 5)
            assert mirrors.lake.at().epoch == mark.epoch
        served.until(lambda: "public.a" in mirrors.lake.at().mark.versions, "the table, once it is free")


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
