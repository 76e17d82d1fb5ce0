"""A check of a server in tests: its findings picked, mended, and followed by what comes after it."""

from __future__ import annotations

from contextlib import closing

from headrace.sources.contract.findings import CheckReport, Finding, Level
from headrace.sources.postgres.preflight import PostgresWish, examine
from headrace.sources.postgres.publication import ensure_publication
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace_testing.postgres import Database

GOOD = "CREATE TABLE good (id int PRIMARY KEY, v text); INSERT INTO good VALUES (1, 'a')"


def check(
    db: Database, *patterns: str, publication: str | None = None, slot: str | None = None
) -> CheckReport:
    wish = PostgresWish(patterns or ("public.*",), publication=publication, slot=slot)
    return examine(PostgresAddress.parse(db.url(user="app")), wish)


def serious(report: CheckReport) -> list[str]:
    return [finding.code for finding in report.findings if finding.level is not Level.INFO]


def the(report: CheckReport, code: str) -> Finding:
    (finding,) = [finding for finding in report.findings if finding.code == code]
    return finding


def mend(db: Database, finding: Finding) -> None:
    for statement in finding.mend:
        db.execute(statement)


def publish(db: Database, report: CheckReport) -> None:
    """Publish the tables of the report, as a run would do next."""
    with closing(connect(PostgresAddress.parse(db.url(user="app")), role="test")) as session:
        ensure_publication(session, "headrace_test", [entry.name for entry in report.tables])


def applies_its_own(db: Database, table: str) -> None:
    """The application updates and deletes."""
    columns = db.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND attgenerated = ''"
        " AND NOT attisdropped",
        [table],
        user="app",
    )
    for (column,) in columns:
        db.execute(f'UPDATE {table} SET "{column}" = "{column}"', user="app")
    db.execute(f"DELETE FROM {table}", user="app")
