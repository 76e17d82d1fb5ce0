"""Reading from a standby (PostgreSQL 16 and later): the primary has no slot, and does no work for us."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.core.errors import HeadraceError
from headrace.lake.read.lake import Lake
from headrace.pipeline.commands import ask
from headrace_testing import validators
from headrace_testing.copies import caught_up, promote, standby
from headrace_testing.postgres import Database, Server, postgres
from headrace_testing.postmaster import wait_for
from tests.background import repeat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.server

VERSIONS = ["18", pytest.param("16", marks=pytest.mark.full), pytest.param("17", marks=pytest.mark.full)]


@pytest.fixture(scope="module", params=VERSIONS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with postgres(request.param) as made:
        yield made


@contextmanager
def _telling(primary: Server) -> Iterator[None]:
    """A primary on which things happen: it writes down which transactions run."""
    with repeat(lambda: primary.execute("SELECT pg_log_standby_snapshot()"), every=0.2):
        yield


def test_a_standby_is_mirrored_without_a_slot_on_its_primary(
    server: Server, tmp_path: Path, engine: SparkSession | None
) -> None:
    with server.database() as database:
        database.execute(
            "CREATE TABLE t (id int PRIMARY KEY, s text);"
            "INSERT INTO t SELECT i FROM generate_series(1, 500) i;"
            "CREATE PUBLICATION theirs FOR TABLE t",
            user="app",
        )
        with standby(server) as other, _telling(server):
            there = Database(other, database.name)
            source: dict[str, Any] = {"url": there.url(user="app"), "publication": "theirs"}
            config = {"lake": {"path": str(tmp_path / "lake")}, "source": {"main": source}}
            with pytest.raises(HeadraceError) as caught:
                headrace.mirror(
                    {**config, "source": {"main": source | {"handoff": "xid"}}}, engine, once=True
                )
            assert caught.value.code == "PG_HANDOFF_STANDBY"
            with database.connect(user="app") as writing:
                writing.execute("BEGIN")
                writing.execute("UPDATE t SET s = 'open while it began' WHERE id = 1")
                began = threading.Thread(target=headrace.mirror, args=(config, engine), kwargs={"once": True})
                began.start()
                began.join(3)
                writing.execute("COMMIT")
                began.join(240)
            lake = Lake(tmp_path / "lake")
            for number in range(3):
                database.execute(f"UPDATE t SET s = 'turn {number}' WHERE id % 3 = {number}", user="app")
                wait_for(lambda: caught_up(server, other), "the standby has it")
                headrace.mirror(config, engine, once=True)
                assert validators.exact(lake, there.url(), values=True) == []
            database.execute(
                "CREATE TABLE u (id int PRIMARY KEY); INSERT INTO u VALUES (1);"
                "ALTER PUBLICATION theirs ADD TABLE u",
                user="app",
            )
            wait_for(lambda: caught_up(server, other), "the standby has it")
            ask.ask(str(tmp_path / "lake"), "tables.add", {"tables": ["public.u"]}, url=source["url"])
            headrace.mirror(config, engine, once=True)
            assert set(lake.marks()[-1].versions) == {"public.t", "public.u"}
            assert validators.exact(lake, there.url(), values=True) == []
            assert validators.definite(lake) == []
            assert server.execute("SELECT count(*) FROM pg_replication_slots") == [(0,)]
            assert other.execute("SELECT count(*) FROM pg_replication_slots") == [(1,)]
            # Its slot outlives its promotion, and the mirror goes on there.
            since = lake.marks()[-1].epoch
            promote(other)
            there.execute(
                "UPDATE t SET s = 'of a primary' WHERE id < 9; INSERT INTO u VALUES (2)", user="app"
            )
            headrace.mirror(config, engine, once=True)
            assert validators.exact(lake, there.url(), values=True) == []
            kinds = {mark.kind for mark in lake.marks() if mark.epoch > since}
            assert "switch" in kinds
            assert not kinds & {"copy", "lost"}
