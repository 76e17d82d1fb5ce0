"""G4: nothing lost, nothing twice, under kill -9, lost connections and crashes of the server.

`stormy` (see conftest) went through a fault of each kind; here is the rest: a kill before and after every
durable step, and, with `make integration`, twenty seeded kills and every fault of the network, during the
snapshot and during the stream.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from headrace_testing import validators, workload
from headrace_testing.mirror_process import Mirrored
from headrace_testing.nemesis import Nemesis, connection_faults, server_faults
from headrace_testing.postgres import Database, Server
from headrace_testing.proxy import Proxy
from headrace_testing.wholeness import transfers
from tests.guarantees.conftest import HANDOFFS, Stormy, copied_by

_PAGE = Path(__file__).parents[2] / "docs/fail-points.md"
_STEPS = re.findall(
    r"^- `((?:lake\.(?:plan|table|mark|sync)|acknowledge|copy)\.[a-z.]+)`", _PAGE.read_text(), re.M
)


def _handoffs(step: str) -> tuple[str, ...]:
    """Choose the handoffs under which a run comes by this step; one, where they make no difference."""
    if step.startswith("copy.chunk."):
        return ("chunks",)
    if step.startswith("copy.range."):
        return ("slot", "xid")
    return HANDOFFS if step.startswith("copy.") else ("slot",)


_CHUNK_BYTES = 1_000_000  # where writers of every kind make hundreds of megabytes meanwhile
_KILLS = [
    (step, handoff, merge)
    for step in _STEPS
    for handoff in _handoffs(step)
    for merge in (("rewrite",) if step.startswith("copy.") else ("rewrite", "vectors"))
]


def test_g4_the_storm_left_nothing_behind_at_the_source(stormy: Stormy) -> None:
    slots = stormy.database.execute(
        "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    )
    assert len(slots) == 1
    assert slots[0][0].startswith("headrace_")


@pytest.mark.full
@pytest.mark.parametrize(("step", "handoff", "merge"), _KILLS)
def test_g4_a_kill_at_any_durable_step_costs_nothing(
    database: Database, tmp_path: Path, step: str, handoff: str, merge: str
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n int)", user="app")
    database.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 1000) i", user="app")
    mirror = Mirrored(
        tmp_path / "lake",
        database.url(user="app"),
        "public.*",
        options=copied_by(handoff) | {"merge": merge},
    )
    try:
        if not step.startswith("copy."):
            assert mirror.once() == 0, mirror.log()
            database.execute("UPDATE t SET n = n + 1 WHERE id % 7 > 0", user="app")
            database.execute("DELETE FROM t WHERE id % 3 = 0", user="app")
        mirror.start("--once", environment={"HEADRACE_FAILPOINT": f"{step}=kill"})
        assert mirror.wait() == -9, mirror.log()
        assert mirror.once() == 0, mirror.log()
        assert validators.exact(mirror.lake, database.url()) == []
        assert validators.definite(mirror.lake) == []
    finally:
        mirror.close()


@contextmanager
def _written(database: Database, seed: int) -> Iterator[None]:
    """Writers of every kind until the block ends."""
    url = database.url(user="app")
    database.pgbench_tables(2)
    database.execute(f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '64kB'")
    kinds: tuple[workload.Workload, ...] = (
        workload.Transfers(),
        workload.Keyed(),
        workload.Bag(),
        workload.Large(),
    )
    with ExitStack() as stack:
        for number, kind in enumerate(kinds):
            running = workload.running(kind, url, seed=seed + number, writers=2, pause=0.01)
            stack.enter_context(running)
        stack.enter_context(database.pgbench(clients=4, rate=200))
        yield


def _judge(mirror: Mirrored, database: Database) -> None:
    assert mirror.once(within=600) == 0, mirror.log()
    assert mirror.once(within=600) == 0, mirror.log()
    assert validators.exact(mirror.lake, database.url()) == []
    assert validators.definite(mirror.lake) == []
    assert validators.whole(mirror.lake) == []
    assert transfers(mirror.lake).times > 100


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("driver_epochs", "handoff", "merge"),
    [
        (0, "slot", "rewrite"),
        (0, "slot", "auto"),
        (20_000, "slot", "vectors"),
        (20_000, "xid", "auto"),
        (20_000, "chunks", "rewrite"),
    ],
)
def test_g4_twenty_seeded_kills_cost_nothing(
    database: Database, tmp_path: Path, seed: int, driver_epochs: int, handoff: str, merge: str
) -> None:
    dice = random.Random(seed)
    options = {"driver_epochs": driver_epochs, "merge": merge} | copied_by(handoff, _CHUNK_BYTES)
    mirror = Mirrored(tmp_path / "lake", database.url(user="app"), "public.*", options=options)
    try:
        with _written(database, seed):
            for number in range(20):
                mirror.start()
                if number >= 5:  # the first ones fall into the snapshot
                    mirror.until_live(within=300)
                with pytest.raises(AssertionError):
                    mirror.wait(within=dice.uniform(0.5, 12.0))
                mirror.kill()
        _judge(mirror, database)
    finally:
        mirror.close()


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("while_copying", "handoff"), [(False, "slot"), *((True, handoff) for handoff in HANDOFFS)]
)
def test_g4_whatever_the_network_and_the_server_do_costs_nothing(
    postgres_server: Server, tmp_path: Path, seed: int, while_copying: bool, handoff: str
) -> None:
    with ExitStack() as stack:
        database = stack.enter_context(postgres_server.database())
        proxy = stack.enter_context(Proxy(postgres_server.host, postgres_server.port))
        url = database.url(user="app", port=proxy.port)
        options = copied_by(handoff, _CHUNK_BYTES)
        mirror = stack.enter_context(Mirrored(tmp_path / "lake", url, "public.*", options=options))
        with _written(database, seed):
            if while_copying:  # a server that was never met is a mistyped address: its run ends
                mirror.until(lambda: bool(mirror.lake.marks()), "first mark")
            else:
                mirror.until_live(within=300)
            faults = connection_faults(proxy) | server_faults(postgres_server)
            with Nemesis(faults, seed=seed, times=20, pause=(1.0, 6.0), lasting=(0.2, 4.0)) as nemesis:
                nemesis.wait(900.0)
            proxy.heal()
            mirror.until_live(within=300)
        assert mirror.stop() == 0, mirror.log()
        _judge(mirror, database)
