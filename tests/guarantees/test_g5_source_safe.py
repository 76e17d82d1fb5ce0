"""G5: the source is safe with us: what we hold back, what we lock, what we make, whom we disturb."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.sources.postgres.position import Lsn
from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.postgres import Database, postgres
from tests.guarantees.conftest import Stormy


def test_g5_nothing_is_acknowledged_that_no_mark_holds(stormy: Stormy) -> None:
    [(confirmed,)] = stormy.database.execute(
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE database = current_database()"
    )
    newest = stormy.lake.marks()[-1]
    assert Lsn.parse(confirmed) <= Lsn.parse(newest.frontier)


def test_g5_with_an_idle_source_the_slot_advances_and_a_lost_key_hurts_nobody(
    database: Database, tmp_path: Path, program: Program
) -> None:
    database.execute("CREATE TABLE mirrored (id int PRIMARY KEY)", user="app")
    database.execute("CREATE TABLE keyed (id int PRIMARY KEY); INSERT INTO keyed VALUES (1)", user="app")
    database.execute("CREATE TABLE other (id int, filler text)", user="app")
    tables = ("public.mirrored", "public.keyed")
    with Mirrored(tmp_path / "lake", database.url(user="app"), *tables, program=program) as mirror:
        mirror.until_live()
        before = _confirmed(database)
        database.execute("INSERT INTO other SELECT i, repeat('x', 1000) FROM generate_series(1, 25000) i")
        with database.server.connect() as elsewhere:
            elsewhere.execute("CREATE TABLE IF NOT EXISTS noise (t text)")
            elsewhere.execute("INSERT INTO noise SELECT repeat('y', 900) FROM generate_series(1, 5000)")
        mirror.until(lambda: int(_confirmed(database)) > int(before) + 16_000_000, "advance of the slot")
        _lose_a_key(database, mirror)


def _lose_a_key(database: Database, mirror: Mirrored) -> None:
    """All that the application does with the table fails then, so nothing in the stream tells of it."""
    database.execute("ALTER TABLE keyed DROP CONSTRAINT keyed_pkey", user="app")
    published = "SELECT tablename FROM pg_publication_tables"
    mirror.until(lambda: database.execute(published) == [("mirrored",)], "the table leaves our publication")
    database.execute(
        "UPDATE keyed SET id = 2; DELETE FROM keyed; INSERT INTO mirrored VALUES (7)", user="app"
    )
    mirror.until(lambda: set(mirror.lake.at().mark.versions) == {"public.mirrored"}, "it stops, alone")
    mirror.until(lambda: mirror.lake.at().arrow("public.mirrored").num_rows == 1, "the other goes on")


def _confirmed(database: Database) -> Lsn:
    [(lsn,)] = database.execute(
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE database = current_database()"
    )
    return Lsn.parse(lsn)


def test_g5_the_application_goes_on_whatever_its_tables_identities_are(
    database: Database, tmp_path: Path, program: Program
) -> None:
    database.execute("CREATE TABLE good (id int PRIMARY KEY, n int)", user="app")
    database.execute("CREATE TABLE keyless (a int, n int)", user="app")
    database.execute("CREATE TABLE nothing (id int PRIMARY KEY, n int)", user="app")
    database.execute("ALTER TABLE nothing REPLICA IDENTITY NOTHING", user="app")
    tables = ("public.good", "public.keyless", "public.nothing")
    mirror = Mirrored(tmp_path / "lake", database.url(user="app"), *tables, program=program)
    try:
        assert mirror.once() == 2
        assert "keyless" in mirror.log()
    finally:
        mirror.close()
    for table in ("good", "keyless", "nothing"):
        database.execute(f"INSERT INTO {table} VALUES (1, 1)", user="app")
        database.execute(f"UPDATE {table} SET n = 2", user="app")
        database.execute(f"DELETE FROM {table}", user="app")
    assert database.execute("SELECT 1 FROM pg_publication") == []
    slots = "SELECT 1 FROM pg_replication_slots WHERE database = current_database()"
    assert database.execute(slots) == []


def test_g5_drop_removes_everything_that_we_made_and_refuses_while_we_run(
    database: Database, tmp_path: Path, program: Program
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", user="app")
    with Mirrored(tmp_path / "lake", database.url(user="app"), "public.*", program=program) as mirror:
        mirror.until_live()
        mirror.until(lambda: mirror.status().state == "running", "run")
        known = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
        made = database.execute(known)
        for arguments, code, said in (([], 2, "DROP_UNCONFIRMED"), (["--dry-run"], 0, "would be dropped")):
            asked = _drop(mirror.lake_path, database, *arguments)
            assert asked.returncode == code
            assert said in asked.stdout + asked.stderr
            assert all(f'slot "{slot}"' in asked.stdout for (slot,) in made)
        assert database.execute(known) == made
        refused = _drop(mirror.lake_path, database, "--yes")
        assert refused.returncode == 2
        assert "SOURCE_OWNED" in refused.stderr
        done = _drop(mirror.lake_path, database, "--stop", "--yes")
        assert done.returncode == 0, done.stderr
        assert mirror.wait() == 0
    assert database.execute("SELECT 1 FROM pg_publication") == []
    slots = "SELECT 1 FROM pg_replication_slots WHERE database = current_database()"
    assert database.execute(slots) == []


def _drop(lake: Path, database: Database, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace.cli.main", "drop", "--lake", str(lake), *arguments],
        env={"PATH": "/usr/bin:/bin", "PGPASSWORD": database.server.password},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("connections", [1, pytest.param(2, marks=pytest.mark.full)])
def test_g5_the_copy_never_opens_more_connections_than_it_may(
    database: Database, tmp_path: Path, connections: int, program: Program
) -> None:
    for name in "abcd":
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, t text)", user="app")
        database.execute(f"INSERT INTO {name} SELECT i, 'row' FROM generate_series(1, 20000) i", user="app")
    copies = (
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY (SELECT%' AND state = 'active'"
        " AND datname = current_database()"
    )
    most = 0
    url, options = database.url(user="app"), {"snapshot_connections": connections}
    mirror = Mirrored(tmp_path / "lake", url, "public.*", options=options, program=program)
    try:
        mirror.start("--once")
        while mirror.running:
            most = max(most, *database.execute(copies)[0])
        assert mirror.wait() == 0, mirror.log()
        assert most <= connections
    finally:
        mirror.close()


@pytest.mark.full
def test_g5_a_run_lets_go_when_commits_begin_to_wait_for_it(tmp_path: Path) -> None:
    with postgres() as server, server.database() as database:
        database.execute("CREATE TABLE t (id int PRIMARY KEY)", user="app")
        with Mirrored(tmp_path / "lake", database.url(user="app"), "public.*") as mirror:
            mirror.until_live()
            database.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            database.execute("SELECT pg_reload_conf()")
            mirror.until(lambda: _waits_for(mirror, "PG_SYNCHRONOUS"), "letting go")
            assert database.execute("SELECT 1 FROM pg_stat_replication") == []
            database.execute("ALTER SYSTEM RESET synchronous_standby_names")
            database.execute("SELECT pg_reload_conf()")
            database.execute("INSERT INTO t VALUES (1)")
            mirror.until(lambda: mirror.lake.at().arrow("public.t").num_rows == 1, "the mirror to go on")


def _waits_for(mirror: Mirrored, code: str) -> bool:
    """Tell whether the run has let go, and names this code as the reason."""
    said = mirror.status().status
    return said.state == "waiting" and said.error is not None and said.error["code"] == code


@pytest.mark.full
@pytest.mark.timeout(900)
def test_g5_a_frozen_run_makes_way_and_takes_nothing_back(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", user="app")
    url = database.url(user="app")
    with Mirrored(tmp_path / "lake", url, "public.*") as frozen:
        frozen.until_live()
        frozen.until(lambda: frozen.status().state == "running", "run")
        os.kill(frozen.pid, signal.SIGSTOP)
        successor = Mirrored(tmp_path / "lake", url, "public.*")
        try:
            database.execute("INSERT INTO t VALUES (1)", user="app")
            deadline = time.monotonic() + 300
            code = 2  # while the frozen one is taken for alive
            while code == 2 and time.monotonic() < deadline:
                code = successor.once()
            assert code in (0, 4), successor.log()  # 4: patience ended before the receiver made way
            successor.start()
            successor.until(
                lambda: successor.lake.at().arrow("public.t").num_rows == 1, "mark of the successor"
            )
            os.kill(frozen.pid, signal.SIGCONT)
            assert frozen.wait() == 2, frozen.log()
            assert "LAKE_FENCED" in frozen.log()
            database.execute("INSERT INTO t VALUES (2)", user="app")
            successor.until(lambda: successor.lake.at().arrow("public.t").num_rows == 2, "another mark")
            assert successor.stop() == 0, successor.log()
        finally:
            successor.close()
