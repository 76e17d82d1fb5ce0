"""Two-phase transactions with a plain slot: the rows of one come whole at its COMMIT PREPARED, or never.

Scenarios 021 to 023 of PostgreSQL's own subscription tests (`docs/scenarios.md`), and what those leave out: a
transaction that was prepared before there was a slot or a snapshot, or while tables were copied, and one that
hangs while everybody else goes on. At no mark does a prepared transaction show anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace_testing import validators
from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.postgres import Database, Server, postgres
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.serving import serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.server

VERSIONS = ["18", pytest.param("15", marks=pytest.mark.full)]
ROWS = "INSERT INTO t SELECT i, md5(i::text) FROM generate_series({}, {}) i"


@pytest.fixture(scope="module", params=VERSIONS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """With so little memory for decoding that larger transactions are streamed where streaming is on."""
    with postgres(request.param, settings={"logical_decoding_work_mem": "64kB"}) as made:
        yield made


@pytest.fixture
def database(server: Server) -> Iterator[Database]:
    """A table that transactions write, and one by which a test sees how far the mirror is."""
    server.start()
    with server.database() as made:
        made.execute("CREATE TABLE t (id int PRIMARY KEY, s text); CREATE TABLE u (id int)", user="app")
        made.execute("ALTER TABLE u REPLICA IDENTITY FULL; INSERT INTO t VALUES (1, 'one'), (2, 'two')")
        made.execute("CREATE TABLE w (id int PRIMARY KEY); INSERT INTO w VALUES (1)", user="app")
        yield made


@pytest.fixture(params=["auto", pytest.param("off", marks=pytest.mark.full)])
def mirrors(
    request: pytest.FixtureRequest, database: Database, tmp_path: Path, engine: SparkSession | None
) -> Mirrors:
    return Mirrors(database, tmp_path / "lake", engine, {"streaming": request.param})


def _prepare(database: Database, gid: str, *statements: str) -> None:
    """A transaction of these statements, prepared."""
    with database.connect(user="app") as connection:
        connection.execute("BEGIN")
        for statement in statements:
            connection.execute(statement.encode())
        connection.execute(f"PREPARE TRANSACTION '{gid}'".encode())


def _rows(mirrors: Mirrors) -> int:
    return int(mirrors.lake.at().arrow("public.t").num_rows)


def _exact(mirrors: Mirrors) -> None:
    assert validators.exact(mirrors.once(), mirrors.database.url(), values=True) == []


@pytest.mark.scenario("021", "022", "023")
def test_prepared_transactions_come_whole_at_their_commit_or_never(mirrors: Mirrors) -> None:
    database = mirrors.database
    _exact(mirrors)
    with serving(mirrors) as served:
        _prepare(
            database,
            "large",
            ROWS.format(3, 5000),
            "UPDATE t SET s = s || '!' WHERE id % 2 = 0",
            "DELETE FROM t WHERE id % 3 = 0",
        )
        _prepare(
            database,
            "nested",
            ROWS.format(6001, 6001),
            "SAVEPOINT a",
            ROWS.format(6002, 6999),
            "SAVEPOINT b",
            ROWS.format(7000, 7003),
            "ROLLBACK TO a",
            ROWS.format(6003, 6003),
        )
        _prepare(database, "never", ROWS.format(8000, 9999), "DELETE FROM t WHERE id = 1")
        _prepare(database, "", ROWS.format(10_000, 10_000))  # a name like any other
        _prepare(database, "only a lock", "SELECT * FROM w FOR UPDATE", "SAVEPOINT a", "ROLLBACK TO a")
        database.execute("INSERT INTO u VALUES (1)", user="app")
        served.until(lambda: served.holds("public.u", 1), "a mark after the prepared ones")
        assert _rows(mirrors) == 2
        # After PREPARE and before its COMMIT PREPARED others go on, also with its own kind of rows.
        database.execute(ROWS.format(20_000, 20_001), user="app")
        for gid in ("nested", "", "only a lock"):
            database.execute(f"COMMIT PREPARED '{gid}'", user="app")
        database.execute("ROLLBACK PREPARED 'never'", user="app")
        database.execute("INSERT INTO u VALUES (2)", user="app")
        served.until(lambda: served.holds("public.u", 2), "a mark after some are decided")
        assert _rows(mirrors) == 2 + 2 + 2 + 1
        database.execute("COMMIT PREPARED 'large'", user="app")
        served.until(lambda: served.holds("public.t", 3334 + 5), "the large one")
    _exact(mirrors)
    assert validators.definite(mirrors.lake) == []
    # Three prepared and three plain ones; what was rolled back, or held a lock only, is none.
    assert sum(mark.transactions for mark in mirrors.lake.marks()) == 6


@pytest.mark.scenario("021", "023")
def test_a_prepared_transaction_outlives_every_restart(mirrors: Mirrors) -> None:
    database = mirrors.database
    _exact(mirrors)
    _prepare(database, "kept", ROWS.format(3, 5000), "DELETE FROM t WHERE id % 3 = 0")
    _prepare(database, "dropped", ROWS.format(6000, 9000))
    for turn in range(3):  # the mirror's own, the server's, and the server's by a crash
        database.execute(f"INSERT INTO u VALUES ({turn})", user="app")
        _exact(mirrors)
        assert _rows(mirrors) == 2
        if turn == 1:
            database.server.restart()
        elif turn == 2:
            database.server.crash()
            database.server.start()
    database.execute("ROLLBACK PREPARED 'dropped'")
    database.execute("COMMIT PREPARED 'kept'")
    database.server.crash()
    database.server.start()
    _exact(mirrors)
    assert validators.definite(mirrors.lake) == []
    assert _rows(mirrors) == 3334


@pytest.mark.scenario("021")
def test_one_prepared_before_the_slot_is_waited_for_and_named(
    database: Database, tmp_path: Path, program: Program
) -> None:
    _prepare(database, "in the way", ROWS.format(3, 10))
    mirror = Mirrored(tmp_path / "lake", database.url(user="app"), "public.*", program=program)
    try:
        mirror.start("--once")
        mirror.until(lambda: 'prepared transaction "in the way"' in mirror.log(), "word of who is waited for")
        database.execute("UPDATE t SET s = 'seen' WHERE id = 1")
        database.execute("COMMIT PREPARED 'in the way'")
        assert mirror.wait() == 0, mirror.log()
        assert mirror.lake.at().arrow("public.t").num_rows == 10
        assert validators.exact(mirror.lake, database.url(), values=True) == []
    finally:
        mirror.close()


@pytest.mark.scenario("021")
@pytest.mark.parametrize(
    "handoff", [*(pytest.param(each, marks=pytest.mark.full) for each in ("slot", "xid")), "chunks"]
)
def test_those_prepared_beside_the_copy_are_joined_exactly(
    database: Database, tmp_path: Path, handoff: str, program: Program
) -> None:
    """One is open when the snapshot is to be taken; one is prepared after that, and outlives the copy."""
    url, options = database.url(user="app"), {"handoff": handoff}
    mirror = Mirrored(tmp_path / "lake", url, "public.*", options=options, program=program)
    try:
        with mirror.held_up("copy.snapshot.before"):
            _prepare(database, "before", ROWS.format(3, 10), "DELETE FROM t WHERE id = 1")
        if handoff == "slot":
            mirror.until(lambda: mirror.status().warnings != {}, "word of who is waited for")
        else:  # written after all of it was captured: the copy need not wait, and lacks it
            mirror.until_live()
            assert mirror.lake.at().arrow("public.t").num_rows == 2
        database.execute("COMMIT PREPARED 'before'")
        mirror.until_live()
        mirror.kill()
        database.execute("CREATE TABLE v (id int PRIMARY KEY)", user="app")
        other = Mirrored(tmp_path / "other", url, "public.*", options=options, program=program)
        try:
            step = "copy.chunk.before" if handoff == "chunks" else "copy.range.before"
            with other.held_up(f"{step}@public.t"):
                _prepare(database, "after", ROWS.format(11, 20), "DELETE FROM t WHERE id = 2")
            other.until_live()
            assert other.lake.at().arrow("public.t").num_rows == 9
            database.execute("COMMIT PREPARED 'after'")
            assert other.stop() == 0, other.log()
            for each in (mirror, other):
                assert each.once() == 0, each.log()
                assert each.lake.at().arrow("public.t").num_rows == 18
                assert (
                    validators.exact(each.lake, database.url(), ["public.t", "public.u"], values=True) == []
                )
                assert validators.definite(each.lake) == []
        finally:
            other.close()
    finally:
        mirror.close()
