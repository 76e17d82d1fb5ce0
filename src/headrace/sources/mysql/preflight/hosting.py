"""Recognise the cloud that hosts the server, and translate findings into its words.

    aurora_version                         Amazon Aurora, by this variable
    basedir below /rdsdbbin, or the procedure mysql.rds_set_configuration
                                           Amazon RDS
    a version with "google", "azure"       Google Cloud SQL, Azure

On RDS and Aurora nobody has SUPER, and "binlog retention hours" decides how long a log is kept, whatever
`binlog_expire_logs_seconds` says. On Azure 0 means of that variable what it means nowhere else: a log is
removed as soon as Azure itself needs it no more. A mirror needs no RELOAD anywhere: it sends no FLUSH.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from headrace.core.errors import Misconfigured
from headrace.sources.contract.findings import Finding, Level
from headrace.sources.mysql.preflight.variables import ON, Variables, variables
from headrace.sources.mysql.session.statements import MysqlConnection, query
from headrace.sources.shared.hosting import Cloud, in_words_of
from headrace.sources.shared.refusals import PrivilegeMissing, TableGone

_EXPIRY = "binlog_expire_logs_seconds"  # it decides nothing on RDS and Aurora
NAMES = ("aurora_version", "basedir", "innodb_read_only", _EXPIRY)
KEPT_HOURS = 168  # the most that RDS takes
_LEAST_HOURS = 24
_READER = "give the endpoint of the cluster, which leads to its writer: a reader has no binlog of its own"

RDS = Cloud(
    "Amazon RDS",
    settings="set {settings} in the parameter group of the instance; a static one wants a reboot",
    hints={"MY_BINLOG_OFF": "turn on automatic backups of the instance: they turn on its binlog"},
)
AURORA = Cloud(
    "Amazon Aurora MySQL",
    settings="set {settings} in the parameter group of the cluster, then reboot its writer",
    hints={
        "MY_BINLOG_OFF": "set binlog_format = ROW in the parameter group of the cluster, "
        "then reboot its writer"
    },
)
AURORA_READER = replace(AURORA, hints={"MY_BINLOG_OFF": _READER})
CLOUD_SQL = Cloud(
    "Google Cloud SQL for MySQL",
    settings="set the flags {settings} of the instance "
    "(--database-flags sets all at once: name the others, too)",
    hints={"MY_BINLOG_OFF": "gcloud sql instances patch INSTANCE --enable-bin-log"},
)
AZURE = Cloud(
    "Azure Database for MySQL",
    settings="set {settings} in the server parameters; a static one wants a restart",
    hints={"MY_BINLOG_OFF": "use a flexible server: its log_bin is always ON"},
)
_PROCEDURE = (
    "SELECT 1 FROM information_schema.routines"
    " WHERE routine_schema = 'mysql' AND routine_name = 'rds_set_configuration'"
)
_HOURS = "SELECT value FROM mysql.rds_configuration WHERE name = 'binlog retention hours'"


def cloud_of(connection: MysqlConnection, values: Variables) -> Cloud | None:
    """The cloud that hosts the server; None if none that is known does."""
    version = connection.release.text.lower()
    if values.get("aurora_version"):
        return AURORA_READER if values.get("innodb_read_only") == ON else AURORA
    if _is_rds(values) or query(connection, _PROCEDURE):
        return RDS
    if "google" in version:
        return CLOUD_SQL
    return AZURE if "azure" in version else None


def hides_retention(connection: MysqlConnection) -> bool:
    """Tell whether a cloud keeps the log otherwise than its settings say."""
    values, version = variables(connection, NAMES), connection.release.text
    if values.get("aurora_version") or _is_rds(values):
        return True
    return "azure" in version.lower() and not float(values.get(_EXPIRY, 0))


def _is_rds(values: Variables) -> bool:
    return values.get("basedir", "").startswith("/rdsdbbin")


def translate(connection: MysqlConnection, findings: Iterable[Finding]) -> list[Finding]:
    """Give the findings in the words of the cloud that hosts the server, if one does."""
    values = variables(connection, NAMES)
    cloud = cloud_of(connection, values)
    if cloud is None:
        return list(findings)
    of_amazon = cloud in (RDS, AURORA, AURORA_READER)
    kept = [each for each in findings if not (of_amazon and any(_EXPIRY in text for text in each.mend))]
    return [
        *(_translate(cloud, each) for each in kept),
        *(_retention(connection, cloud) if of_amazon else ()),
        *(_retention_of_azure(values) if cloud is AZURE else ()),
        Finding(
            Level.INFO,
            Misconfigured(
                "MY_HOSTED",
                f"the server is {cloud.name}",
                detail=cloud.origin,
                hint="the hints of its settings are in the words of its documents",
            ),
        ),
    ]


def _translate(cloud: Cloud, finding: Finding) -> Finding:
    error, mend = in_words_of(cloud, finding.error, finding.mend)
    return replace(finding, error=error, mend=mend, restart=finding.restart and mend == finding.mend)


def _retention(connection: MysqlConnection, cloud: Cloud) -> Iterator[Finding]:
    """Check how long Amazon keeps the log. By default RDS keeps none, and Aurora removes it within a day."""
    try:
        hours = [int(str(value)) for (value,) in query(connection, _HOURS) if value is not None]
    except (PrivilegeMissing, TableGone):  # only its administrators may look
        found = "is not shown to this user"
    else:
        if hours and hours[0] >= _LEAST_HOURS:
            return
        found = f"is {hours[0]}" if hours else "is not set"
    unset = "RDS keeps no log" if cloud is RDS else "Aurora removes its log, usually within a day"
    mend = (f"CALL mysql.rds_set_configuration('binlog retention hours', {KEPT_HOURS})",)
    yield Finding(
        Level.WARNING,
        Misconfigured(
            "MY_RETENTION",
            f'"binlog retention hours" {found}: a mirror that rests for longer has to be reconciled',
            detail=f"unless it is set, {unset}; {cloud.origin}",
            hint=mend[0],
        ),
        mend=mend,
    )


def _retention_of_azure(values: Variables) -> Iterator[Finding]:
    """Check that Azure keeps the log for some time: elsewhere 0 means for ever."""
    if float(values.get(_EXPIRY, 0)):
        return
    yield Finding(
        Level.WARNING,
        Misconfigured(
            "MY_RETENTION",
            f"{_EXPIRY} is 0: Azure removes the log as soon as its own backup and replicas have read it",
            detail=AZURE.origin,
            hint=AZURE.settings.format(settings=f"{_EXPIRY} = {KEPT_HOURS * 3600}"),
        ),
    )
