"""The position is lost, or the server is not the one it was: the source stops, and the lake stays as it is.

Each of these comes between two runs. What must follow is one definite error with its code, no slot or
publication made anew (a new one would hide the gap), and the last mark as readable as before.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.core.errors import Definite, HeadraceError, Misconfigured
from headrace.testing.binaries import ServerUser
from headrace.testing.postgres import Server, postgres
from headrace.testing.postmaster import wait_for
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.refused import refusal, upstream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _mirrored(mirrors: Mirrors) -> None:
    """A lake that holds `t` with ten rows, and one change of the stream."""
    database = mirrors.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n int)", user="app")
    database.execute("INSERT INTO t SELECT i, i FROM generate_series(1, 9) i", user="app")
    mirrors.once()
    database.execute("INSERT INTO t VALUES (10, 10)", user="app")
    mirrors.once()


def _stops(mirrors: Mirrors, url: str | None = None) -> HeadraceError:
    """Run again; the error that ends it, after which nothing is other than before."""
    before, made = mirrors.lake.marks()[-1], upstream(mirrors.database)
    error = refusal(mirrors.path, url=url or mirrors.database.url(user="app"))
    after = mirrors.lake.marks()[-1]
    assert (after.frontier, after.versions) == (before.frontier, before.versions)
    assert upstream(mirrors.database) == made
    assert mirrors.lake.at().arrow("public.t").num_rows == 10
    return error


@pytest.fixture
def mirrored(mirrors: Mirrors) -> Mirrors:
    """A mirror at rest, on the session's server."""
    _mirrored(mirrors)
    return mirrors


@contextmanager
def _on(server: Server, path: Path, spark: SparkSession) -> Iterator[Mirrors]:
    """A mirror at rest, of a server that the test may do anything to."""
    with server.database() as database:
        mirrors = Mirrors(database, path / "lake", spark)
        _mirrored(mirrors)
        yield mirrors


# --- the slot -----------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_slot_that_was_dropped_is_not_made_anew(mirrored: Mirrors) -> None:
    mirrored.database.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
        " WHERE database = current_database()"
    )
    error = _stops(mirrored)
    assert (error.code, type(error)) == ("PG_SLOT_MISSING", Definite)


@pytest.mark.spark
def test_a_slot_that_somebody_advanced_is_a_gap(mirrored: Mirrors) -> None:
    mirrored.database.execute("INSERT INTO t VALUES (11, 11)", user="app")
    mirrored.database.execute(
        "SELECT pg_replication_slot_advance(slot_name, pg_current_wal_flush_lsn())"
        " FROM pg_replication_slots WHERE database = current_database()"
    )
    error = _stops(mirrored)
    assert (error.code, type(error)) == ("PG_SLOT_AHEAD", Definite)
    assert str(mirrored.lake.marks()[-1].frontier) in (error.detail or "")


@pytest.mark.spark
def test_a_slot_whose_log_was_removed_is_lost(tmp_path: Path, spark: SparkSession) -> None:
    with (
        postgres(settings={"max_slot_wal_keep_size": "16MB", "max_wal_size": "32MB"}) as server,
        _on(server, tmp_path, spark) as mirrored,
    ):
        database = mirrored.database
        lost = "SELECT 1 FROM pg_replication_slots WHERE wal_status = 'lost'"
        for _ in range(20):
            database.execute("SELECT pg_logical_emit_message(false, 'x', repeat('x', 900000), false)")
            database.execute("SELECT pg_switch_wal()")
            database.execute("CHECKPOINT")
            if database.execute(lost):
                break
        assert database.execute(lost)
        error = _stops(mirrored)
        assert (error.code, type(error)) == ("PG_SLOT_LOST", Definite)


@pytest.mark.spark
def test_a_publication_that_was_dropped_is_not_made_anew(mirrored: Mirrors) -> None:
    [(name,)] = mirrored.database.execute("SELECT pubname FROM pg_publication")
    mirrored.database.execute(f'DROP PUBLICATION "{name}"')
    error = _stops(mirrored)
    assert (error.code, type(error)) == ("PG_PUBLICATION_MISSING", Misconfigured)
    assert name in (error.detail or "")


# --- the server ---------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_server_restored_from_a_backup_is_behind_us(tmp_path: Path, spark: SparkSession) -> None:
    with postgres() as server, _on(server, tmp_path, spark) as mirrored:
        data, backup = server.postmaster.data, server.postmaster.folder / "backup"
        server.stop()
        shutil.copytree(data, backup)
        server.start()
        mirrored.database.execute("DELETE FROM t WHERE id = 10", user="app")
        mirrored.database.execute("INSERT INTO t VALUES (12, 12)", user="app")
        mirrored.database.execute("CREATE TABLE filler AS SELECT i FROM generate_series(1, 9999) i")
        mirrored.once("public.t")
        server.stop()
        shutil.rmtree(data)
        backup.rename(data)
        for path in (data, *data.rglob("*")):
            ServerUser.choose().own(path)
        server.start()
        error = _stops(mirrored)
        assert (error.code, type(error)) == ("PG_SERVER_BEHIND", Definite)


@pytest.mark.spark
def test_a_server_on_another_timeline_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    with postgres() as server, _on(server, tmp_path, spark) as mirrored:
        server.set(restore_command="/bin/false")
        server.stop()
        # Recovery from an archive ends as a promotion does: on a timeline of its own.
        signal = server.postmaster.data / "recovery.signal"
        signal.touch()
        ServerUser.choose().own(signal)
        server.start()
        wait_for(lambda: not server.execute("SELECT pg_is_in_recovery()")[0][0], "recovery ends")
        error = _stops(mirrored)
        assert (error.code, type(error)) == ("PG_TIMELINE_CHANGED", Definite)


@pytest.mark.spark
def test_another_server_behind_the_address_is_refused(mirrored: Mirrors) -> None:
    with postgres() as other, other.database(mirrored.database.name) as database:
        database.execute("CREATE TABLE t (id int PRIMARY KEY, n int)", user="app")
        error = _stops(mirrored, url=database.url(user="app"))
        assert (error.code, type(error)) == ("PG_ANOTHER_SERVER", Definite)
        assert upstream(database) == (set(), set())


@pytest.mark.spark
def test_another_database_of_the_server_is_refused(mirrored: Mirrors) -> None:
    with mirrored.database.server.database() as database:
        error = _stops(mirrored, url=database.url(user="app"))
        assert (error.code, type(error)) == ("PG_ANOTHER_SERVER", Definite)
        assert upstream(database) == (set(), set())
