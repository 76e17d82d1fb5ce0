"""Tables of which a privilege was taken away: nothing is said of what they are, until it is given back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.core.errors import RightWithheld, Transient
from headrace.core.names import TableName
from headrace.sources.contract.values import SchemaCheck, TableDef
from headrace.sources.mysql.catalog import questions
from headrace.sources.mysql.ddl import schema_check
from headrace.sources.mysql.mirror import MysqlMirror
from headrace.sources.mysql.session.statements import MysqlConnection
from headrace.sources.mysql.upstream import MysqlUpstream
from headrace_testing.mysql import Server
from tests.bound import mysql_mirror
from tests.integration.mysql.preflight.scene import Scene, scene

pytestmark = pytest.mark.server

UPSTREAM = MysqlUpstream()


@pytest.fixture(scope="module", params=("mysql", "mariadb"))
def stage(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A database with a table, one that refers to it, and a reader."""
    server: Server = request.getfixturevalue(f"{request.param}_server")
    with scene(server) as made:
        made.execute(
            "CREATE TABLE t (id int PRIMARY KEY, v int, w int INVISIBLE)",
            "CREATE TABLE child (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES good (id))",
        )
        yield made


@contextmanager
def looking(stage: Scene) -> Iterator[tuple[MysqlMirror, dict[str, TableDef]]]:
    """The tables of a mirror, and what it knows of them."""
    session: MysqlConnection
    with stage.connect() as session:
        tables = mysql_mirror(session, UPSTREAM)
        found = tables.examine([stage.name(each) for each in ("t", "child", "good")])
        assert not found.errors
        assert len(found.defs) == 3
        yield tables, {name.name: known for name, known in found.defs.items()}


def quiet(found: SchemaCheck) -> bool:
    """Tell whether all tables are what was recorded."""
    return not (found.denials or found.changes or found.news or found.locked_tables)


# What is revoked and granted, and which tables are hidden by it; the user is {u}, its database {d}.
GRANTED = "GRANT SELECT, LOCK TABLES ON {d}.* TO {u}"
OTHERS = (
    "REVOKE SELECT ON {d}.* FROM {u}",
    "GRANT SELECT ON good TO {u}",
    "GRANT SELECT ON child TO {u}",
)
CASES = {
    "of the database": (["REVOKE SELECT ON {d}.* FROM {u}"], {"t", "child", "good"}),
    "all of the database": (["REVOKE SELECT, LOCK TABLES ON {d}.* FROM {u}"], {"t", "child", "good"}),
    "but on a column": (
        [*OTHERS, "GRANT SELECT (id) ON t TO {u}"],
        {"t"},
    ),
    "but on the visible columns": (
        [*OTHERS, "GRANT SELECT (id, v) ON t TO {u}"],
        {"t"},
    ),
    "but on another table": (
        ["REVOKE SELECT ON {d}.* FROM {u}", "GRANT SELECT ON good TO {u}", "GRANT INSERT ON child TO {u}"],
        {"t"},  # of the other one its definition is shown to whoever may write to it
    ),
}
RESTORED = (
    "CREATE USER IF NOT EXISTS {u} IDENTIFIED BY '{p}'",
    "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {u}",
    GRANTED,
)


def _run(stage: Scene, *statements: str) -> None:
    words = {"u": stage.reader, "d": stage.pattern, "p": stage.password}
    stage.execute(*(each.format(**words) for each in statements))


@pytest.mark.parametrize("case", CASES)
def test_a_table_that_we_may_not_see_any_more_is_denied_and_not_changed(stage: Scene, case: str) -> None:
    taken, hidden = CASES[case]
    with looking(stage) as (tables, known):
        try:
            _run(stage, *taken)
            found = tables.check(known)
            assert (set(found.denials), set(found.changes), set(found.news)) == (hidden, set(), set())
            assert found.locked_tables >= hidden
            assert {error.code for error in found.denials.values()} == {"MY_PRIVILEGE_MISSING"}
            for name, error in found.denials.items():
                assert f"`{name}`" in error.hint
        finally:
            _run(stage, *RESTORED)
        assert quiet(tables.check(known))


def test_a_user_who_is_gone_is_no_change_of_his_tables(stage: Scene) -> None:
    with looking(stage) as (tables, known):
        try:
            _run(stage, "DROP USER {u}")
            with pytest.raises(RightWithheld) as withheld:
                tables.check(known)
            assert withheld.value.code == "MY_PASSWORD_REFUSED"
        finally:
            _run(stage, *RESTORED)
        assert quiet(tables.check(known))


def _goes_stale(tables: MysqlMirror, known: dict[str, TableDef]) -> None:
    """A session that has lost its rights for good says so, once a new one has them."""
    with pytest.raises(Transient) as stale:
        tables.check(known)
    assert stale.value.code == "MY_SESSION_STALE"


def test_what_is_done_to_a_table_while_it_is_denied_is_seen_afterwards(stage: Scene) -> None:
    stage.execute("CREATE TABLE altered LIKE t", "CREATE TABLE dropped LIKE t")
    with stage.connect() as session:
        tables = mysql_mirror(session, UPSTREAM)
        names = [stage.name(each) for each in ("altered", "dropped", "t")]
        known = {name.name: table for name, table in tables.examine(names).defs.items()}
        try:
            _run(stage, "REVOKE SELECT ON {d}.* FROM {u}", "ALTER TABLE altered DROP v", "DROP TABLE dropped")
            assert set(tables.check(known).denials) == set(known)
        finally:
            _run(stage, GRANTED)
        assert set(tables.check(known).changes) == {"altered", "dropped"}
    stage.execute("DROP TABLE altered")


def test_a_privilege_that_comes_back_while_we_look_is_no_change(
    stage: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hidden when it was looked at, shown when it was asked for."""
    with looking(stage) as (tables, known):
        restored: list[TableName] = []

        def late(connection: MysqlConnection, table: TableName, columns: list[str]) -> object:
            if not restored:
                _run(stage, GRANTED)
            restored.append(table)
            return questions.denial(connection, table, columns)

        monkeypatch.setattr(schema_check, "denial", late)
        try:
            _run(stage, "REVOKE SELECT ON {d}.* FROM {u}")
            found = tables.check(known)
        finally:
            _run(stage, GRANTED)
        assert restored
        assert quiet(found)


def test_a_role_that_is_revoked_denies_and_allows_again(stage: Scene) -> None:
    role = f"role_{stage.reader}"
    _run(stage, f"CREATE ROLE {role}", f"GRANT SELECT, LOCK TABLES ON {stage.pattern}.* TO {role}")
    give = [f"GRANT {role} TO {{u}}", f"SET DEFAULT ROLE {role} {'FOR' if stage.is_mariadb else 'TO'} {{u}}"]
    try:
        _run(stage, "REVOKE SELECT ON {d}.* FROM {u}", *give)
        with looking(stage) as (tables, known):
            _run(stage, f"REVOKE {role} FROM {{u}}")
            with stage.connect() as session:
                denied = mysql_mirror(session, UPSTREAM)
                assert set(denied.check(known).denials) == set(known)
                _run(stage, *give)
                _goes_stale(denied, known)
            assert quiet(tables.check(known))
    finally:
        _run(stage, GRANTED, f"DROP ROLE {role}")


def test_what_is_revoked_in_part_is_denied(mysql_server: Server) -> None:
    mysql_server.execute("SET GLOBAL partial_revokes = ON")
    try:
        with scene(mysql_server) as stage:
            _run(stage, "REVOKE SELECT ON {d}.* FROM {u}", "GRANT SELECT ON *.* TO {u}")
            with stage.connect() as session:
                tables = mysql_mirror(session, UPSTREAM)
                known = {"good": tables.examine([stage.name("good")]).defs[stage.name("good")]}
            _run(stage, f"REVOKE SELECT ON {stage.db.name}.* FROM {{u}}")
            with stage.connect() as session:
                found = mysql_mirror(session, UPSTREAM).check(known)
                assert (set(found.denials), found.changes) == ({"good"}, {})
    finally:
        mysql_server.execute("SET GLOBAL partial_revokes = OFF")
