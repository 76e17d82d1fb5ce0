"""Preflight names each obstacle of a table, a role or a server before anything is made, with its remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from headrace.core.errors import Misconfigured
from headrace.core.names import TableName
from headrace.sources.contract.findings import CheckReport, Level, Wish
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.queue import capture
from headrace.sources.queue.preflight import QueueWish, examine, find_unmirrored, script
from headrace_testing.postgres import Database, Setting, postgres
from tests.integration.postgres.pooler import pooler
from tests.integration.queue.capturing import LAKE, capturing, executed, url
from tests.integration.queue.test_removal import catalogs

pytestmark = pytest.mark.server


def examined(database: Database, *patterns: str, user: str = "app", **options: str) -> CheckReport:
    wish = Wish(patterns or ("*.*",), options)
    return examine(PostgresAddress.parse(url(database, user)), QueueWish.of(wish))


def codes(report: CheckReport) -> Mapping[str, Level]:
    return {finding.code: finding.level for finding in report.findings}


@contextmanager
def role(database: Database, name: str = "mirror") -> Iterator[None]:
    """A role that may log in, and nothing else."""
    database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'pw'")
    try:
        yield
    finally:
        database.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


TABLES = """
CREATE TABLE good (id int PRIMARY KEY, v text);
CREATE TABLE keyless (v text);
CREATE TABLE nothing (id int PRIMARY KEY);
ALTER TABLE nothing REPLICA IDENTITY NOTHING;
CREATE TABLE virtual (id int PRIMARY KEY, v int GENERATED ALWAYS AS (id * 2) VIRTUAL);
CREATE TABLE parent (id int);
CREATE TABLE child () INHERITS (parent);
CREATE TABLE root (id int) PARTITION BY RANGE (id);
CREATE TABLE leaf PARTITION OF root DEFAULT;
CREATE TABLE branch PARTITION OF root FOR VALUES FROM (0) TO (9) PARTITION BY RANGE (id);
CREATE UNLOGGED TABLE unlogged (id int);
CREATE VIEW seen AS SELECT 1;
CREATE MATERIALIZED VIEW stored AS SELECT 1;
CREATE TABLE policed (id int);
ALTER TABLE policed ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
"""
UNFIT = {
    "parent": "QUEUE_INHERITED",
    "child": "QUEUE_INHERITED",
    "unlogged": "QUEUE_NOT_CAPTURED",
    "seen": "QUEUE_NOT_CAPTURED",
    "stored": "QUEUE_NOT_CAPTURED",
    "policed": "PG_ROW_SECURITY",
}
FIT = ["good", "keyless", "nothing", "root", "virtual"]


def test_each_table_is_fit_or_told_why(database: Database) -> None:
    executed(database, [TABLES])
    report = examined(database)
    assert [table.name.name for table in report.tables] == FIT
    assert report.errors == ()
    assert {name.name: error.code for name, error in report.left_out.items()} == UNFIT
    assert [table.schema.key for table in report.tables] == [("id",), (), ("id",), (), ("id",)]
    assert all(table.schema.full and not table.schema.is_ordered for table in report.tables)
    assert [column.name for column in report.tables[-1].schema.columns] == ["id"]
    for name, code in UNFIT.items():
        meant = examined(database, f"public.{name}")
        assert [finding.code for finding in meant.errors] == [code]
        assert meant.errors[0].error.hint
    with capturing(database) as queue:
        reasons = find_unmirrored(queue.session, LAKE.objects, ["*.*"], [TableName("public", "good")])
        assert {name.name: error and error.code for name, error in reasons.items()} == {
            **dict.fromkeys(FIT[1:]),
            **UNFIT,
        }
        queue.capture("good", "root")
        reasons = find_unmirrored(queue.session, LAKE.objects, ["*.*"], [TableName("public", "root")])
        assert reasons.keys().isdisjoint({TableName("public", "leaf"), TableName("public", "branch")})
        assert [each.name.name for each in examined(database).tables] == FIT, "none of ours is among them"


def test_a_partition_is_fit_by_itself_and_no_root_beneath_another(database: Database) -> None:
    executed(database, [TABLES])
    assert [table.name.name for table in examined(database, "public.leaf").tables] == ["leaf"]
    for patterns, code in (
        (["public.branch"], "QUEUE_PARTITIONED"),
        (["public.root", "public.leaf"], "PG_PARTITION_INSIDE"),
    ):
        assert code in {finding.code for finding in examined(database, *patterns).errors}
    address = PostgresAddress.parse(url(database, "app"))
    without_lake = Wish(("public.root", "public.good"), {}, whole_rows=True)
    found = examine(address, QueueWish.of(without_lake)).errors
    assert [(each.code, str(each.table)) for each in found] == [("PG_ROOT_NEEDS_LAKE", "public.root")]
    executed(database, ["CREATE UNLOGGED TABLE aside PARTITION OF root FOR VALUES FROM (10) TO (11)"])
    refused = {finding.code for finding in examined(database, "public.root").errors}
    assert refused == {"PG_PARTITION_UNFIT"}


def test_a_table_that_a_subscription_writes_is_refused(database: Database) -> None:
    executed(database, ["CREATE TABLE t (id int PRIMARY KEY)"])
    database.execute("CREATE PUBLICATION p FOR TABLE t")
    database.execute(
        "CREATE SUBSCRIPTION s CONNECTION 'dbname=nowhere' PUBLICATION p"
        " WITH (connect = false, slot_name = NONE)"
    )
    # Without a connection the server lists no table: as it would have, after one.
    database.execute(
        "INSERT INTO pg_subscription_rel SELECT s.oid, 't'::regclass, 'r', NULL FROM pg_subscription s"
        " WHERE subname = 's'"
    )
    assert [finding.code for finding in examined(database, "public.t").errors] == ["QUEUE_SUBSCRIBED"]


def test_a_role_without_rights_is_told_which_and_needs_no_more(database: Database) -> None:
    executed(database, ["CREATE TABLE t (id int PRIMARY KEY)"])
    with role(database):
        database.execute("REVOKE CREATE ON DATABASE " + database.name + " FROM PUBLIC")
        refused = examined(database, "public.t", user="mirror")
        assert [finding.code for finding in refused.errors] == [
            "PG_TABLE_PRIVILEGE",
            "QUEUE_CREATION_PRIVILEGE",
            "QUEUE_TRIGGER_PRIVILEGE",
        ]
        executed(database, script(refused.findings), user="postgres")
        ready = examined(database, "public.t", user="mirror")
        assert ready.errors == ()
        assert codes(ready).keys() == set()
        with capturing(database, "mirror") as queue:
            queue.capture("t")
            executed(database, ["INSERT INTO t VALUES (1)"])
            queue.agree("t")
            assert capture.with_inactive_triggers(queue.session, LAKE) == []


def test_a_table_of_somebody_else_is_warned_of_until_its_owner_ran_the_script(database: Database) -> None:
    database.execute("CREATE TABLE t (id int); GRANT SELECT, TRIGGER ON t TO app")
    with capturing(database) as queue:
        for made in (False, True):
            report = examined(database, "public.t")
            assert codes(report)["QUEUE_REPLICA_ROLE"] is Level.WARNING
            assert report.errors == ()
            if not made:
                queue.capture("t")
        found = [each for each in report.findings if each.code == "QUEUE_REPLICA_ROLE"]
        database.execute("; ".join(found[0].then))
        assert examined(database, "public.t").findings == ()
        database.execute("SET session_replication_role = replica; INSERT INTO t VALUES (1)")
        queue.agree("t")


def test_the_script_makes_what_we_would_make(database: Database) -> None:
    executed(database, ["CREATE TABLE t (id int PRIMARY KEY)"])
    statements = script(examined(database, "public.t").findings)
    assert statements[0] == "CREATE SCHEMA headrace AUTHORIZATION app"

    def made() -> list[object]:
        rows = database.execute(
            "SELECT relname, relkind::text, relacl::text, relowner::regrole::text, reloptions::text"
            " FROM pg_class WHERE relnamespace = 'headrace'::regnamespace AND relkind IN ('r', 'S', 'i')"
            " UNION ALL SELECT proname, prosrc, proacl::text, proowner::regrole::text, proconfig::text"
            " FROM pg_proc WHERE pronamespace = 'headrace'::regnamespace"
            " UNION ALL SELECT tgname, tgtype::text, tgenabled::text, tgoldtable::text, tgnewtable::text"
            " FROM pg_trigger WHERE tgrelid = 't'::regclass"
            " UNION ALL SELECT nspname, nspowner::regrole::text, nspacl::text, NULL, NULL FROM pg_namespace"
            " ORDER BY 1, 2"
        )
        return list(rows)

    executed(database, statements, user="postgres")
    by_script = made()
    with capturing(database) as queue:
        queue.capture("t")
        assert made() == by_script, "nothing is left to make"
        database.execute("DROP SCHEMA headrace CASCADE")
    with capturing(database) as queue:
        queue.capture("t")
        assert made() == by_script


def test_the_queue_of_another_role_is_used_once_it_is_granted(database: Database) -> None:
    executed(database, ["CREATE TABLE t (id int PRIMARY KEY)"])
    with capturing(database) as queue, role(database):
        queue.capture("t")
        database.execute("GRANT SELECT ON t TO mirror")
        refused = examined(database, "public.t", user="mirror")
        assert [finding.code for finding in refused.errors] == ["QUEUE_PRIVILEGE"]
        executed(database, script(refused.findings))
        assert examined(database, "public.t", user="mirror").errors == ()


def test_a_schema_of_somebody_else_and_a_name_that_is_none_are_refused(database: Database) -> None:
    executed(database, ["CREATE TABLE t (id int)", "CREATE SCHEMA headrace", "CREATE TABLE headrace.x ()"])
    before = catalogs(database)
    report = examined(database, "public.t")
    assert codes(report)["QUEUE_SCHEMA_FOREIGN"] is Level.ERROR
    assert codes(examined(database, "public.t", schema="other")).keys() == {
        "QUEUE_TO_BE_MADE",
        "QUEUE_TRIGGERS_TO_BE_MADE",
    }
    assert catalogs(database) == before, "a check changes nothing"


def test_a_server_without_logical_replication_will_do() -> None:
    settings: dict[str, Setting] = {"wal_level": "minimal", "max_wal_senders": 0}
    with postgres(settings=settings) as server, server.database() as plain:
        executed(plain, ["CREATE TABLE t (id int PRIMARY KEY)"])
        report = examined(plain)
        assert codes(report).keys() == {"QUEUE_TO_BE_MADE", "QUEUE_TRIGGERS_TO_BE_MADE"}
        assert set(codes(report).values()) == {Level.INFO}


def test_a_pooler_in_between_is_refused_before_anything_is_made(database: Database) -> None:
    before = catalogs(database)
    with pooler(database.server.host, database.server.port) as port:
        address = PostgresAddress.parse(database.url(user="app", port=port, sslmode="disable"))
        with pytest.raises(Misconfigured, match="goes through a connection pooler") as refused:
            examine(address, QueueWish.of(Wish(("*.*",), {})))
    assert refused.value.code == "PG_POOLER"
    assert catalogs(database) == before
