"""Rights that are taken away from a running mirror and given back: it waits, says why, and goes on."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pymysql
import pytest

from headrace.pipeline.commands.ask import ask
from headrace_testing.mirror_process import Mirrored
from headrace_testing.mysql import Database
from headrace_testing.mysql.flavours import OF_TABLES, OF_THE_LOG
from tests.conformance.conftest import Mirror
from tests.integration.mysql.mirrors.judging import assert_exact, kinds
from tests.nursery import Nursery

pytestmark = pytest.mark.server


@dataclass(frozen=True)
class Case:
    """A right as it is taken away and given back; the user is {u}, the database {d}."""

    taken: tuple[str, ...]
    given: tuple[str, ...]
    code: str
    of_login: bool = False  # sessions that are open have it still


ALL = (f"GRANT {OF_THE_LOG} ON *.* TO {{u}}", f"GRANT {OF_TABLES} ON {{d}}.* TO {{u}}")
SELECT = "GRANT SELECT ON {d}.* TO {u}"
CASES = (
    Case(("REVOKE SELECT ON {d}.* FROM {u}",), (SELECT,), "MY_PRIVILEGE_MISSING"),
    Case(
        ("REVOKE SELECT ON {d}.* FROM {u}", "GRANT SELECT (id) ON t TO {u}"),
        (SELECT,),
        "MY_PRIVILEGE_MISSING",
    ),
    Case(
        ("REVOKE REPLICATION SLAVE ON *.* FROM {u}",),
        ("GRANT REPLICATION SLAVE ON *.* TO {u}",),
        "MY_REPLICATION_PRIVILEGE",
        of_login=True,
    ),
    Case(
        ("DROP USER {u}",),
        ("CREATE USER {u} IDENTIFIED BY '{p}'", *ALL),
        "MY_PASSWORD_REFUSED",
        of_login=True,
    ),
    Case(
        ("ALTER USER {u} IDENTIFIED BY 'changed in mid-run'",),
        ("ALTER USER {u} IDENTIFIED BY '{p}'",),
        "MY_PASSWORD_REFUSED",
        of_login=True,
    ),
    Case(
        ("ALTER USER {u} ACCOUNT LOCK",), ("ALTER USER {u} ACCOUNT UNLOCK",), "MY_NOT_ADMITTED", of_login=True
    ),
    Case(
        ("ALTER USER {u} PASSWORD EXPIRE",),
        ("ALTER USER {u} IDENTIFIED BY '{p}'",),
        "MY_NOT_ADMITTED",
        of_login=True,
    ),
)


@dataclass(frozen=True)
class Scene:
    """A database, and the user who mirrors it."""

    database: Database
    user: str
    password: str = field(repr=False)

    def run(self, *statements: str) -> None:
        words = {"u": self.user, "d": f"`{self.database.name}`", "p": self.password}
        for statement in statements:
            self.database.execute(statement.format(**words))

    def hang_up(self) -> None:
        """End all sessions of the user."""
        of_user = "SELECT id FROM information_schema.processlist WHERE user = %s"
        for (session,) in self.database.execute(of_user, [self.user]):
            with suppress(pymysql.err.OperationalError):  # it is gone already
                self.database.execute(f"KILL {session}")


@contextmanager
def scene(database: Database) -> Iterator[Scene]:
    made = Scene(database, f"u_{secrets.token_hex(4)}", secrets.token_hex(8))
    made.run("CREATE USER {u} IDENTIFIED BY '{p}'", *ALL)
    try:
        yield made
    finally:
        made.run("DROP USER IF EXISTS {u}")


@pytest.mark.full
@pytest.mark.parametrize("database", ["mysql", "mariadb"], indirect=True)
def test_rights_that_are_taken_away_stop_nothing_for_good(
    mirror: Mirror, database: Database, nursery: Nursery
) -> None:
    for name in ("t", "w"):
        database.execute(f"CREATE TABLE {name} (id int AUTO_INCREMENT PRIMARY KEY, v int)")
        database.execute(f"INSERT INTO {name} (v) VALUES (1), (2)")
    with scene(database) as stage:
        url = database.server.url(user=stage.user, password=stage.password)
        with closing(Mirrored(mirror.path, url, *mirror.patterns, program=nursery.run)) as process:
            process.start()
            process.until_live(within=60)
            for number, case in enumerate(CASES):
                heard = len(process.log())
                stage.run(*case.taken)
                if case.of_login:
                    stage.hang_up()
                database.execute("INSERT INTO t (v) VALUES (%s)", [number])
                database.execute("UPDATE w SET v = v + 1")
                word = partial(_heard, process, case.code, heard)
                process.until(word, f"word of {case.taken}", within=60)
                stage.run(*case.given)
                database.execute("INSERT INTO w (v) VALUES (%s)", [number])
                process.until(lambda: _agrees(mirror, database), f"all again after {case.given}", within=90)
            assert process.stop() == 0, process.log()
        assert_exact(mirror.once(url=url), mirror.place.url)


@kinds("mariadb")
@pytest.mark.parametrize("handoff", ["locks", pytest.param("chunks", marks=pytest.mark.full)])
def test_a_database_whose_tables_may_not_be_locked_keeps_back_no_copy_of_another(
    mirror: Mirror, database: Database, monkeypatch: pytest.MonkeyPatch, handoff: str
) -> None:
    """One that is added is copied; the others wait for the right, which the error of the run names."""
    monkeypatch.setattr("headrace.pipeline.run.ATTEMPTS_ONCE", 1)
    with database.server.database() as other, scene(database) as stage:
        second = f"`{other.name}`.*"
        stage.run(f"GRANT {OF_TABLES} ON {second} TO {{u}}")
        url = database.server.url(user=stage.user, password=stage.password)
        patterns = [f"{database.name}.*", f"{other.name}.*"]
        options: dict[str, Any] = {"url": url, "tables": patterns, "handoff": handoff}
        for name in (database, other):
            name.execute("CREATE TABLE t (id int PRIMARY KEY)")
        mirror.once(**options)
        added = [f"{name}.late" for name in (database.name, other.name)]
        for name in (database, other):
            name.execute("CREATE TABLE late (id int PRIMARY KEY)")
            name.execute("INSERT INTO late VALUES (1), (2)")
        ask(str(mirror.path), "tables.add", {"tables": added}, url=url)
        stage.run(f"REVOKE LOCK TABLES ON {second} FROM {{u}}")
        error = mirror.stops(**options)
        assert (error.code, error.family) == ("MY_LOCK_PRIVILEGE", "misconfigured")
        assert other.name in error.primary
        assert added[0] in mirror.lake.at().mark.versions
        assert added[1] not in mirror.lake.at().mark.versions
        stage.run(f"GRANT LOCK TABLES ON {second} TO {{u}}")
        assert set(added) <= set(mirror.once(**options).at().mark.versions)


def _heard(process: Mirrored, code: str, after: int) -> bool:
    return code in process.log()[after:]


def _agrees(mirror: Mirror, database: Database) -> bool:
    """Tell whether the newest mark has both tables as they are."""
    cut = mirror.lake.at()
    for name in ("t", "w"):
        table = str(mirror.place.table(name))
        if table not in cut.mark.versions:
            return False
        rows = sorted(tuple(row.values()) for row in cut.arrow(table).select(["id", "v"]).to_pylist())
        if rows != sorted(database.execute(f"SELECT id, v FROM {name}")):
            return False
    return True
