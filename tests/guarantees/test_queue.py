"""The guarantees on a queue of triggers: whole transactions, exact at the end, nothing lost under kills.

G1, G2    pgbench with four clients before, during and after the snapshot; a trigger fires another statement
G3        history leads back from every mark to the one before, though copies were taken amid writers
G8        no password in the schema, in statements, in functions
G4        kills at the steps of a tick and of a turn of event tables; seeded ones of run, receiver and server
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.pipeline.state.records import tables_of
from headrace_testing import validators
from headrace_testing.binaries import VERSIONS
from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.postgres import Database, Server, postgres
from headrace_testing.postmaster import wait_for
from headrace_testing.wholeness import balances
from tests.integration.pipeline.evolve.test_faults import POINTS, alter
from tests.integration.pipeline.evolve.three_tables import TABLES
from tests.nursery import Nursery, running

ACCOUNTS = 2000
# Each update of a teller fires one of the teller itself, whose events come before those of the outer one, and
# the branch's sum stays what it is.
NESTED = """
CREATE FUNCTION nest() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_trigger_depth() < 4 THEN
        UPDATE pgbench_tellers SET filler = coalesce(filler, '') || 'x' WHERE tid = NEW.tid;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER nest AFTER UPDATE ON pgbench_tellers FOR EACH ROW EXECUTE FUNCTION nest();
"""
_STEPS = (
    *("queue.tick.after", "queue.rotate.before"),
    *(
        pytest.param(f"queue.{step}", marks=pytest.mark.full)
        for step in ("tick.before", "turn.before", "turn.after")
    ),
)


@pytest.fixture
def database(queue_server: Server) -> Iterator[Database]:
    """A database of a server that gives no logical replication."""
    queue_server.start()
    with queue_server.database() as made:
        yield made


@pytest.fixture(params=[version for version in VERSIONS if version != "18"])
def older(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database without logical replication, on a server of another version that the test may kill."""
    with postgres(request.param, settings={"wal_level": "replica"}) as server:
        server.execute("ALTER ROLE app NOREPLICATION")
        with server.database() as made:
            yield made


def _mirrored(database: Database, lake: Path, program: Program) -> Mirrored:
    return Mirrored(
        lake,
        f"queue+{database.url(user='app')}",
        "public.*",
        options={"tick": "0.05", "handoff": "chunks", "chunk_bytes": 50_000},
        program=program,
    )


def _kill(mirror: Mirrored, server: Server, seed: int, kills: int) -> None:
    """End run, receiver or server as by kill -9, at some moment behind another mark."""
    chance = random.Random(seed)
    for number in range(kills):
        _follow(mirror, chance.randint(1, 4))
        victim = "run" if number == 0 else chance.choice(["run", "receiver", "server"])
        if victim == "run":
            mirror.kill()
            mirror.start()
        elif victim == "server":
            server.crash()
            server.start()
        else:
            for receiver in running(of=mirror.pid):
                receiver.kill()


def _hold_no_password(database: Database) -> None:
    """G8: neither what stands in the source nor what it is asked shows the password that we came with."""
    asked = database.execute("SELECT query FROM pg_stat_activity WHERE application_name LIKE 'headrace%'")
    assert asked, "our sessions are there"
    tables = database.execute("SELECT schemaname || '.' || relname FROM pg_stat_user_tables")
    ours = [name for (name,) in tables if name.startswith("headrace.") and "event" not in name]
    held = [row for name in ours for row in database.execute(f"SELECT t::text FROM {name} t")]
    held += database.execute("SELECT prosrc FROM pg_proc WHERE pronamespace = 'headrace'::regnamespace")
    assert held
    assert [text for (text,) in (*asked, *held) if database.server.password in text] == []


def _follow(mirror: Mirrored, marks: int) -> None:
    reached = mirror.lake.marks()[-1].epoch + marks
    mirror.until(lambda: mirror.lake.at().mark.epoch >= reached, "further marks")


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(2, marks=pytest.mark.timeout(300)),
        pytest.param(20, marks=[pytest.mark.full, pytest.mark.timeout(1500)]),  # each a start of Spark
    ],
)
def test_balances_agree_at_every_mark_and_time_whatever_is_killed(
    database: Database, tmp_path: Path, program: Program, kills: int, seed: int
) -> None:
    _survive(_mirrored(database, tmp_path / "lake", program), database, kills, seed)


@pytest.mark.full
def test_every_version_survives_kills_of_run_and_server(
    older: Database, tmp_path: Path, nursery: Nursery, seed: int
) -> None:
    _survive(_mirrored(older, tmp_path / "lake", nursery.run), older, 20, seed)


def _survive(mirror: Mirrored, database: Database, kills: int, seed: int) -> None:
    """Balances agree at every mark and at every time behind the kills."""
    database.pgbench_tables(1, accounts=ACCOUNTS)
    database.execute("ALTER TABLE pgbench_tellers ALTER filler TYPE text")
    database.execute(NESTED, user="app")
    try:
        with database.pgbench(clients=4, rate=150, accounts=ACCOUNTS) as load:
            mirror.start()
            mirror.until_live()
            _kill(mirror, database.server, seed=seed, kills=kills)
            _follow(mirror, 3)
            _hold_no_password(database)
            load.stop()
            assert mirror.stop() == 0, mirror.log()
            assert mirror.once() == 0, mirror.log()
        verdict = balances(mirror.lake, sample=None)
        assert verdict.violations == []
        assert verdict.times > 10
        assert validators.exact(mirror.lake, database.url()) == []
        assert validators.definite(mirror.lake, of_many=True, sample=6) == []
        assert validators.travelled(mirror.lake, sample=3) == []
    finally:
        mirror.close()


@pytest.mark.parametrize("step", _STEPS)
def test_a_kill_at_a_step_of_the_queue_costs_nothing(
    database: Database, tmp_path: Path, program: Program, step: str
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n int)", user="app")
    database.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 100) i", user="app")
    mirror = _mirrored(database, tmp_path / "lake", program)

    def reached() -> bool:
        """Make the last switch an hour older: the run empties the next table once readers have passed it."""
        database.execute("UPDATE headrace.queue SET switched = switched - interval '1 hour'")
        database.execute("UPDATE t SET n = n + 1", user="app")
        return f"fail point {step}" in mirror.log()

    try:
        assert mirror.once() == 0, mirror.log()
        database.execute("UPDATE t SET n = n + 1; DELETE FROM t WHERE id % 3 = 0", user="app")
        # Some of them are met by the run itself, others by its receiver, which it starts again.
        mirror.start(environment={"HEADRACE_FAILPOINT": f"{step}=kill"})
        wait_for(reached, f"the end at {step}")
        mirror.kill()
        database.execute("UPDATE t SET n = n + 1", user="app")
        assert mirror.once() == 0, mirror.log()
        assert validators.exact(mirror.lake, database.url()) == []
        assert validators.definite(mirror.lake, of_many=True) == []
    finally:
        mirror.close()


@pytest.mark.parametrize("points", [POINTS[3:4], pytest.param(POINTS, marks=pytest.mark.full)])
def test_a_kill_while_ddl_is_followed_costs_nothing(
    database: Database, tmp_path: Path, program: Program, points: tuple[str, ...]
) -> None:
    database.execute(TABLES, user="app")
    mirror = _mirrored(database, tmp_path / "lake", program)
    try:
        assert mirror.once() == 0, mirror.log()
        for number, where in enumerate(points):
            alter(database, number)
            mirror.start("--once", environment={"HEADRACE_FAILPOINT": f"{where}=kill"})
            assert (where, mirror.wait()) == (where, -9), mirror.log()
            # Altered once more before it goes on, with rows of before, amid and behind that.
            database.execute(
                f"BEGIN; UPDATE t SET n{number + 1} = -1 WHERE id > 40; ALTER TABLE t ADD x int DEFAULT 5;"
                " UPDATE t SET x = 6 WHERE id > 45; COMMIT; ALTER TABLE t DROP x",
                user="app",
            )
            assert mirror.once() == 0, mirror.log()
            assert validators.exact(mirror.lake, database.url(), values=True) == []
        assert validators.consistent(mirror.lake, of_many=True) == []
        records = {name.name: each for name, each in tables_of(mirror.lake.catalog()).items()}
        ways = {name: each.alteration and each.alteration.way for name, each in records.items()}
        assert (ways["a"], ways["other"]) == ("added", None)
        assert ways["t"] in ("rewritten", "copied")
    finally:
        mirror.close()
