"""Verify against the wrong server is refused; against the right one it keeps to its connections."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.core.errors import HeadraceError
from headrace_testing.copies import demote, promote
from headrace_testing.postgres import postgres
from tests.background import repeat
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.verifying import config_of, outcomes, verified

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace_testing.postgres import Database

pytestmark = [pytest.mark.spark, pytest.mark.server]


@pytest.mark.full
def test_a_standby_and_a_promoted_server_are_refused(tmp_path: Path, spark: SparkSession) -> None:
    with postgres() as server, server.database() as database:
        database.execute("CREATE TABLE t (id int PRIMARY KEY)", user="app")
        mirrors = Mirrors(database, tmp_path / "lake", spark)
        mirrors.once()
        assert outcomes(verified(mirrors)) == {"public.t": "equal"}
        demote(server)
        assert _code(mirrors) == "VERIFY_STANDBY"
        promote(server)
        assert _code(mirrors) == "PG_TIMELINE_CHANGED"


def _code(mirrors: Mirrors) -> str:
    with pytest.raises(HeadraceError) as caught:
        headrace.verify(config_of(mirrors), spark=mirrors.spark)
    return caught.value.code


@pytest.mark.full
def test_never_more_than_snapshot_connections_read_at_once(mirrors: Mirrors, database: Database) -> None:
    """A table of several ranges; beside those who read there are the leader and the one who looks."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, pad text)", user="app")
    database.execute("INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 300000) i")
    mirrors.once()
    seen = [0]
    with database.connect() as connection:
        connection.autocommit = True

        def count() -> None:
            [(readers,)] = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY (SELECT%'"
            ).fetchall()
            seen.append(readers)

        with repeat(count, every=0.005):
            [verdict] = headrace.verify(config_of(mirrors, snapshot_connections=2), spark=mirrors.spark)
    assert outcomes(verdict) == {"public.t": "equal"}
    assert 1 <= max(seen) <= 2
