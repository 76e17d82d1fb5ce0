"""A queue on another server than before: one with our newest tick goes on, every other is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace_testing import validators
from headrace_testing.copies import Backup, caught_up, promote, standby
from headrace_testing.postgres import Database, Server, postgres
from headrace_testing.postmaster import wait_for
from tests import without_spark
from tests.conformance.conftest import Mirror
from tests.conformance.sources import QueuePlace

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark.jobs_in_process(monkeypatch)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of its own: it is stopped, copied and set back."""
    with postgres(settings={"wal_level": "replica"}) as own:
        own.execute("ALTER ROLE app NOREPLICATION")
        yield own


@pytest.fixture
def mirror(server: Server, tmp_path: Path) -> Iterator[Mirror]:
    """A database with a table that is followed."""
    server.start()
    with server.database() as database:
        database.execute("CREATE TABLE t (id int PRIMARY KEY, n int)", user="app")
        mirror = Mirror(QueuePlace(database), tmp_path / "lake", of_many=True)
        _write(database, 1)
        mirror.once()
        yield mirror


def _write(database: Database, number: int) -> None:
    database.execute(
        f"INSERT INTO t SELECT i, {number} FROM generate_series(1, {10 * number}) i"
        " ON CONFLICT (id) DO UPDATE SET n = excluded.n",
        user="app",
    )


def _database(mirror: Mirror) -> Database:
    assert isinstance(mirror.place, QueuePlace)
    return mirror.place.database


def _at(mirror: Mirror, server: Server) -> Mirror:
    """Mirror the same database on another server, into the same lake."""
    return Mirror(QueuePlace(Database(server, _database(mirror).name)), mirror.path, of_many=True)


def _exact(mirror: Mirror) -> None:
    assert validators.exact(mirror.lake, mirror.place.url, values=True) == []
    assert validators.definite(mirror.lake, of_many=True) == []


def test_a_promoted_standby_that_has_our_newest_tick_goes_on(mirror: Mirror, server: Server) -> None:
    with standby(server) as other:
        _write(_database(mirror), 2)
        mirror.once()
        wait_for(lambda: caught_up(server, other), "the standby has caught up")
        server.stop("immediate")
        moved = _at(mirror, other)
        assert moved.stops().code == "QUEUE_STANDBY"
        promote(other)
        _write(_database(moved), 3)
        before = moved.lake.marks()[-1]
        moved.once()
        _exact(moved)
        assert moved.lake.marks()[-1].time > before.time
        assert moved.lake.marks()[-1].incarnation == before.incarnation


def test_a_promoted_standby_that_lacks_our_newest_tick_is_refused(mirror: Mirror, server: Server) -> None:
    with standby(server) as other:
        other.execute("ALTER SYSTEM SET primary_conninfo = ''")
        other.execute("SELECT pg_reload_conf()")
        wait_for(lambda: not other.execute("SELECT 1 FROM pg_stat_wal_receiver"), "it hears nothing more")
        _write(_database(mirror), 2)
        mirror.once()
        server.stop("immediate")
        promote(other)
        moved = _at(mirror, other)
        _write(_database(moved), 3)
        error = moved.stops()
        assert (error.code, "--reconcile" in error.hint) == ("QUEUE_TICK_UNKNOWN", True)
        moved.once(heal=True)
        _exact(moved)


def test_a_restored_backup_is_refused_however_far_it_has_come_since(mirror: Mirror, server: Server) -> None:
    backup = Backup.of(server)
    _write(_database(mirror), 2)
    mirror.once()
    backup.restore()
    for number in range(3, 8):
        _write(_database(mirror), number)
        _database(mirror).execute("SELECT count(*) FROM headrace.tick")
    assert mirror.stops().code == "QUEUE_TICK_UNKNOWN"
    mirror.once(heal=True)
    _exact(mirror)
    _write(_database(mirror), 9)
    mirror.once()
    _exact(mirror)


def test_a_queue_that_was_dropped_and_made_again_is_refused(mirror: Mirror) -> None:
    database = _database(mirror)
    # As on a server into which a dump was loaded: its transactions have smaller numbers than the ticks know.
    database.execute("UPDATE headrace.tick SET snapshot = '99999999:99999999:'")
    assert mirror.stops().code == "QUEUE_XIDS_BEHIND"
    database.execute("DROP SCHEMA headrace CASCADE")
    _write(database, 2)
    assert mirror.stops().code in ("QUEUE_GONE", "QUEUE_REMADE")
    mirror.once(heal=True)
    _exact(mirror)
