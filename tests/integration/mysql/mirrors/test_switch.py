"""A mirror that moves between the servers of a replication set while they are written."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace_testing import validators
from headrace_testing.mirror_process import Mirrored, interpreter
from headrace_testing.mysql import Database, mariadb, mysql, replica
from headrace_testing.mysql.replica import Replica
from headrace_testing.names import Names
from headrace_testing.postmaster import wait_for
from headrace_testing.proxy import Proxy
from headrace_testing.workload import Running, Transfers, running
from tests.conformance.conftest import Mirror
from tests.conformance.sources import MysqlPlace, execute
from tests.integration.mysql.mirrors.judging import assert_exact, assert_whole, onward
from tests.nursery import Nursery

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


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("times", [2, 20])
def test_a_mirror_follows_switch_overs_and_copies_nothing(
    second: Replica, database: Database, tmp_path: Path, nursery: Nursery, seed: int, times: int
) -> None:
    """Its address leads to one server after the other; every mark has what its server had."""
    dice, recordings = random.Random(seed), []
    with ExitStack() as stack:
        door = stack.enter_context(Proxy(second.source.host, second.source.port))
        url = database.url(user="mirror", port=door.port)
        mirror = Mirrored(tmp_path / "lake", url, f"{database.name}.*", program=nursery.run)
        stack.callback(mirror.close)
        writers = running(Transfers(), database.url(user="app", port=door.port), seed=seed, pause=0.02)
        with writers as work:
            mirror.start()
            mirror.until_live()
            copied = kinds_of(mirror).count("copy")
            for _ in range(times):
                after(work, dice.randint(1, 40))
                second = switched_over(second, door)
                where = second.source.url(database.name)
                recordings.append(validators.record(where, [f"{database.name}.transfer_in"]))
                until_switched(mirror, len(recordings))
        assert mirror.stop() == 0, mirror.log()
        assert mirror.once() == 0, mirror.log()
        assert kinds_of(mirror).count("copy") == copied
        assert len(mirror.lake.marks()[-1].versions) == 3
        assert_exact(mirror.lake, second.source.url(database.name, user="mirror"))
        assert validators.exact_at(mirror.lake, recordings) == []
        assert_whole(mirror.lake, database.name, times=10 * times)


def test_a_run_follows_a_name_that_moves(
    second: Replica, database: Database, tmp_path: Path, seed: int
) -> None:
    """Each server has an address of its own, and the port of the other one."""
    with ExitStack() as stack:
        here = stack.enter_context(Proxy(second.source.host, second.source.port))
        there = Proxy(second.server.host, second.server.port, at=("127.0.0.2", here.port))
        stack.enter_context(there)
        names = Names(tmp_path, {"db.test": here.host})
        url = database.url(user="mirror", host="db.test", port=here.port)
        program = interpreter("headrace_testing.without_spark")
        environment = names.environment
        mirror = Mirrored(
            tmp_path / "lake", url, f"{database.name}.*", environment=environment, program=program
        )
        stack.callback(mirror.close)
        with running(Transfers(), database.url(user="app"), seed=seed, pause=0.02) as work:
            after(work, 1)
            mirror.start()
            mirror.until_live()
        copied = kinds_of(mirror).count("copy")
        here.refuse()
        here.cut()
        second = second.take_over()
        names.lead("db.test", there.host)
        for table in ("transfer_in", "transfer_out"):
            second.source.execute(f"DELETE FROM {database.name}.{table}")
        mirror.until(lambda: kinds_of(mirror).count("switch") == 1, "another server")
        assert mirror.stop() == 0, mirror.log()
        assert mirror.once() == 0, mirror.log()
        assert kinds_of(mirror).count("copy") == copied
        assert_exact(mirror.lake, second.source.url(database.name, user="mirror"))


def after(work: Running, transactions: int) -> None:
    """Return when the writers have committed so many more."""
    wanted = work.committed + transactions
    wait_for(lambda: work.committed >= wanted, "the writers write")


def until_switched(mirror: Mirrored, times: int) -> None:
    """Return when the mirror has followed so many switch-overs, and what is written since."""
    mirror.until(lambda: kinds_of(mirror).count("switch") == times, "another server")
    onward(mirror)


def switched_over(pair: Replica, door: Proxy) -> Replica:
    """Let the replica take over, and the address lead to it."""
    door.refuse()
    door.cut()
    sessions = "SELECT count(*) FROM information_schema.processlist WHERE user IN ('app', 'mirror')"
    wait_for(lambda: pair.source.execute(sessions) == [(0,)], "nobody is connected")
    switched = pair.take_over()
    door.lead_to(switched.source.host, switched.source.port)
    door.admit()
    return switched


def kinds_of(mirror: Mirrored) -> list[str]:
    return [mark.kind for mark in mirror.lake.marks()]
