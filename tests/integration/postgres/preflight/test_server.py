"""Each finding about the server and the connection, found on a real one, mended and gone."""

from __future__ import annotations

from contextlib import closing

import pytest

from headrace.cli import main as cli
from headrace.core.errors import HeadraceError
from headrace.core.records import to_record
from headrace.sources.contract.findings import Level
from headrace.sources.postgres.catalog import locks
from headrace.sources.postgres.preflight import PostgresWish, examine, script
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import identify
from headrace_testing.postgres import Database, Setting, postgres
from headrace_testing.postmaster import wait_for
from tests.integration.postgres.preflight.harness import GOOD, check, mend, serious, the

pytestmark = pytest.mark.server


def test_the_replication_attribute_is_asked_for_and_mended(db: Database) -> None:
    db.execute("ALTER ROLE app NOREPLICATION")
    report = check(db)
    assert [finding.code for finding in report.errors] == ["PG_REPLICATION_PRIVILEGE"]
    mend(db, the(report, "PG_REPLICATION_PRIVILEGE"))
    assert check(db).errors == ()


def test_the_rate_of_changes_is_read_from_the_statistics(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from those of a young server, whose tables may just have been loaded."""
    uptime = "SELECT greatest(1, EXTRACT(epoch FROM now() - pg_postmaster_start_time()))::float8"
    with db.connect() as connection, connection.transaction():
        connection.execute("INSERT INTO good SELECT i, 'b' FROM generate_series(2, 1000) i")
        connection.execute("UPDATE good SET v = 'c'; SELECT pg_stat_force_next_flush()")
    assert [size.changes_an_hour for size in check(db).sizes.values()] == [None]
    monkeypatch.setattr(locks, "COUNTED_SECONDS", 0.0)
    [(earliest,)] = db.execute(uptime)
    [size] = check(db).sizes.values()
    [(latest,)] = db.execute(uptime)
    assert size.changes_an_hour is not None
    assert size.changes_an_hour * earliest / 3600 <= 2001 <= size.changes_an_hour * latest / 3600 + 1


def test_another_server_than_expected_is_an_error(db: Database) -> None:
    address = PostgresAddress.parse(db.url(user="app"))
    with closing(connect(PostgresAddress.parse(db.server.url(user="app")), role="test")) as session:
        elsewhere = to_record(identify(session))
    report = examine(address, PostgresWish(("good",), identity=elsewhere))
    assert [finding.code for finding in report.errors] == ["PG_ANOTHER_DATABASE"]


def test_a_server_that_is_not_set_up_is_told_how_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    settings: dict[str, Setting] = {
        "wal_level": "replica",
        "max_replication_slots": 1,
        "max_wal_senders": 1,
        "max_connections": 10,
        "idle_replication_slot_timeout": "1d",
    }
    with postgres(settings=settings) as server, server.database() as db:
        db.execute(GOOD, user="app")
        report = check(db)
        assert {f.code for f in report.errors} == {"PG_WAL_LEVEL", "PG_SLOTS_FULL", "PG_SENDERS_FULL"}
        assert {"PG_SLOT_TIMEOUT", "PG_CONNECTIONS_FEW"} <= set(serious(report))
        by_xid = examine(
            PostgresAddress.parse(db.url(user="app")), PostgresWish(("public.*",), handoff="xid")
        )
        assert [f.code for f in by_xid.errors] == ["PG_WAL_LEVEL"], "it takes one of each"
        statements = script(report.findings)
        assert statements.index("-- restart the server") == len(statements) - 1
        assert the(report, "PG_WAL_LEVEL").advice == "then restart the server"
        assert cli.main(["check", db.url(user="app"), "--tables", "public.*"]) == 2
        told = capsys.readouterr().out.splitlines()
        assert told.count("    then restart the server") == 3
        for finding in report.findings:
            mend(db, finding)
        server.restart()
        assert serious(check(db)) == []


def test_what_the_lake_will_keep_is_told_and_a_slot_that_the_server_soon_gives_up_is_a_warning(
    db: Database,
) -> None:
    assert the(check(db), "PG_STREAM_KEPT").level is Level.INFO
    db.server.set(max_slot_wal_keep_size="1MB")
    try:
        report = check(db)
        assert report.errors == ()
        mend(db, the(report, "PG_LOG_LIMIT"))
        wait_for(lambda: serious(check(db)) == [], "the server's limit is raised")
    finally:
        db.server.set(max_slot_wal_keep_size=None)


def test_transactions_that_a_slot_would_wait_for_are_named(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.sources.postgres.preflight.server._OLD_TRANSACTION", 0)
    with db.connect(user="app") as writer:
        writer.execute("BEGIN; INSERT INTO good VALUES (7, 'secret value')")
        finding = the(check(db), "PG_TRANSACTIONS_OPEN")
        assert f"pid {writer.info.backend_pid}" in str(finding.error.detail)
        assert "secret value" not in str(to_record(finding))


def test_a_login_that_fails_is_raised_and_not_a_finding(db: Database) -> None:
    wrong = PostgresAddress.parse(db.url(user="app", password="not it"))
    with pytest.raises(HeadraceError) as caught:
        examine(wrong, PostgresWish(("*.*",)))
    assert caught.value.code == "PG_PASSWORD_REFUSED"
