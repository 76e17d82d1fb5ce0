"""Least privileges: those of docs/mysql.md are enough, each is needed, and each way to have it counts."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from headrace.core.names import TableName
from headrace.core.records import to_record
from headrace.sources.mysql.preflight import script
from headrace_testing.mysql import Server
from headrace_testing.mysql.server import quoted
from tests.integration.mysql.preflight.scene import Scene, scene, serious, the

pytestmark = pytest.mark.server


def test_the_least_privileges_are_enough(stage: Scene) -> None:
    report = stage.check()
    assert serious(report) == []
    assert [table.name for table in report.tables] == [stage.name("good")]
    assert report.sizes[stage.name("good")].bytes > 0


@pytest.mark.parametrize("privilege", ["REPLICATION SLAVE", "REPLICATION CLIENT"])
def test_without_a_privilege_of_the_log_its_statement_is_said_and_works(stage: Scene, privilege: str) -> None:
    stage.execute(f"REVOKE {privilege} ON *.* FROM {stage.reader}")
    finding = the(stage.check(), "MY_REPLICATION_PRIVILEGE")
    said = "BINLOG MONITOR" if stage.is_mariadb and privilege.endswith("CLIENT") else privilege
    assert finding.error.detail == f"missing: {said}"
    stage.mend(finding.mend)
    assert serious(stage.check()) == []


def test_without_select_or_lock_tables_their_statements_are_said_and_work(stage: Scene) -> None:
    stage.execute(f"REVOKE SELECT, LOCK TABLES ON {stage.pattern}.* FROM {stage.reader}")
    assert serious(stage.check()) == ["MY_PATTERN_EMPTY"]  # such a table is hidden from us
    stage.grant("INSERT ON good")
    report = stage.check(f"{stage.db.name}.good")
    assert serious(report) == ["MY_TABLE_PRIVILEGE", "MY_LOCK_PRIVILEGE"]
    assert report.tables == ()
    stage.mend(script(report.findings))
    assert serious(stage.check()) == []


def test_the_lock_is_granted_on_that_database_and_no_other(stage: Scene) -> None:
    other = stage.db.name.replace("_", "X")
    stage.execute(f"REVOKE LOCK TABLES ON {stage.pattern}.* FROM {stage.reader}")
    stage.mend(the(stage.check(f"{stage.db.name}.good"), "MY_LOCK_PRIVILEGE").mend)
    with stage.server.database(other) as neighbour:
        neighbour.execute("CREATE TABLE t (id int PRIMARY KEY)")
        stage.grant(f"SELECT ON {neighbour.name}.*")
        report = stage.check(f"{neighbour.name}.t", f"{stage.db.name}.good")
        assert the(report, "MY_LOCK_PRIVILEGE").tables[0].schema == other


HOSTILE = ("o'd\"d`\\b_%", "$x.y*", "кас\nсы")
ODD_TABLE = "t`'\"\\%_"


def test_grants_on_hostile_names_work(stage: Scene) -> None:
    with ExitStack() as stack:
        for name in HOSTILE:
            db = stack.enter_context(stage.server.database(name))
            db.execute(f"CREATE TABLE {quoted(ODD_TABLE)} ({quoted(ODD_TABLE)} int PRIMARY KEY)")
            stage.grant(f"INSERT ON {quoted(name)}.{quoted(ODD_TABLE)}")
        wanted = [str(TableName(name, ODD_TABLE)) for name in HOSTILE]
        report = stage.check(*wanted)
        assert serious(report) == ["MY_TABLE_PRIVILEGE"] * 3 + ["MY_LOCK_PRIVILEGE"] * 3
        stage.mend(script(report.findings))
        assert serious(stage.check(*wanted)) == []


def test_who_may_read_single_columns_sees_a_smaller_table_and_is_refused(stage: Scene) -> None:
    stage.execute(
        f"REVOKE SELECT ON {stage.pattern}.* FROM {stage.reader}",
        "CREATE TABLE part (id int PRIMARY KEY, v int)",
    )
    stage.grant("SELECT ON good", "SELECT (id) ON part")
    report = stage.check()
    assert [table.name.name for table in report.tables] == ["good"]
    finding = the(report, "MY_TABLE_PRIVILEGE")
    assert finding.table == stage.name("part")
    stage.mend(finding.mend)
    assert serious(stage.check()) == []


def test_a_grant_on_columns_beside_one_on_the_database_takes_nothing_away(stage: Scene) -> None:
    """Its name is a pattern there, and has a backslash before the underscore."""
    stage.grant("SELECT (id) ON good")
    assert serious(stage.check()) == []


def test_privileges_through_roles_count_where_they_are_active(stage: Scene) -> None:
    user, role = stage.reader, f"role_{stage.reader}"
    stage.execute(
        f"REVOKE ALL PRIVILEGES, GRANT OPTION FROM {user}",
        f"CREATE ROLE {role}",
        f"CREATE ROLE outer_{role}",
        f"GRANT {role} TO outer_{role}",
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {role}",
        f"GRANT SELECT, LOCK TABLES ON {stage.pattern}.* TO {role}",
        f"GRANT outer_{role} TO {user}",
    )
    try:
        assert "MY_REPLICATION_PRIVILEGE" in serious(stage.check())
        stage.execute(f"SET DEFAULT ROLE outer_{role} {'FOR' if stage.is_mariadb else 'TO'} {user}")
        report = stage.check()
        assert serious(report) == []
        assert len(report.tables) == 1
    finally:
        stage.execute(f"DROP ROLE outer_{role}", f"DROP ROLE {role}")


def test_a_wildcard_in_a_grant_counts_as_the_server_takes_it(stage: Scene) -> None:
    stage.execute(f"REVOKE SELECT, LOCK TABLES ON {stage.pattern}.* FROM {stage.reader}")
    stage.grant(f"SELECT, LOCK TABLES ON `{stage.db.name[:4]}%`.*")
    assert serious(stage.check()) == []


def test_what_was_revoked_in_part_is_missing(mysql_server: Server) -> None:
    mysql_server.execute("SET GLOBAL partial_revokes = ON")
    try:
        with scene(mysql_server) as stage:
            stage.execute(f"REVOKE SELECT, LOCK TABLES ON {stage.pattern}.* FROM {stage.reader}")
            stage.grant("SELECT, LOCK TABLES, INSERT ON *.*")
            assert serious(stage.check()) == []
            stage.execute(f"REVOKE SELECT, LOCK TABLES ON {stage.db.name}.* FROM {stage.reader}")
            report = stage.check(f"{stage.db.name}.good")
            assert serious(report) == ["MY_TABLE_PRIVILEGE", "MY_LOCK_PRIVILEGE"]
            stage.mend(script(report.findings))
            assert serious(stage.check()) == []
    finally:
        mysql_server.execute("SET GLOBAL partial_revokes = OFF")


def test_no_finding_and_no_error_shows_a_password(stage: Scene) -> None:
    stage.execute(f"REVOKE REPLICATION SLAVE ON *.* FROM {stage.reader}")
    stage.execute("CREATE TABLE m (id int PRIMARY KEY) ENGINE = MyISAM")
    report = stage.check(f"{stage.db.name}.*", "a😀.*", "`", "*.nothing")
    shown = repr(report) + "".join(str(to_record(finding)) for finding in report.findings)
    assert stage.password not in shown
    assert "PASSWORD" not in shown  # MariaDB's SHOW GRANTS has a hash behind this word
