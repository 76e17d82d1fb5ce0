"""DDL while a mirror runs: seen by the look before the stream brings it, beside copies, over kills.

ALTER ─► the look shows it ─► the stream brings the statement ─► the next mark
            └── the table sits marks out ──┘
"""

from __future__ import annotations

import signal

import pytest

from headrace.pipeline.state.records import tables_of
from headrace.pipeline.stream import batches
from headrace_testing import validators
from headrace_testing.mirror_process import Mirrored
from headrace_testing.mysql import Database
from tests.conformance.conftest import Mirror
from tests.integration.mysql.mirrors.judging import kinds

pytestmark = pytest.mark.server

FOLLOWED = (
    "ALTER TABLE t ADD COLUMN more int NOT NULL DEFAULT 7, RENAME COLUMN s TO title",
    "ALTER TABLE t ALTER COLUMN more DROP DEFAULT",
    "UPDATE t SET title = 'x', id = id + 1000 WHERE id < 9",
    "ALTER TABLE t DROP COLUMN gone",
    "INSERT INTO t (id, title, more) VALUES (-1, 'last', 8)",
)


def _run(database: Database, *statements: str) -> None:
    with database.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def _make(database: Database, rows: int = 50) -> None:
    values = ", ".join(f"({i}, 'row {i}', {i})" for i in range(rows))
    _run(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, s varchar(20), gone int)",
        f"INSERT INTO t VALUES {values}",
        "CREATE TABLE other (id int PRIMARY KEY)",
    )


def _since(mirror: Mirror) -> int | None:
    return tables_of(mirror.lake.catalog())[mirror.place.table("t")].since


def _exact(mirror: Mirror) -> None:
    assert validators.exact(mirror.lake, mirror.place.url, values=True) == []
    assert validators.consistent(mirror.lake) == []


UNTOLD = ("SET SESSION binlog_format = 'STATEMENT'", "INSERT INTO t VALUES (900, 'untold', 1)")
ANEW = (
    "SET SESSION binlog_format = 'ROW'",
    "DROP TABLE t",
    "CREATE TABLE t (id int PRIMARY KEY, s varchar(20), gone int)",
    "INSERT INTO t VALUES (901, 'told', 1)",
)


@kinds("mysql")
def test_a_table_that_is_made_anew_after_changes_that_nobody_tells_is_taken_up_again(
    mirror: Mirror, database: Database
) -> None:
    _make(database)
    _run(database, "DROP TABLE other")
    mirror.once()
    _run(database, *UNTOLD)
    assert mirror.stops().code == "MY_CHANGES_UNTOLD"
    _run(database, *ANEW)
    mirror.once()
    _exact(mirror)
    _run(database, *UNTOLD, *ANEW)  # in one batch
    mirror.once()
    _exact(mirror)


@kinds("mysql")
def test_a_statement_that_the_stream_has_yet_to_bring_is_waited_for(
    mirror: Mirror, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes between the end of a batch and the look that belongs to it."""
    _make(database)
    time = mirror.once().at().mark.time
    _run(database, "INSERT INTO t VALUES (5000, 'before', 1)")
    taken = batches.next_batch
    left = list(FOLLOWED)

    def altered_behind(*args: object, **options: object) -> object:
        found = taken(*args, **options)  # type: ignore[arg-type]
        if found is not None and len(found.transactions) and left:
            _run(database, *left)
            left.clear()
        return found

    monkeypatch.setattr(batches, "next_batch", altered_behind)
    mirror.once()
    assert left == []
    mirror.once()
    name = str(mirror.place.table("t"))
    left_out = [m.time for m in mirror.lake.marks() if m.time > time and name not in m.versions]
    assert _since(mirror) == left_out[0] + 1
    _exact(mirror)


@kinds("mariadb")
def test_a_statement_in_no_log_is_noticed_once_the_stream_has_passed_it(
    mirror: Mirror, database: Database
) -> None:
    _make(database)
    time = mirror.once().at().mark.time
    _run(database, "SET sql_log_bin = 0", "ALTER TABLE t DROP COLUMN gone")
    _run(database, "INSERT INTO other VALUES (1)")
    mirror.once()
    since = _since(mirror)
    assert since is not None
    assert since > time + 1
    assert str(mirror.place.table("t")) in mirror.lake.at().mark.versions
    assert validators.exact(mirror.lake, mirror.place.url, values=True) == []


@kinds("mysql", releases=True)
@pytest.mark.parametrize(
    "where",
    [
        "evolve.rewrite.after",
        *(
            pytest.param(where, marks=pytest.mark.full)
            for where in ("evolve.rewrite.before", "late.replay.before", "late.replay.after")
        ),
    ],
)
def test_a_mirror_that_is_killed_amid_it_goes_on(
    mirror: Mirror, database: Database, mirrored: Mirrored, where: str
) -> None:
    _make(database)
    time = mirror.once().at().mark.time
    _run(database, "UPDATE t SET gone = 5 WHERE id = 5", *FOLLOWED)
    mirrored.start("--once", environment={"HEADRACE_FAILPOINT": f"{where}=kill"})
    assert mirrored.wait(within=60) == -signal.SIGKILL, mirrored.log()
    _run(database, "DELETE FROM t WHERE id = 40", "INSERT INTO other VALUES (1)")
    mirror.once()
    assert _since(mirror) == time + 1
    _exact(mirror)
    wider = "ALTER TABLE t MODIFY more bigint NOT NULL"
    _run(database, wider, "UPDATE t SET more = 1 << 40 WHERE id = 41")
    mark = mirror.lake.at().mark.time
    mirror.once()
    assert _since(mirror) == mark + 1
    _exact(mirror)


@kinds("mariadb", releases=True)
def test_what_is_altered_again_while_it_is_written_again_is_copied(
    mirror: Mirror, database: Database, mirrored: Mirrored
) -> None:
    _make(database)
    time = mirror.once().at().mark.time
    _run(database, *FOLLOWED)
    mirrored.start("--once", environment={"HEADRACE_FAILPOINT": "late.replay.before=kill"})
    assert mirrored.wait(within=60) == -signal.SIGKILL, mirrored.log()
    _run(database, "ALTER TABLE t RENAME COLUMN title TO s, ADD gone int DEFAULT 3", "UPDATE t SET s = 'y'")
    mirror.once()
    since = _since(mirror)
    assert since is not None
    assert since > time + 1
    assert validators.exact(mirror.lake, mirror.place.url, values=True) == []


@kinds("mysql")
def test_defaults_that_change_while_a_table_is_copied_lose_none_of_its_texts(
    mirror: Mirror, database: Database, mirrored: Mirrored
) -> None:
    """The table's charset says nothing of its rows, but of columns that are defined anew behind it."""
    _run(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, s varchar(20)) CHARACTER SET utf8mb4",
        "INSERT INTO t VALUES (1, '𝄞é'), (2, 'plain')",
    )
    with mirrored.held_up("copy.range.after"):
        _run(
            database,
            "SET sql_mode = ''",
            f"ALTER DATABASE `{database.name}` CHARACTER SET latin1",
            "ALTER TABLE t DEFAULT CHARACTER SET latin1",
            "INSERT INTO t VALUES (3, '𝄞')",
            "ALTER TABLE t MODIFY s varchar(30)",
            "INSERT INTO t VALUES (4, 'ü')",
        )
    name = str(mirror.place.table("t"))
    mirrored.until(lambda: mirror.lake.at().arrow(name).num_rows == 4, "all rows", within=60)
    assert mirrored.stop() == 0, mirrored.log()
    mirror.once()
    _exact(mirror)
    texts = mirror.lake.at().arrow(name).sort_by("id")["s"].to_pylist()
    assert texts == ["?é", "plain", "?", "ü"]
