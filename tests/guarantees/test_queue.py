"""The guarantees on a queue of triggers: whole transactions, exact at the end, nothing lost under kills.

G1, G2    pgbench with four clients before, during and after the snapshot; a trigger fires another statement
G3        history leads back from every mark to the one before, though copies were taken amid writers
G4        kills at the steps of a tick, and seeded ones of run and receiver
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing import validators
from headrace.testing.mirror_process import Mirrored, Program
from headrace.testing.postgres import Database, Server
from headrace.testing.wholeness import balances

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
_TICK_STEPS = ("queue.tick.before", "queue.tick.after")


@pytest.fixture
def database(queue_server: Server) -> Iterator[Database]:
    """A database of a server that gives no logical replication."""
    queue_server.start()
    with queue_server.database() as made:
        yield made


def _mirrored(database: Database, lake: Path, program: Program) -> Mirrored:
    return Mirrored(
        lake,
        f"queue+{database.url(user='app')}",
        "public.*",
        options={"tick": "0.05", "handoff": "chunks", "chunk_bytes": 50_000},
        program=program,
    )


def _kill(mirror: Mirrored, seed: int, kills: int) -> None:
    """End the run as by kill -9, at some moment behind another mark, and begin again."""
    chance = random.Random(seed)
    for _ in range(kills):
        _follow(mirror, chance.randint(1, 4))
        mirror.kill()
        mirror.start()


def _follow(mirror: Mirrored, marks: int) -> None:
    reached = mirror.lake.marks()[-1].epoch + marks
    mirror.until(lambda: mirror.lake.marks()[-1].epoch >= reached, "further marks")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.full)])
def test_balances_agree_at_every_mark_and_time_whatever_is_killed(
    database: Database, tmp_path: Path, program: Program, kills: int
) -> None:
    database.pgbench_tables(1, accounts=ACCOUNTS)
    database.execute("ALTER TABLE pgbench_tellers ALTER filler TYPE text")
    database.execute(NESTED, user="app")
    mirror = _mirrored(database, tmp_path / "lake", program)
    try:
        with database.pgbench(clients=4, rate=150, accounts=ACCOUNTS) as load:
            mirror.start()
            mirror.until_live()
            _kill(mirror, seed=kills, kills=kills)
            _follow(mirror, 3)
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


@pytest.mark.parametrize("step", _TICK_STEPS)
def test_a_kill_at_a_tick_costs_nothing(
    database: Database, tmp_path: Path, program: Program, step: str
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n int)", user="app")
    database.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 100) i", user="app")
    mirror = _mirrored(database, tmp_path / "lake", program)
    try:
        assert mirror.once() == 0, mirror.log()
        database.execute("UPDATE t SET n = n + 1; DELETE FROM t WHERE id % 3 = 0", user="app")
        mirror.start("--once", environment={"HEADRACE_FAILPOINT": f"{step}=kill"})
        assert mirror.wait() == -9, mirror.log()
        database.execute("UPDATE t SET n = n + 1", user="app")
        assert mirror.once() == 0, mirror.log()
        assert validators.exact(mirror.lake, database.url()) == []
        assert validators.definite(mirror.lake, of_many=True) == []
    finally:
        mirror.close()
