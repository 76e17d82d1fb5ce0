"""Recognise the cloud that hosts the server, and translate findings into its words.

A cloud is recognised by a role, a function or a setting that it puts into each database:

    rds_superuser         Amazon RDS; with the function aurora_version(), Amazon Aurora
    cloudsqlsuperuser     Google Cloud SQL
    azure_pg_admin        Azure Database for PostgreSQL
    neon_superuser        Neon
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headrace.core.errors import Misconfigured
from headrace.sources.contract.findings import Finding, Level
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.shared.hosting import Cloud, in_words_of

_LOGICAL = "rds.logical_replication = 1"
_OF_AMAZON = {
    "names": {"wal_level": _LOGICAL},
    "statements": {r"ALTER ROLE (.+) REPLICATION": r"GRANT rds_replication TO \1"},
}
RDS = Cloud(
    "Amazon RDS for PostgreSQL",
    settings="set {settings} in the parameter group of the instance, then reboot it",
    **_OF_AMAZON,
)
AURORA = Cloud(
    "Amazon Aurora PostgreSQL",
    settings="set {settings} in the parameter group of the cluster, then reboot its writer",
    hints={
        "PG_STANDBY": "give the address of the writer: the endpoint of the cluster, without -ro",
        "PG_STANDBY_UNFIT": "give the address of the writer: the endpoint of the cluster, without -ro",
    },
    **_OF_AMAZON,
)
CLOUD_SQL = Cloud(
    "Google Cloud SQL for PostgreSQL",
    settings="set the flags {settings} of the instance "
    "(--database-flags sets all at once: name the others, too)",
    names={"wal_level": "cloudsql.logical_decoding=on"},
)
AZURE = Cloud(
    "Azure Database for PostgreSQL",
    settings="set {settings} in the server parameters, then save and restart the server",
)
NEON = Cloud(
    "Neon",
    settings="turn on logical replication in the settings of the project, which sets wal_level; it lets "
    "nobody choose other values: {settings}",
    statements={
        r"ALTER ROLE (.+) REPLICATION": r"-- make the role \1 in the console: such roles may replicate"
    },
)
_MARKS = {
    "rds_superuser": RDS,
    "cloudsqlsuperuser": CLOUD_SQL,
    "azure_pg_admin": AZURE,
    "neon_superuser": NEON,
}
_AURORA_MARK = "SELECT 1 FROM pg_proc WHERE proname = 'aurora_version'"


def cloud_of(connection: Session) -> Cloud | None:
    """The cloud that hosts the server; None if none that is known does."""
    found = query(connection, "SELECT rolname FROM pg_roles WHERE rolname = ANY (%s)", [list(_MARKS)])
    if not found:
        return None
    cloud = _MARKS[sorted(name for (name,) in found)[0]]
    return AURORA if cloud is RDS and query(connection, _AURORA_MARK) else cloud


def translate(connection: Session, findings: Iterable[Finding]) -> list[Finding]:
    """Give the findings in the words of the cloud that hosts the server, if one does."""
    cloud = cloud_of(connection)
    if cloud is None:
        return list(findings)
    return [*(_translate(cloud, each) for each in findings), _introduce(cloud)]


def _translate(cloud: Cloud, finding: Finding) -> Finding:
    error, mend = in_words_of(cloud, finding.error, finding.mend)
    return replace(finding, error=error, mend=mend, restart=finding.restart and mend == finding.mend)


def _introduce(cloud: Cloud) -> Finding:
    """Say which cloud it is. Neon's removes slots, which concerns every mirror of it."""
    if cloud is NEON:
        return Finding(
            Level.WARNING,
            Misconfigured(
                "PG_SLOT_IDLE",
                "the server is Neon, which removes a slot that nobody has read for about 40 hours",
                detail=f"if another slot of it is read meanwhile; {cloud.origin}",
                hint="let headrace run, or headrace run --once at least once a day",
            ),
        )
    return Finding(
        Level.INFO,
        Misconfigured(
            "PG_HOSTED",
            f"the server is {cloud.name}",
            detail=cloud.origin,
            hint="the hints of its settings are in the words of its documents",
        ),
    )
