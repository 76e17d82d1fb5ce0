"""MySQL and MariaDB themselves: they start with a good source's settings, crash, and never stay behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.constants import ER

from headrace.core.errors import Misconfigured
from headrace_testing.mysql import Database, Server, mariadb, mysql, replica
from headrace_testing.mysql.server import run
from headrace_testing.postmaster import wait_for
from headrace_testing.tls import Certificates, issue

pytestmark = pytest.mark.server

KINDS = ("mysql", "mariadb")
Kind = Callable[[], AbstractContextManager[Server]]


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Server:
    made = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(made, Server)
    return made


@pytest.fixture
def db(server: Server) -> Iterator[Database]:
    server.start()
    with server.database() as made:
        made.execute("CREATE TABLE t (id int PRIMARY KEY)", user="app")
        yield made


def test_it_has_the_settings_of_a_good_source(server: Server) -> None:
    [row] = server.execute(
        "SELECT @@log_bin, @@binlog_format, @@binlog_row_image, @@binlog_row_metadata, @@server_id, @@version"
    )
    assert row[:5] == (1, "ROW", "FULL", "FULL", server.server_id)
    assert row[5].startswith(server.version)
    if server.flavour.is_mariadb:
        assert server.execute("SELECT @@gtid_strict_mode, @@gtid_domain_id") == [(1, 7)]
    else:
        assert server.execute("SELECT @@gtid_mode, @@enforce_gtid_consistency") == [("ON", "ON")]


def test_a_crash_keeps_what_was_committed_and_nothing_else(db: Database) -> None:
    db.execute("INSERT INTO t VALUES (1)")
    port, pid = db.server.port, db.server.process.pid
    with db.connect() as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO t VALUES (2)")
        db.server.crash()
        assert not db.server.running
    db.server.start()
    assert db.execute("SELECT id FROM t") == [(1,)]
    assert db.server.port == port
    assert db.server.process.pid != pid


def test_app_must_give_its_password_and_may_replicate(db: Database) -> None:
    with db.connect(user="app", tcp=True) as connection:
        [everywhere, *_] = (grant for (grant,) in run(connection, "SHOW GRANTS") if " ON *.* " in grant)
        assert "REPLICATION SLAVE" in everywhere
    with pytest.raises(pymysql.err.OperationalError) as caught:
        pymysql.connect(user="app", password="p@ss/", host=db.server.host, port=db.server.port)
    assert caught.value.args[0] == ER.ACCESS_DENIED_ERROR


def test_settings_are_in_force_when_set_returns(server: Server) -> None:
    server.start()
    at_start = "log_slave_updates" if server.flavour.is_mariadb else "log_replica_updates"
    server.execute("CREATE DATABASE stays")
    question = f"SELECT @@max_connections, @@{at_start}, @@sql_mode"
    [before] = server.execute(question)
    server.set(max_connections=77, sql_mode="ANSI_QUOTES", **{at_start: "OFF"})
    assert server.execute(question) == [(77, 0, "ANSI_QUOTES")]
    server.set(max_connections=None, sql_mode=None, **{at_start: None})
    assert server.execute(question) == [before]
    assert server.execute("SHOW DATABASES LIKE 'stays'") == [("stays",)]
    server.execute("DROP DATABASE stays")


def test_a_setting_that_the_server_refuses_leaves_it_as_it_was(server: Server) -> None:
    server.start()
    with pytest.raises(pymysql.err.MySQLError):
        server.set(max_connections=99, binlog_row_image="NEARLY_FULL")
    server.set(max_connections=None)
    assert server.execute("SELECT @@max_connections, @@binlog_row_image") == [(120, "FULL")]


def test_a_log_that_is_off_is_off() -> None:
    with mariadb({"log_bin": False}) as server:
        assert server.execute("SELECT @@log_bin") == [(0,)]


def test_a_database_goes_with_everything_that_holds_it(server: Server) -> None:
    server.start()
    with server.database("to be_dropped%`") as db:
        db.execute("CREATE TABLE t (id int PRIMARY KEY)", user="app")
        session, other = db.connect(), db.connect()
        for statement in (
            "XA START 'a\xff', 'b'",
            "INSERT INTO t VALUES (1)",
            "XA END 'a\xff', 'b'",
            "XA PREPARE 'a\xff', 'b'",
        ):
            run(session, statement)
        session.close()
        run(other, "BEGIN")
        run(other, "INSERT INTO t VALUES (2)")
    assert server.execute("XA RECOVER") == []
    assert server.execute("SHOW DATABASES LIKE 'to be%'") == []


@pytest.mark.parametrize("kind", [mysql, mariadb])
def test_a_replica_catches_up_by_gtid_and_goes_on_after_a_stop(kind: Kind) -> None:
    with kind() as source, replica(source) as second:
        executed = source.flavour.executed
        assert source.execute(executed) == [("",)]  # a history begins with what its test does
        with source.database("shop") as db:
            db.execute("CREATE TABLE t (id int PRIMARY KEY)", user="app")
            db.execute("INSERT INTO t VALUES (1), (2)", user="app")
            second.catch_up()
            with second.server.connect("shop", user="app", tcp=True) as connection:
                assert run(connection, "SELECT id FROM t") == [(1,), (2,)]
            assert second.server.execute(executed) == source.execute(executed)
            assert second.server.server_id != source.server_id
            second.stop()
            db.execute("INSERT INTO t VALUES (3)")
            second.start()
            second.catch_up()
            assert second.server.execute("SELECT max(id) FROM shop.t") == [(3,)]


@pytest.mark.full
@pytest.mark.parametrize("kind", [mysql, mariadb])
def test_a_replica_goes_on_after_crashes_of_both(kind: Kind) -> None:
    with kind() as source, replica(source) as second, source.database("shop") as db:
        db.execute("CREATE TABLE t (id int PRIMARY KEY)")
        second.catch_up()
        source.crash()
        second.server.crash()
        source.start()
        db.execute("INSERT INTO t VALUES (1)")
        second.server.start()
        second.catch_up()
        assert second.server.execute("SELECT id FROM shop.t") == [(1,)]


def test_a_replica_that_stopped_says_why() -> None:
    with mariadb() as source, source.database("shop") as db, replica(source) as second:
        db.execute("CREATE TABLE t (id int PRIMARY KEY)")
        second.catch_up()
        second.server.execute("SET STATEMENT sql_log_bin = 0 FOR INSERT INTO shop.t VALUES (1)")
        db.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(RuntimeError, match="Duplicate entry"):
            second.catch_up()


def test_tls_is_verified_to_the_end(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    ours, theirs = issue(tmp_path / "ours"), issue(tmp_path / "theirs")
    with mariadb({"require_secure_transport": True}, tls=ours) as server:
        with server.connect(user="app", tcp=True, **_verified(ours)) as connection:
            [(_, cipher)] = run(connection, "SHOW STATUS LIKE 'ssl_cipher'")
            assert cipher
        with pytest.raises(pymysql.err.OperationalError, match="certificate verify failed"):
            server.connect(user="app", tcp=True, **_verified(theirs))


def _verified(certificates: Certificates) -> dict[str, Any]:
    return {"ssl_ca": str(certificates.authority), "ssl_verify_identity": True}


def test_a_server_that_does_not_start_says_why_and_leaves_nothing() -> None:
    with pytest.raises(Misconfigured) as caught, mariadb({"no_such_setting": 1}):
        pass
    assert caught.value.code == "SERVER_MISSING"
    assert "no-such-setting" in str(caught.value.detail).replace("_", "-")


ORPHAN = """
import os, signal
from headrace_testing.mysql import mariadb
with mariadb() as server:
    print(server.process.pid, server.process.folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_server_does_not_outlive_a_killed_test_run() -> None:
    ended = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    pid, folder = ended.stdout.split()
    wait_for(lambda: not Path(folder).exists(), "its folder is removed")
    assert not Path(f"/proc/{pid}/cwd").exists()
