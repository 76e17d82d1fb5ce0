"""A mirror that moves to a replica of its source and back while the source is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace_testing.mysql import Database, mariadb, mysql, replica
from headrace_testing.mysql.replica import Replica
from headrace_testing.workload import Transfers, running
from tests.conformance.conftest import Mirror
from tests.conformance.sources import MysqlPlace, execute
from tests.integration.mysql.mirrors.judging import assert_exact, assert_whole

pytestmark = [pytest.mark.server, pytest.mark.full]

ROUNDS = 3


@pytest.fixture(params=["mysql", "mariadb"])
def second(request: pytest.FixtureRequest) -> Iterator[Replica]:
    """A replica; its source is a server of its own, too, since it takes the whole log."""
    with (mysql if request.param == "mysql" else mariadb)() as first, replica(first) as made:
        yield made


@pytest.fixture
def database(second: Replica) -> Iterator[Database]:
    with second.source.database() as made:
        yield made


def test_a_mirror_moves_to_a_replica_and_back_under_writes(
    second: Replica, database: Database, tmp_path: Path, seed: int
) -> None:
    mirror = Mirror(MysqlPlace(database), tmp_path / "lake")
    here, there = mirror.place.url, second.server.url(database.name, user="mirror")
    with running(Transfers(), here, seed=seed, pause=0.01):
        mirror.once()
        for _ in range(ROUNDS):
            second.catch_up()
            mirror.once(url=there)
            mirror.once(url=here)
    second.catch_up()
    lake = mirror.once(url=there)
    assert [mark.kind for mark in lake.marks()].count("switch") == 2 * ROUNDS + 1
    assert_exact(lake, here)
    assert_whole(lake, database.name, times=50)
    lake = mirror.once()
    second.stop()
    execute(mirror.place, "DELETE FROM transfer_in", "DELETE FROM transfer_out")
    held = mirror.once().at().mark
    assert mirror.stops(url=there, reconcile="auto").code == "MY_ANOTHER_SERVER"
    now = mirror.lake.at().mark
    assert (now.versions, now.time, now.changes) == (held.versions, held.time, 0), now
    second.start()
    second.catch_up()
    assert_exact(mirror.once(url=there), here)
