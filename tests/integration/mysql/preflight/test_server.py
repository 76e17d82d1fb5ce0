"""Each finding about a server, found on a real one, mended by the statements it gives, and gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.sources.contract.findings import Finding, Level
from headrace.sources.mysql.catalog import candidates
from headrace.sources.mysql.preflight import script
from headrace_testing.mysql import Server, mariadb, mysql
from tests.integration.mysql.preflight.scene import Scene, scene, serious, the

pytestmark = pytest.mark.server

# What a running server can be told: the variable, a value that is wrong, what is found, and how bad it is.
BOTH = [
    ("binlog_format", "STATEMENT", "MY_BINLOG_FORMAT", Level.ERROR),
    ("binlog_row_image", "MINIMAL", "MY_ROW_IMAGE", Level.ERROR),
    ("binlog_row_metadata", "MINIMAL", "MY_ROW_METADATA", Level.ERROR),
    ("binlog_checksum", "NONE", "MY_CHECKSUM_OFF", Level.WARNING),
    ("binlog_expire_logs_seconds", "3600", "MY_RETENTION", Level.WARNING),
]
MYSQL = [
    ("server_id", "0", "MY_SERVER_ID", Level.ERROR),
    ("binlog_row_value_options", "PARTIAL_JSON", "MY_JSON_PARTIAL", Level.WARNING),
    ("binlog_order_commits", "OFF", "MY_COMMIT_ORDER", Level.ERROR),
    ("replica_preserve_commit_order", "OFF", "MY_REPLICA_ORDER", Level.ERROR),
]
MARIADB = [
    ("gtid_strict_mode", "OFF", "MY_GTID_STRICT", Level.ERROR),
    ("slave_run_triggers_for_rbr", "YES", "MY_REPLICA_TRIGGERS", Level.ERROR),
]
# A person decides on these: the statement stands in the hint.
BY_HAND = [
    ("sync_binlog", "0", "MY_POWER_CUT", Level.WARNING),
    ("innodb_flush_log_at_trx_commit", "2", "MY_POWER_CUT", Level.WARNING),
]


@contextmanager
def having(server: Server, **settings: str) -> Iterator[None]:
    """Settings of a running server, and those that it had before once the block ends."""
    known = {name: server.execute(f"SELECT @@GLOBAL.{name}")[0][0] for name in settings}
    try:
        for name, value in settings.items():
            server.execute(f"SET GLOBAL {name} = %s", [int(value) if value.isdigit() else value])
        yield
    finally:
        for name, value in known.items():
            server.execute(f"SET GLOBAL {name} = %s", [value])
        if not server.flavour.is_mariadb:
            server.execute("RESET PERSIST")


def statements_of(finding: Finding) -> list[str]:
    """The statements to run: those of the finding, or what a person reads in the hint."""
    hinted = [part.strip() for part in finding.error.hint.split(";")]
    return list(finding.mend) or [part for part in hinted if part.startswith("SET ")]


def test_a_setting_that_is_wrong_is_found_and_mended(stage: Scene) -> None:
    cases = [*BOTH, *(MARIADB if stage.is_mariadb else MYSQL), *BY_HAND]
    for variable, value, code, level in cases:
        with having(stage.server, **{variable: value}):
            report = stage.check()
            assert serious(report) == [code], variable
            finding = the(report, code)
            assert finding.level is level
            assert finding.error.hint.startswith("; ".join(statements_of(finding)))
            stage.mend(statements_of(finding))
            assert serious(stage.check()) == [], variable


def test_the_rate_of_changes_is_read_where_the_server_lets_us(
    mysql_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A young server does not tell it either: its tables may just have been loaded."""
    with scene(mysql_server) as stage:
        good = stage.name("good")
        stage.execute("INSERT INTO good VALUES (1, 'a'), (2, 'b')", "UPDATE good SET v = 'c'")
        assert stage.check().sizes[good].changes_an_hour is None, "not with the privileges that we ask for"
        stage.grant("SELECT ON performance_schema.table_io_waits_summary_by_table")
        assert stage.check().sizes[good].changes_an_hour is None
        monkeypatch.setattr(candidates, "COUNTED_SECONDS", 0.0)
        [(_, uptime)] = stage.server.execute("SHOW GLOBAL STATUS LIKE 'Uptime'")
        rate = stage.check().sizes[good].changes_an_hour
        assert rate is not None
        assert rate * int(uptime) / 3600 == pytest.approx(4, rel=0.5)


def test_gtids_are_refused_unless_they_are_on_for_good(mysql_server: Server) -> None:
    with scene(mysql_server) as stage:
        try:
            for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"):
                stage.mend([f"SET GLOBAL gtid_mode = {mode}"])
            stage.mend(["SET GLOBAL enforce_gtid_consistency = OFF"])
            finding = the(stage.check(), "MY_GTID_MODE")
            assert finding.mend == ()  # some statements of the application's will fail: a person decides
            for step, statement in enumerate(statements_of(finding), start=1):
                assert serious(stage.check()) == ["MY_GTID_MODE"], step
                stage.mend([statement])
            assert serious(stage.check()) == []
        finally:
            for mode in ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"):
                stage.server.execute("SET GLOBAL enforce_gtid_consistency = ON")
                if stage.server.execute("SELECT @@GLOBAL.gtid_mode") != [("ON",)]:
                    stage.server.execute(f"SET GLOBAL gtid_mode = {mode}")
            stage.server.execute("RESET PERSIST")


def test_prepared_transactions_are_counted(stage: Scene) -> None:
    if not stage.is_mariadb:
        assert serious(stage.check()) == []
        stage.grant("XA_RECOVER_ADMIN ON *.*")  # without it the server does not tell
    with stage.db.connect() as writer, writer.cursor() as cursor:
        for statement in ("XA START 'x'", "INSERT INTO good VALUES (1, 'a')", "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(statement)
        assert serious(stage.check()) == ["MY_XA_PREPARED"]
        cursor.execute("XA ROLLBACK 'x'")
    assert serious(stage.check()) == []


REPLICATES_MYSQL = (
    "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = 1, SOURCE_DELAY = 60",
    "CHANGE REPLICATION FILTER REPLICATE_WILD_IGNORE_TABLE = ('x.%')",
)
REPLICATES_MARIADB = (
    "SET GLOBAL replicate_wild_ignore_table = 'x.%'",
    "CHANGE MASTER TO master_host = '127.0.0.1', master_port = 1, master_delay = 60",
)
OF_A_REPLICA = [f"MY_REPLICA_{each}" for each in ("DELAYED", "FILTERED", "STOPPED")]


def test_a_replica_that_is_behind_stopped_or_filtered_is_said(stage: Scene) -> None:
    try:
        stage.mend(REPLICATES_MARIADB if stage.is_mariadb else REPLICATES_MYSQL)
        if stage.is_mariadb:
            assert serious(stage.check()) == []  # whoever may not see it is told nothing
            stage.grant("SLAVE MONITOR ON *.*")
        assert sorted(serious(stage.check())) == OF_A_REPLICA
    finally:
        if stage.is_mariadb:
            stage.mend(["RESET SLAVE ALL", "SET GLOBAL replicate_wild_ignore_table = ''"])
        else:
            stage.mend(["CHANGE REPLICATION FILTER REPLICATE_WILD_IGNORE_TABLE = ()", "RESET REPLICA ALL"])
    assert serious(stage.check()) == []


WRONG_MYSQL: dict[str, str | bool] = {
    "log_replica_updates": False,
    "innodb_native_foreign_keys": True,
    "binlog_do_db": "nobody",
    "replica_preserve_commit_order": "OFF",
}
WRONG_MARIADB: dict[str, str | bool] = {
    "log_slave_updates": False,
    "binlog_ignore_db": "nobody",
    "gtid_strict_mode": "OFF",
}
CHILD = """CREATE TABLE child (id int PRIMARY KEY, p int,
    CONSTRAINT `it's ``so``` FOREIGN KEY (p) REFERENCES good (id) ON UPDATE SET NULL)"""


@pytest.mark.full
def test_a_mysql_where_everything_is_wrong_is_told_so_and_mended() -> None:
    with mysql() as server, scene(server) as stage:
        server.set(**WRONG_MYSQL)
        stage.execute(CHILD)
        stage.mend([*REPLICATES_MYSQL, "START REPLICA SQL_THREAD"])
        report = stage.check(f"{stage.db.name}.child")
        assert sorted(serious(report)) == [
            "MY_BINLOG_FILTERED",
            "MY_CASCADES_UNLOGGED",
            "MY_REPLICA_DELAYED",
            "MY_REPLICA_FILTERED",
            "MY_REPLICA_ORDER",
            "MY_REPLICA_STOPPED",
            "MY_REPLICA_UPDATES",
        ]
        assert the(report, "MY_CASCADES_UNLOGGED").error.detail == '"it\'s `so`"'
        statements = script(report.findings)
        assert statements[-2:] == ["SET PERSIST_ONLY log_replica_updates = ON", "-- restart the server"]
        stage.mend(statements[:-1])
        stage.mend(["STOP REPLICA", "RESET REPLICA ALL", "SET PERSIST_ONLY innodb_native_foreign_keys = OFF"])
        server.set(binlog_do_db=None)
        assert serious(stage.check()) == []
        server.set(log_bin=False)
        assert serious(stage.check()) == ["MY_BINLOG_OFF"]


@pytest.mark.full
def test_a_mariadb_where_everything_is_wrong_is_told_so_and_mended() -> None:
    with mariadb({"lower_case_table_names": 1}) as server, scene(server) as stage:
        server.set(**WRONG_MARIADB)
        stage.grant("SLAVE MONITOR ON *.*")
        stage.mend(REPLICATES_MARIADB)
        report = stage.check(f"{stage.db.name.upper()}.GOOD", "!*.Lo_g")
        assert sorted(serious(report)) == [
            "MY_BINLOG_FILTERED",
            "MY_GTID_STRICT",
            "MY_PATTERN_EMPTY",
            "MY_REPLICA_DELAYED",
            "MY_REPLICA_FILTERED",
            "MY_REPLICA_STOPPED",
            "MY_REPLICA_UPDATES",
        ]
        assert [table.name for table in report.tables] == [stage.name("good")]
        stage.mend(script(report.findings))
        server.set(binlog_ignore_db=None, log_slave_updates=None, gtid_strict_mode=None)
        assert set(serious(stage.check())) == {f"MY_REPLICA_{each}" for each in ("DELAYED", "STOPPED")}
        stage.execute(f"REVOKE SLAVE MONITOR ON *.* FROM {stage.reader}")
        assert serious(stage.check()) == []  # whoever may not see it is told nothing
        server.set(log_bin=False)
        assert serious(stage.check()) == ["MY_BINLOG_OFF"]
