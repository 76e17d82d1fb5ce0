"""The servers themselves: each version starts, crashes, comes back with its data, and never stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.core.errors import Misconfigured
from headrace_testing.pgbench import TABLES
from headrace_testing.postgres import Database, Mode, Server, postgres
from headrace_testing.postmaster import wait_for
from headrace_testing.tls import issue

pytestmark = pytest.mark.server

BUILDS = [
    ("18", "pip"),
    pytest.param(("18", "npm"), marks=pytest.mark.full),
    pytest.param(("17", "npm"), marks=pytest.mark.full),
    pytest.param(("16", "npm"), marks=pytest.mark.full),
    pytest.param(("15", "npm"), marks=pytest.mark.full),
    pytest.param(("15", None), marks=pytest.mark.full),
]


@pytest.fixture(scope="module", params=BUILDS, ids=lambda build: f"{build[0]}-{build[1]}")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    version, build = request.param
    with postgres(version, build=build) as made:
        yield made


@pytest.fixture
def db(server: Server) -> Iterator[Database]:
    server.start()
    with server.database() as made:
        made.execute("CREATE TABLE t (id int PRIMARY KEY)", user="app")
        yield made


def test_it_is_the_version_that_was_asked_for(server: Server) -> None:
    (number,) = server.execute("SHOW server_version_num")[0]
    assert number.startswith(server.version)
    assert server.execute("SHOW wal_level") == [("logical",)]
    assert server.execute("SHOW fsync") == [("on",)]


def test_a_crash_keeps_what_was_committed_and_nothing_else(db: Database) -> None:
    db.execute("INSERT INTO t VALUES (1)")
    port = db.server.port
    connection = db.connect()
    connection.execute("BEGIN")
    connection.execute("INSERT INTO t VALUES (2)")
    db.server.crash()
    assert not db.server.running
    connection.close()
    db.server.start()
    assert db.execute("SELECT id FROM t") == [(1,)]
    assert db.server.port == port
    assert "was interrupted" in db.server.log()


def test_an_immediate_stop_replays_the_log_and_a_fast_one_does_not(db: Database) -> None:
    db.execute("INSERT INTO t VALUES (1)")
    modes: list[tuple[Mode, bool]] = [("fast", False), ("immediate", True)]
    for mode, replays in modes:
        before = len(db.server.log())
        db.server.restart(mode)
        assert ("not properly shut down" in db.server.log()[before:]) is replays
    assert db.execute("SELECT id FROM t") == [(1,)]


def test_a_logical_slot_survives_a_crash(db: Database) -> None:
    db.execute("SELECT pg_create_logical_replication_slot('survivor', 'pgoutput')")
    db.server.crash()
    db.server.start()
    assert db.execute("SELECT slot_name FROM pg_replication_slots") == [("survivor",)]


def test_app_must_give_its_password_and_postgres_need_not(db: Database) -> None:
    assert db.execute("SELECT current_user", user="app") == [("app",)]
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(db.url(user="app", password="p@ss/"))
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(f"host=127.0.0.1 port={db.server.port} user=app dbname={db.name}")
    with psycopg.connect(db.url(user="app", host=str(db.server.socket_folder))) as connection:
        assert connection.execute("SELECT inet_server_addr()").fetchall() == [(None,)]


def test_app_may_replicate(db: Database) -> None:
    with psycopg.connect(db.url(user="app", replication="database"), autocommit=True) as connection:
        rows = connection.execute("IDENTIFY_SYSTEM").fetchall()
    assert rows[0][3] == db.name


def test_settings_are_in_force_when_set_returns(server: Server) -> None:
    server.set(wal_sender_timeout="2s")
    assert server.execute("SHOW wal_sender_timeout") == [("2s",)]
    server.set(max_replication_slots=7)
    assert server.execute("SHOW max_replication_slots") == [("7",)]
    server.set(wal_sender_timeout=None, max_replication_slots=None)
    assert server.execute("SHOW wal_sender_timeout") == [("1min",)]
    assert server.execute("SHOW max_replication_slots") == [("20",)]


def test_a_database_goes_with_everything_that_holds_it(server: Server) -> None:
    with server.database("to be dropped") as db:
        db.execute("CREATE TABLE t (id int)")
        db.execute("CREATE PUBLICATION p FOR TABLE t")
        db.execute("SELECT pg_create_logical_replication_slot('idle', 'pgoutput')")
        stream = psycopg.connect(db.url(replication="database"), autocommit=True)
        stream.execute("CREATE_REPLICATION_SLOT held LOGICAL pgoutput")
        stream.pgconn.send_query(
            b"START_REPLICATION SLOT held LOGICAL 0/0 (proto_version '1', publication_names 'p')"
        )
        wait_for(
            lambda: (
                db.execute("SELECT active FROM pg_replication_slots WHERE slot_name = 'held'") == [(True,)]
            ),
            "the slot is in use",
        )
        writer = db.connect()
        writer.execute("BEGIN")
        writer.execute("INSERT INTO t VALUES (1)")
        writer.execute("PREPARE TRANSACTION 'prepared'")
        db.execute("CREATE SUBSCRIPTION s CONNECTION 'dbname=x' PUBLICATION p WITH (connect = false)")
    assert server.execute("SELECT 1 FROM pg_replication_slots") == []
    assert server.execute("SELECT 1 FROM pg_database WHERE datname = 'to be dropped'") == []


def test_a_database_of_a_crashed_server_is_removed_too(server: Server) -> None:
    with server.database() as db:
        server.crash()
    assert server.execute("SELECT 1 FROM pg_database WHERE datname = %s", [db.name]) == []


def balances(db: Database) -> list[int]:
    columns = ("abalance", "tbalance", "bbalance", "delta")
    queries = (f"SELECT coalesce(sum({c}), 0) FROM {t}" for c, t in zip(columns, TABLES, strict=True))
    rows = db.execute(f"SELECT {', '.join(f'({query})' for query in queries)}")
    return [int(value) for value in rows[0]]


def test_pgbench_goes_on_over_a_crash_and_its_balances_agree(db: Database) -> None:
    db.pgbench_tables()

    def committed() -> int:
        return int(db.execute("SELECT count(*) FROM pgbench_history")[0][0])

    with db.pgbench(clients=2) as bench:
        wait_for(lambda: committed() > 20, "pgbench commits")
        db.server.crash()
        db.server.start()
        before = committed()
        wait_for(lambda: committed() > before + 20, "pgbench commits again")
        commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
        assert not any(db.server.password.encode() in command for command in commands)
        bench.stop()
    wait_for(
        lambda: db.execute("SELECT 1 FROM pg_stat_activity WHERE application_name = 'pgbench'") == [],
        "pgbench's sessions are gone",
    )
    assert len(set(balances(db))) == 1
    assert db.execute("SELECT relreplident FROM pg_class WHERE relname = 'pgbench_history'") == [("f",)]


def test_tls_is_verified_to_the_end(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    ours, theirs = issue(tmp_path / "ours"), issue(tmp_path / "theirs")
    with postgres(tls=ours, hba=["hostnossl all app all reject"]) as server:
        url = server.url(user="app", sslmode="verify-full", sslrootcert=str(ours.authority))
        with psycopg.connect(url) as connection:
            assert connection.execute(
                "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            ).fetchall() == [(True,)]
        with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
            psycopg.connect(server.url(user="app", sslmode="verify-ca", sslrootcert=str(theirs.authority)))
        with pytest.raises(psycopg.OperationalError, match="reject"):
            psycopg.connect(server.url(user="app", sslmode="disable"))


def test_a_server_that_does_not_start_says_why_and_leaves_nothing() -> None:
    with pytest.raises(Misconfigured) as caught, postgres(settings={"no_such_setting": 1}):
        pass
    assert caught.value.code == "SERVER_MISSING"
    assert "no_such_setting" in str(caught.value.detail)


ORPHAN = """
import os, signal, sys
from headrace_testing.postgres import postgres
with postgres() as server:
    if sys.argv[1] == "stopped":
        server.postmaster.send(signal.SIGSTOP)
    print(server.postmaster.pid, server.postmaster.folder, flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("state", ["running", "stopped"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_server_outlives_the_process_that_opened_it(number: signal.Signals, state: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN, state], stdout=subprocess.PIPE, text=True, env=environment
    ) as child:
        assert child.stdout is not None
        pid, folder = child.stdout.readline().split()
        child.send_signal(number)
    wait_for(lambda: not Path(folder).exists(), "the watchdog removes the folder", deadline=20)
    assert not Path(f"/proc/{pid}/cwd").exists()
