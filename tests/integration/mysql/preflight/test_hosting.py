"""A server that shows a cloud's marks has its findings in the words of that cloud's documents."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.sources.contract.findings import Level
from headrace.sources.mysql.preflight.hosting import (
    AURORA,
    AURORA_READER,
    RDS,
    cloud_of,
    hides_retention,
)
from headrace.sources.shared.hosting import READ_ON
from headrace_testing.mysql import Server, mariadb, mysql
from headrace_testing.mysql.flavours import Setting
from tests.integration.mysql.preflight.scene import Scene, scene, the

pytestmark = pytest.mark.server
RETAIN = "CALL mysql.rds_set_configuration('binlog retention hours', 168)"


@pytest.fixture(scope="module")
def of_amazon() -> Iterator[Server]:
    """A server with the procedure and the table that RDS has, and a log without names of columns."""
    with mysql({"binlog_row_metadata": "MINIMAL"}) as server:
        server.execute("CREATE TABLE mysql.rds_configuration (name varchar(100), value varchar(100))")
        server.execute("INSERT INTO mysql.rds_configuration VALUES ('binlog retention hours', NULL)")
        server.execute(
            "CREATE PROCEDURE mysql.rds_set_configuration(n varchar(100), v int)"
            " UPDATE mysql.rds_configuration SET value = v WHERE name = n"
        )
        yield server


@pytest.fixture
def stage(of_amazon: Server) -> Iterator[Scene]:
    with scene(of_amazon) as made:
        made.grant("EXECUTE ON PROCEDURE mysql.rds_set_configuration")
        yield made


def test_a_server_of_rds_is_set_by_its_parameter_group_and_keeps_its_log_by_its_own_procedure(
    stage: Scene,
) -> None:
    unseen = the(stage.check(), "MY_RETENTION")
    assert (unseen.level, unseen.mend) == (Level.WARNING, (RETAIN,))
    stage.grant("SELECT ON mysql.rds_configuration")
    report = stage.check()
    assert "is not set" in the(report, "MY_RETENTION").error.primary
    metadata = the(report, "MY_ROW_METADATA")
    assert metadata.mend == ()
    assert "binlog_row_metadata = FULL in the parameter group" in metadata.error.hint
    assert READ_ON in str(metadata.error.detail)
    assert RDS.name in the(report, "MY_HOSTED").error.primary
    stage.mend(report.script)
    assert [finding.code for finding in stage.check().findings if finding.code == "MY_RETENTION"] == []


def test_aurora_is_recognised_and_its_readers_have_no_log(stage: Scene) -> None:
    with stage.connect() as connection:
        assert cloud_of(connection, {"aurora_version": "3.05.2", "innodb_read_only": "OFF"}) is AURORA
        assert cloud_of(connection, {"aurora_version": "3.05.2", "innodb_read_only": "ON"}) is AURORA_READER
        assert cloud_of(connection, {"basedir": "/rdsdbbin/mysql-8.0.40.R3/"}) is RDS
    assert "endpoint of the cluster" in AURORA_READER.hints["MY_BINLOG_OFF"]


@pytest.mark.parametrize(
    ("vendor", "settings", "code", "words"),
    [
        ("google", {"log_bin": False}, "MY_BINLOG_OFF", "--enable-bin-log"),
        pytest.param(
            "azure", {}, "MY_RETENTION", "binlog_expire_logs_seconds = 604800", marks=pytest.mark.full
        ),
    ],
)
def test_a_version_tells_the_cloud(vendor: str, settings: dict[str, Setting], code: str, words: str) -> None:
    """An expiry of 0, which keeps a log for ever, keeps none on Azure."""
    with mariadb({"version": f"10.11.19-MariaDB-{vendor}-log", **settings}) as server, scene(server) as stage:
        report = stage.check()
        with stage.connect() as connection:
            assert hides_retention(connection) is (vendor == "azure")
    assert words in the(report, code).error.hint
    assert vendor in the(report, "MY_HOSTED").error.primary.lower()


def test_a_server_of_nobody_has_no_finding_about_a_cloud(mysql_server: Server) -> None:
    with scene(mysql_server) as stage:
        assert [finding.code for finding in stage.check().findings if finding.code == "MY_HOSTED"] == []
