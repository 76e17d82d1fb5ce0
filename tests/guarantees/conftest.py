"""One mirror that everything happens to, on which the guarantees are then judged.

    writers all the time     pgbench, Transfers, Keyed (identity DEFAULT and FULL), Bag, Large
    faults                   a kill -9 and a cut during the snapshot and during the stream, a crash of the
                             server, chosen and placed by the seed
    at the end               the writers stop, the mirror ends, and a last run catches up

It is done once for the folder: `stormy` holds the lake and the source at rest. `make integration` does
the same with many more faults (`test_g4_nothing_lost`).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.lake.read.lake import Lake
from headrace_testing import workload
from headrace_testing.mirror_process import COMMAND, Mirrored, Program
from headrace_testing.postgres import Database, Server, postgres
from headrace_testing.proxy import Proxy
from tests.nursery import Nursery, nursery, program

__all__ = ["nursery", "program"]

TABLES = 4 + 2 + 2 + 1 + 1
ACCOUNTS = 10_000  # so few that they can be looked at in each mark
HANDOFFS = ("slot", "xid", "chunks")


def first(handoff: str, among: Sequence[str] = HANDOFFS) -> list[Any]:
    """One handoff in every run, the others in the full one; which one, differs from test to test."""
    return [handoff, *(pytest.param(each, marks=pytest.mark.full) for each in among if each != handoff)]


OTHERS_IN_FULL = first("slot")


def copied_by(handoff: str, chunk_bytes: int = 50_000) -> dict[str, str | int]:
    """The configuration of a handoff; chunks so small that there are many."""
    return {"handoff": handoff, "chunk_bytes": chunk_bytes}


# Spark with executors takes minutes to start where other tests have the machine.
STORM_SECONDS = 900.0

SECRET = "tell-nobody-7c1f"  # a value that is planted in rows


@dataclass(frozen=True)
class Stormy:
    """A lake and its source after the storm, both at rest."""

    path: Path
    lake: Lake
    database: Database
    events: Path
    output: str
    password: str

    @property
    def url(self) -> str:
        return self.database.url()


@pytest.fixture(scope="package")
def stormy(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery, seed: int) -> Iterator[Stormy]:
    """See the module's essay. The first run, which is killed, and the last go without Spark.

    Links fall silent in the full run: here each would be waited for a minute (`session.timeouts`).
    """
    folder = tmp_path_factory.mktemp("stormy")
    with storm(folder, folder / "lake", seed, brief=nursery.run, sever=Proxy.cut, accounts=ACCOUNTS) as after:
        yield after


@contextmanager
def storm(
    folder: Path,
    where: Path | str,
    seed: int,
    spark: Mapping[str, Any] | None = None,
    brief: Program = COMMAND,
    sever: Callable[[Proxy], None] = Proxy.half_open,
    accounts: int | None = None,
) -> Iterator[Stormy]:
    """Yield what a storm leaves of a lake. The storm crashes a server of its own, and keeps a slot there.

    `brief` is the program of the first and the last run; `sever` breaks the connections under the stream;
    pgbench has so many `accounts`, or a hundred thousand.
    """
    events = folder / "events"
    events.mkdir()
    with ExitStack() as stack:
        server = stack.enter_context(postgres())
        database = stack.enter_context(server.database())
        proxy = stack.enter_context(Proxy(server.host, server.port))
        conf = {"spark.eventLog.dir": events.as_uri()}
        # Between the runs the way to merge changes, so that each works on what the other left.
        mirror = _mirror(where, database, proxy, conf, spark or {}, folder / "password", merge="vectors")
        stack.callback(mirror.close)
        outer = _mirror(where, database, proxy, conf, spark or {}, None, brief)
        stack.callback(outer.close)
        with ExitStack() as writers:
            _write(writers, database, seed, accounts)
            _begin(outer)
            _weather(mirror, proxy, server, sever)
        assert mirror.stop() == 0, mirror.log()
        assert outer.once() == 0, outer.log()
        yield Stormy(
            path=folder / "lake",
            lake=mirror.lake,
            database=database,
            events=events,
            output=mirror.log() + outer.log(),
            password=server.password,
        )


def _mirror(
    where: Path | str,
    database: Database,
    proxy: Proxy,
    conf: Mapping[str, str],
    spark: Mapping[str, Any],
    password: Path | None,
    program: Program = COMMAND,
    merge: str = "rewrite",
) -> Mirrored:
    """Mirror as the ordinary user `app`, through the proxy, with Spark's event log and errors on.

    It asks a command for the password, which prints a file, or without that takes it from the environment.
    """
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", **conf}
    conf |= spark.get("conf", {})
    url = database.url(user="app", port=proxy.port)
    # On two processors 50 times as many changes stay in the driver: beyond some hundreds they go to Spark.
    options: dict[str, Any] = {"driver_epochs": 8, "merge": merge}
    if password is not None:
        url = database.server.url(database.name, user="app", password="", port=proxy.port).replace(":@", "@")
        password.write_text(database.server.password)
        options["password_command"] = ["/bin/cat", str(password)]
    said = {"HEADRACE_SPARK_LOG": "ERROR"}
    spark = {**spark, "conf": conf}
    return Mirrored(
        where,
        url,
        "public.*",
        environment=said,
        options=options,
        spark=spark,
        program=program,
        deadline=STORM_SECONDS,
    )


def _write(stack: ExitStack, database: Database, seed: int, accounts: int | None) -> None:
    """Writers that go on until the stack is closed: forty transactions a second, one open at all times.

    That is enough to have one at each fault. More writes would only take longer to judge.
    """
    url = database.url(user="app")
    database.pgbench_tables(1, accounts=accounts)
    database.execute(f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '64kB'")
    kinds: tuple[workload.Workload, ...] = (
        workload.Transfers(),
        workload.Keyed("keyed", "default"),
        workload.Keyed("keyed_full", "full"),
        workload.Bag(),
        workload.Large(pause=0.3),
    )
    for number, kind in enumerate(kinds):
        running = workload.running(kind, url, seed=seed + number, writers=1, pause=0.2)
        stack.enter_context(running)
    database.execute("UPDATE keyed SET note = %s WHERE id <= 50", [SECRET])
    stack.enter_context(database.pgbench(clients=4, rate=20, accounts=accounts))


def _begin(mirror: Mirrored) -> None:
    """The first fault: a kill in the midst of the snapshot."""
    mirror.start(environment={"HEADRACE_FAILPOINT": "copy.range.after=kill"})
    assert mirror.wait() == -signal.SIGKILL, mirror.log()


def _weather(mirror: Mirrored, proxy: Proxy, server: Server, sever: Callable[[Proxy], None]) -> None:
    """The other faults: one while tables are copied, three while the stream flows."""
    mirror.start()
    mirror.until(lambda: _copies(mirror), "copy")
    proxy.cut()
    mirror.until_live()
    _onward(mirror)
    mirror.kill()
    mirror.start()
    _onward(mirror)
    sever(proxy)
    _onward(mirror)
    server.crash()
    server.start()
    _onward(mirror)


def _copies(mirror: Mirrored) -> bool:
    return any(table.state == "copying" for table in mirror.status().tables.values())


def _onward(mirror: Mirrored, epochs: int = 4) -> None:
    """Wait until some more marks with transactions are published."""
    known = mirror.lake.marks()[-1].epoch

    def moved() -> bool:
        return sum(m.transactions > 0 for m in mirror.lake.marks() if m.epoch > known) >= epochs

    mirror.until(moved, "further marks")
