"""A partition that its owner makes later, and that we may not read: the run says so before a copy fails."""

from __future__ import annotations

from functools import partial

import pytest

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.lake.format import statusfile
from headrace.pipeline import following
from headrace.sources.contract.findings import Finding
from headrace.sources.postgres.copy.table_access import reading
from headrace.sources.postgres.preflight import PostgresWish, examine
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.statements import query
from headrace_testing import validators
from headrace_testing.postgres import Database
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.serving import serving

pytestmark = pytest.mark.server

ROOT = """
CREATE TABLE root (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF root FOR VALUES FROM (0) TO (100);
INSERT INTO root VALUES (1, 1);
GRANT SELECT ON root, p1 TO app;
CREATE PUBLICATION p FOR TABLE root WITH (publish_via_partition_root)
"""
LATER = "CREATE TABLE p2 PARTITION OF root FOR VALUES FROM (100) TO (200)"
GRANT = "GRANT SELECT ON public.p2 TO app"


@pytest.fixture
def mirrored(mirrors: Mirrors) -> Mirrors:
    mirrors.database.execute(ROOT)
    mirrors.options = {"publication": "p"}
    mirrors.once("public.root")
    return mirrors


def warnings(mirrors: Mirrors) -> dict[str, str]:
    status = statusfile.read(mirrors.lake.store, "main")
    return {} if status is None else dict(status.record.warnings)


def test_the_look_tells_it_and_a_copy_goes_on_once_it_is_readable(
    mirrored: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "FIRST_PAUSE", following.LONGEST_PAUSE)
    monkeypatch.setattr(following, "REFUSED_PAUSE", 0.5)
    database = mirrored.database
    with serving(mirrored) as served:
        database.execute(LATER)
        database.execute("INSERT INTO root VALUES (101, 1)")
        served.until(partial(served.holds, "public.root", 2), "its rows")
        served.until(lambda: GRANT in warnings(mirrored).get("PG_PARTITION_PRIVILEGE", ""), "a warning")
        database.execute("ALTER TABLE root ALTER n TYPE text USING md5(n::text)")
        database.execute("INSERT INTO root VALUES (102, 'x')")
        served.until(lambda: mirrored.record("public.root").state.value == "stopped", "its stop")
        database.execute(GRANT)
        served.until(partial(served.holds, "public.root", 3), "its copy")
        policy = "ALTER TABLE root %s ROW LEVEL SECURITY"
        database.execute(policy % "ENABLE")
        database.execute("INSERT INTO root VALUES (103, 'x')")
        served.until(partial(served.holds, "public.root", 4), "a row that a policy would hide")
        served.until(lambda: "BYPASSRLS" in warnings(mirrored).get("PG_ROWS_HIDDEN", ""), "a warning")
        database.execute(policy % "DISABLE")
        database.execute("INSERT INTO root VALUES (104, 'x')")
        served.until(lambda: "PG_ROWS_HIDDEN" not in warnings(mirrored), "no warning")
        served.until(lambda: "PG_PARTITION_PRIVILEGE" not in warnings(mirrored), "no warning")
    assert validators.exact(mirrored.lake, database.url(), values=True) == []


def later(database: Database) -> list[Finding]:
    wish = PostgresWish(("public.root",), publication="p")
    report = examine(PostgresAddress.parse(database.url(user="app")), wish)
    return [each for each in report.findings if each.code == "PG_LATER_PARTITIONS"]


def test_check_prints_the_privileges_that_later_ones_need(database: Database) -> None:
    database.execute(ROOT)
    [found] = later(database)
    for statement in found.mend:
        database.execute(statement)
    assert later(database) == []
    database.execute(LATER)
    assert database.execute("SELECT has_table_privilege('app', 'p2', 'SELECT')") == [(True,)]


def test_who_reads_a_root_names_the_partition_that_is_denied(database: Database) -> None:
    database.execute(f"{ROOT}; {LATER}")
    [(oid,)] = database.execute("SELECT 'root'::regclass::oid::int8")
    root = TableName("public", "root")
    with connect(PostgresAddress.parse(database.url(user="app")), role="test") as session:
        with pytest.raises(HeadraceError) as caught, reading(session, root, oid):
            query(session, "TABLE public.p2")
        assert caught.value.hint == GRANT
