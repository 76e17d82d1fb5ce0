"""The receiver, its network and its server are broken on purpose; the spool stays true."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from headrace.core.errors import Transient
from headrace.spool.layout import RECORD, Kind, checks, erase, segment_path
from headrace_testing.postgres import Database, postgres
from headrace_testing.postmaster import wait_for
from headrace_testing.proxy import Proxy
from tests.integration.stream.harness import Stage, stage
from tests.places import place_at

pytestmark = pytest.mark.server

SILENCE = 4.0  # seconds; a busy machine may keep any process waiting for two


@pytest.fixture
def staged(database: Database, tmp_path: Path) -> Iterator[Stage]:
    with stage(database, tmp_path) as made:
        yield made


@pytest.fixture
def proxied(database: Database, tmp_path: Path) -> Iterator[tuple[Stage, Proxy]]:
    server = database.server
    with Proxy(server.host, server.port) as proxy:
        url = database.url(user="app", port=proxy.port)
        with stage(database, tmp_path, url=url, silence=SILENCE) as made:
            yield made, proxy


class Writer(threading.Thread):
    """Commits small and middling transactions until it is told to stop."""

    def __init__(self, database: Database, seed: int) -> None:
        super().__init__()
        self._database = database
        self._random = random.Random(seed)
        self._stop_asked = threading.Event()

    def run(self) -> None:
        statement = (
            "INSERT INTO t SELECT i, repeat('x', %s::int) FROM generate_series(%s::bigint, %s::bigint) i"
        )
        number = 0
        with self._database.connect() as connection:
            while not self._stop_asked.is_set():
                rows = self._random.choice([1, 1, 1, 2, 50, 2000])
                connection.execute(statement, [self._random.randrange(300), number, number + rows - 1])
                number += rows

    def finish(self) -> None:
        self._stop_asked.set()
        self.join()


def restart(staged: Stage) -> None:
    """Start again until the slot is free: the server notices the end of a receiver in its own time."""

    def started() -> bool:
        try:
            staged.start()
        except Transient:
            return False
        return True

    wait_for(started, "the receiver starts again")


def await_records(staged: Stage, more: int) -> None:
    def number() -> int:
        newest = staged.reader.newest()
        return -1 if newest is None else int(newest["number"])

    target = number() + more
    wait_for(lambda: number() >= target, f"{more} more records")


def test_kill_at_any_moment_loses_and_repeats_nothing(staged: Stage, seed: int) -> None:
    moments = random.Random(seed)
    writer = Writer(staged.database, seed)
    staged.start()
    writer.start()
    try:
        for _ in range(4):
            await_records(staged, moments.randrange(1, 60))
            staged.receiver.kill()
            with pytest.raises(Transient) as caught:
                staged.receiver.poll()
            assert caught.value.code == "RECEIVER_KILLED"
            restart(staged)
    finally:
        writer.finish()
    staged.catch_up()
    assert staged.spooled() == staged.expected()
    assert staged.reader.transactions(0)["session"][-1] >= 3


def test_a_crash_of_the_server_sends_the_slot_back_and_repeats_nothing(tmp_path: Path, seed: int) -> None:
    # A server of its own: the slot's position is saved at a checkpoint, and none must come by itself.
    with (
        postgres(settings={"checkpoint_timeout": "1h"}) as server,
        server.database() as database,
        stage(database, tmp_path) as staged,
    ):
        staged.start()
        writer = Writer(database, seed)
        writer.start()
        wait_for(lambda: len(staged.reader.transactions(0)) > 50, "transactions arrive")
        writer.finish()
        staged.catch_up()
        last = place_at(int(staged.reader.transactions(0)["end"][-1]))
        staged.receiver.acknowledge(last)
        wait_for(lambda: staged.slot()[0] == last, "the slot moves")
        server.crash()
        assert staged.error().code in ("PG_CONNECTION_LOST", "PG_UNREACHABLE")
        server.start()
        assert staged.slot()[0] < last
        staged.frontier = last  # what the lake holds, and what it has acknowledged
        restart(staged)
        database.execute("INSERT INTO u VALUES (-1, 'after')")
        staged.catch_up()
        assert staged.spooled() == staged.expected()
        assert set(staged.reader.transactions(0)["session"].tolist()) == {1, 2}


def test_a_shutdown_of_the_server_does_not_wait_for_the_lake(staged: Stage) -> None:
    staged.start()
    staged.database.execute("INSERT INTO t VALUES (0, 'never acknowledged')")
    staged.catch_up()
    staged.database.server.restart("fast")
    error = staged.error()
    assert error.code in ("PG_SERVER_STOPPING", "PG_CONNECTION_LOST")
    assert error.family == "transient"
    restart(staged)
    staged.database.execute("INSERT INTO t VALUES (1, 'after')")
    staged.catch_up()
    assert staged.spooled() == staged.expected()


BREAKS: dict[str, Callable[[Proxy], None]] = {
    "cut": Proxy.cut,
    "stall": Proxy.stall,
    "half_open": Proxy.half_open,
}


@pytest.mark.parametrize("name", BREAKS)
@pytest.mark.parametrize("busy", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_broken_connection_is_noticed_in_time(
    proxied: tuple[Stage, Proxy], name: str, busy: bool, seed: int
) -> None:
    staged, proxy = proxied
    staged.start()
    writer = Writer(staged.database, seed)
    if busy:
        writer.start()
        wait_for(lambda: len(staged.reader.transactions(0)) > 20, "transactions arrive")
    BREAKS[name](proxy)
    try:
        error = staged.error(deadline=10 * SILENCE)
    finally:
        if busy:
            writer.finish()
    assert error.family == "transient"
    assert error.code in ("PG_CONNECTION_LOST", "PG_SILENT")
    proxy.heal()
    restart(staged)
    staged.database.execute("INSERT INTO u VALUES (-1, 'after')")
    staged.catch_up()
    assert staged.spooled() == staged.expected()


def test_a_slow_connection_is_not_taken_for_a_broken_one(proxied: tuple[Stage, Proxy]) -> None:
    staged, proxy = proxied
    staged.start()
    proxy.throttle(30_000)
    staged.database.execute("INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 800) i")
    staged.catch_up()
    assert staged.spooled() == staged.expected()


def test_a_damaged_spool_is_refused_and_comes_again(staged: Stage) -> None:
    staged.start()
    staged.database.execute("INSERT INTO t VALUES (1, 'a')")
    staged.catch_up()
    staged.receiver.stop()
    _change_transaction(staged, number=0, sound=False)
    error = staged.refusal()
    assert (error.code, error.family) == ("SPOOL_DAMAGED", "transient")
    erase(staged.feed.folder)
    restart(staged)
    staged.catch_up()
    assert staged.spooled() == staged.expected()


def test_a_spool_of_another_history_is_refused(staged: Stage) -> None:
    staged.start()
    for i in range(3):
        staged.database.execute("INSERT INTO t VALUES (%s, 'a')", [i])
    staged.catch_up()
    staged.receiver.stop()
    _change_transaction(staged, number=1, sound=True)
    error = staged.refusal()
    assert (error.code, error.family) == ("PG_HISTORY_CHANGED", "definite")


def _change_transaction(staged: Stage, *, number: int, sound: bool) -> None:
    """Damage what the spool remembers of a transaction; `sound`: as another history would have it."""
    index = segment_path(staged.feed.folder, 0, "index")
    records = np.fromfile(index, RECORD)
    records["transaction"][np.flatnonzero(records["kind"] == Kind.TRANSACTION)[number]] += 1
    if sound:
        records["check"] = checks(records)
    records.tofile(index)
