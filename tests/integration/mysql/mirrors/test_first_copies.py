"""First copies that are cut short, by the log that is purged behind them; and those of two lakes at once."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path

import pytest

from headrace_testing.mirror_process import Mirrored
from headrace_testing.mysql import Database
from headrace_testing.workload import Transfers, running
from tests.conformance.conftest import Mirror
from tests.conformance.sources import execute
from tests.integration.mysql.mirrors.judging import assert_exact, assert_whole, kinds, onward
from tests.nursery import Nursery

pytestmark = pytest.mark.server


@kinds("mariadb", releases=True)
def test_a_log_that_is_purged_past_the_start_while_tables_are_copied_stops_the_source(
    mirror: Mirror, mirrored: Mirrored, database: Database
) -> None:
    """Nothing was published by then, and the next copy needs another place to begin at."""
    place = mirror.place
    for table in ("t", "u"):
        execute(
            place, f"CREATE TABLE {table} (id int PRIMARY KEY, n int)", f"INSERT INTO {table} VALUES (1, 1)"
        )
    mirrored.start(environment={"HEADRACE_FAILPOINT": "copy.range.after=kill"})
    assert mirrored.wait() == -signal.SIGKILL, mirrored.log()
    execute(place, "INSERT INTO t VALUES (2, 2)", "UPDATE u SET n = 5")
    database.server.purge()
    execute(place, "INSERT INTO t VALUES (3, 3)")
    error = mirror.stops()
    assert (error.code, "--reconcile" in error.hint) == ("MY_BINLOG_PURGED", True)
    assert not mirror.lake.marks()[-1].versions
    assert_exact(mirror.once(heal=True), place.url)
    execute(place, "DELETE FROM t WHERE id = 1", "INSERT INTO u VALUES (9, 9)")
    assert_exact(mirror.once(), place.url)


@kinds("mysql", releases=True)
def test_two_lakes_of_one_server_are_exact_beside_each_other(
    mirror: Mirror, database: Database, nursery: Nursery, tmp_path: Path, seed: int
) -> None:
    """Each has a dump and locks of its own; that one of them is killed is nothing to the other."""
    url = database.url(user="mirror")
    lakes = (mirror.path, tmp_path / "other")
    both = [Mirrored(lake, url, *mirror.patterns, program=nursery.run) for lake in lakes]
    with closing(both[0]) as one, closing(both[1]) as other:
        with running(Transfers(), mirror.place.owner_url, seed=seed, pause=0.02) as work:
            for each in both:
                each.start()
            for each in both:
                each.until_live()
            one.kill()
            committed = work.committed
            other.until(lambda: work.committed > committed + 20, "transfers beside it", within=60)
            one.start()
            for each in both:
                onward(each, 1)
        assert [each.stop() for each in both] == [0, 0]
    for lake in lakes:
        of_lake = Mirror(mirror.place, lake)
        assert_exact(of_lake.once(), mirror.place.url)
        assert_whole(of_lake.lake, database.name, times=5)
