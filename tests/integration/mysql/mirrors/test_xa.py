"""XA transactions that are prepared before the first copy, beside it and after it: none shows before its end.

    prepared   before   │ copy waits │ beside │ live      after │ server restarts │
    ended               └─ C, R ─┘         └─ C, C, R ─┘        └───────────────┴─ C, R   run, exact

C is committed, R rolled back. No DDL of a table gets past a prepared transaction that wrote it: the server
has it wait, so all rows of a transaction are of one set of columns, those of its end.
"""

from __future__ import annotations

from pathlib import Path

import pymysql
import pytest
from pymysql.constants import ER

from headrace_testing.mirror_process import Mirrored
from headrace_testing.mysql import Database
from headrace_testing.mysql.server import run
from headrace_testing.postmaster import wait_for
from tests.conformance.conftest import Mirror
from tests.integration.mysql.mirrors.judging import assert_exact, kinds

pytestmark = pytest.mark.server

COPIED = range(1, 21)


def _prepare(database: Database, name: str, number: int) -> None:
    """A transaction that adds a row, changes another and removes a third."""
    with database.connect(user="app") as connection:
        for statement in (
            f"XA START '{name}'",
            f"INSERT INTO t VALUES ({100 + number}, '{name}')",
            f"UPDATE t SET s = '{name}' WHERE id = {number}",
            f"DELETE FROM t WHERE id = {10 + number}",
            f"XA END '{name}'",
            f"XA PREPARE '{name}'",
        ):
            run(connection, statement)


def _end(database: Database, verb: str, name: str) -> None:
    """The end of a prepared transaction, as soon as its session is gone."""

    def ended() -> bool:
        try:
            database.execute(f"XA {verb} '{name}'")
        except pymysql.MySQLError as error:
            if error.args[0] != ER.XAER_NOTA:
                raise
            return False
        return True

    wait_for(ended, f"XA {verb} '{name}'")


def _ids(mirror: Mirror) -> set[int]:
    rows = mirror.lake.at().arrow(str(mirror.place.table("t")))
    return set(rows["id"].to_pylist())


@kinds("mariadb", releases=True)
def test_prepared_transactions_come_whole_at_their_end_or_never(
    mirror: Mirror, mirrored: Mirrored, database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, s text)")
    database.execute("CREATE TABLE w (id int PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES " + ", ".join(f"({i}, 'copied')" for i in COPIED))
    _prepare(database, "before C", 1)
    _prepare(database, "before R", 2)
    release = tmp_path / "release"
    where = {"HEADRACE_FAILPOINT": "copy.range.after=pause", "HEADRACE_FAILPOINT_RELEASE": str(release)}
    mirrored.start(environment=where)
    mirrored.until(lambda: "MY_TABLES_HELD" in mirrored.log(), "word of what the copy waits for", within=60)
    _end(database, "COMMIT", "before C")
    _end(database, "ROLLBACK", "before R")
    mirrored.until(lambda: "fail point copy.range.after" in mirrored.log(), "copy", within=60)
    for number, name in enumerate(["beside C", "beside and on C", "beside R"], start=3):
        _prepare(database, name, number)
    _end(database, "COMMIT", "beside C")
    release.touch()
    _end(database, "COMMIT", "beside and on C")
    _end(database, "ROLLBACK", "beside R")
    mirrored.until_live(within=60)
    _prepare(database, "after C", 6)
    _prepare(database, "after R", 7)
    with database.connect(autocommit=True) as connection:
        run(connection, "SET lock_wait_timeout = 1, innodb_lock_wait_timeout = 1")
        with pytest.raises(pymysql.MySQLError) as waited:
            run(connection, "ALTER TABLE t ADD COLUMN more int")
    assert waited.value.args[0] == ER.LOCK_WAIT_TIMEOUT
    database.execute("ALTER TABLE w ADD COLUMN more int")
    database.execute("INSERT INTO w VALUES (1, 2)")
    w = str(mirror.place.table("w"))
    mirrored.until(lambda: mirror.lake.at().arrow(w).num_rows == 1, "row behind the prepared ones", within=60)
    ended = set(COPIED) - {11, 13, 14} | {101, 103, 104}
    assert _ids(mirror) == ended
    assert mirrored.stop() == 0, mirrored.log()
    database.server.restart()
    mirror.once()
    assert _ids(mirror) == ended
    _end(database, "COMMIT", "after C")
    _end(database, "ROLLBACK", "after R")
    database.execute("ALTER TABLE t ADD COLUMN more int NOT NULL DEFAULT 5")
    database.execute("UPDATE t SET more = id WHERE id > 100")
    assert_exact(mirror.once(), mirror.place.url)
    assert _ids(mirror) == ended - {16} | {106}
    assert set(mirror.lake.at().mark.versions) == {w, str(mirror.place.table("t"))}
