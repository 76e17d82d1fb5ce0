"""A server that shows a cloud's marks has its findings in the words of that cloud's documents."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.sources.contract.findings import CheckReport, Finding, Level
from headrace.sources.postgres.preflight.hosting import AURORA, AZURE, CLOUD_SQL, NEON, RDS
from headrace.sources.shared.hosting import READ_ON, Cloud
from headrace_testing.postgres import Database, Setting, postgres
from tests.integration.postgres.preflight.harness import GOOD, check, the

pytestmark = pytest.mark.server

_AURORA = "CREATE FUNCTION aurora_version() RETURNS text LANGUAGE sql RETURN '17.4'"
CLOUDS: list[tuple[Cloud, str, str, str, str]] = [
    (RDS, "rds_superuser", "", "rds.logical_replication = 1", "GRANT rds_replication TO app"),
    (AURORA, "rds_superuser", _AURORA, "rds.logical_replication = 1", "GRANT rds_replication TO app"),
    (CLOUD_SQL, "cloudsqlsuperuser", "", "cloudsql.logical_decoding=on", "ALTER ROLE app REPLICATION"),
    (AZURE, "azure_pg_admin", "", "server parameters", "ALTER ROLE app REPLICATION"),
    (NEON, "neon_superuser", "", "settings of the project", "make the role app in the console"),
]


@pytest.fixture(scope="module")
def replica_level() -> Iterator[Database]:
    """A database of a server that is not set up, whose user may not replicate."""
    settings: dict[str, Setting] = {"wal_level": "replica", "max_slot_wal_keep_size": "1MB"}
    with postgres(settings=settings) as server, server.database() as db:
        db.execute(GOOD, user="app")
        db.execute("ALTER ROLE app NOREPLICATION")
        yield db


@pytest.mark.parametrize(("cloud", "role", "more", "setting", "right"), CLOUDS)
def test_a_cloud_is_recognised_and_its_own_words_are_given(
    replica_level: Database, cloud: Cloud, role: str, more: str, setting: str, right: str
) -> None:
    db = replica_level
    db.execute(f"CREATE ROLE {role}")
    if more:
        db.execute(more)
    try:
        report = check(db)
    finally:
        db.execute(f"DROP ROLE {role}; DROP FUNCTION IF EXISTS aurora_version()")
    assert setting in the(report, "PG_WAL_LEVEL").error.hint
    denied = the(report, "PG_REPLICATION_PRIVILEGE")
    assert right in "; ".join((*denied.mend, denied.error.hint))
    assert "max_slot_wal_keep_size" in the(report, "PG_LOG_LIMIT").error.hint
    told = [finding for finding in report.findings if cloud.name in (finding.error.detail or "")]
    assert {"PG_WAL_LEVEL", "PG_LOG_LIMIT", _told(cloud)} <= {finding.code for finding in told}
    assert [finding for finding in told if READ_ON not in (finding.error.detail or "")] == []
    assert _refused(report) == []


def _told(cloud: Cloud) -> str:
    return "PG_SLOT_IDLE" if cloud is NEON else "PG_HOSTED"


def _refused(report: CheckReport) -> list[str]:
    """The statements of the report that no cloud lets anybody run."""
    said = [*report.script, *(finding.error.hint for finding in report.findings)]
    return [text for text in said if "ALTER SYSTEM" in text or "pg_reload_conf" in text]


def test_a_server_of_nobody_has_no_finding_about_a_cloud(replica_level: Database) -> None:
    report = check(replica_level)
    assert [f.code for f in report.findings if f.code in ("PG_HOSTED", "PG_SLOT_IDLE")] == []
    finding: Finding = the(report, "PG_WAL_LEVEL")
    assert (finding.level, finding.mend) == (Level.ERROR, ("ALTER SYSTEM SET wal_level = logical",))
