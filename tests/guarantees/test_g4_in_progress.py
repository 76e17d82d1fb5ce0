"""G4, for a large transaction that stays open: whatever happens meanwhile, it is there once it commits.

It is larger than a piece of the work ahead (`pipeline.stream.eager`), so that there is some to be lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace_testing import validators
from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.postgres import Database, Server, postgres
from headrace_testing.proxy import Proxy

PIECE = 16 << 20
ROWS = 70_000


@dataclass
class Scene:
    """A mirror behind a proxy, of a server that streams all that is larger than 64 kB."""

    server: Server
    database: Database
    proxy: Proxy
    mirror: Mirrored
    small: int = 0

    def wait_for_a_mark(self) -> None:
        """A small transaction comes through, and with it everything that committed before it."""
        self.small += 1
        self.database.execute("INSERT INTO small VALUES (%s)", [self.small], user="app")
        self.mirror.until(lambda: self.small in self.column("small"), "mark with the small transaction")

    def wait_for_pieces(self) -> None:
        """The open transaction has been streamed, a piece of it at least."""
        self.wait_for_a_mark()
        self.mirror.until(lambda: self.open_bytes() > PIECE, "stream of the open transaction")

    def open_bytes(self) -> int:
        streamed = self.mirror.status().status.running
        return 0 if streamed is None else streamed.open_bytes

    def column(self, table: str) -> list[int]:
        found: list[int] = self.mirror.lake.at().arrow(f"public.{table}")["id"].to_pylist()
        return found

    @contextmanager
    def opened(self, low: int) -> Iterator[psycopg.Connection[Any]]:
        """A connection in whose transaction very many rows were written, some of them in vain."""
        values = "i, i, repeat(md5(i::text), 8)"
        with self.database.connect(user="app") as connection:
            connection.execute("BEGIN")
            connection.execute(
                f"INSERT INTO t SELECT {values} FROM generate_series({low}, {low + ROWS - 1}) i"
            )
            connection.execute("SAVEPOINT s")
            connection.execute("UPDATE t SET n = -1 WHERE id % 7 = 0")
            connection.execute("ROLLBACK TO SAVEPOINT s")
            yield connection


@pytest.fixture
def scene(tmp_path: Path, program: Program) -> Iterator[Scene]:
    with ExitStack() as stack:
        server = stack.enter_context(postgres(settings={"logical_decoding_work_mem": "64kB"}))
        database = stack.enter_context(server.database())
        database.execute("CREATE TABLE t (id int PRIMARY KEY, n int, s text)", user="app")
        database.execute("CREATE TABLE small (id int PRIMARY KEY)", user="app")
        proxy = stack.enter_context(Proxy(server.host, server.port))
        url = database.url(user="app", port=proxy.port)
        mirror = stack.enter_context(Mirrored(tmp_path / "lake", url, "public.*", program=program))
        mirror.until_live()
        yield Scene(server, database, proxy, mirror)


def _judge(scene: Scene) -> None:
    assert scene.mirror.stop() == 0, scene.mirror.log()
    assert validators.exact(scene.mirror.lake, scene.database.url()) == []
    assert validators.definite(scene.mirror.lake) == []


def test_g4_an_open_transaction_outlives_a_cut_and_a_kill(scene: Scene) -> None:
    with scene.opened(1) as connection:
        scene.wait_for_pieces()
        connection.execute("SAVEPOINT again")
        connection.execute("UPDATE t SET n = -2 WHERE id % 5 = 0")
        scene.wait_for_pieces()
        scene.proxy.cut()
        connection.execute("ROLLBACK TO SAVEPOINT again")  # what comes again comes without it
        scene.wait_for_pieces()
        scene.mirror.kill()
        scene.mirror.start()
        # What the server had decoded before, it streams again once there is more of the same.
        connection.execute("UPDATE t SET n = n + 1 WHERE id % 2 = 0")
        scene.wait_for_pieces()
        assert scene.column("t") == []
        connection.execute("DELETE FROM t WHERE id % 3 = 0")
        connection.execute("COMMIT")
    scene.wait_for_a_mark()
    assert len(scene.column("t")) == ROWS - ROWS // 3
    epochs = scene.mirror.status().status.epochs
    assert epochs is not None
    assert epochs.from_sorted_runs == 1
    _judge(scene)


def test_g4_a_transaction_that_dies_with_the_server_leaves_nothing(scene: Scene) -> None:
    with scene.opened(1) as connection:
        scene.wait_for_pieces()
        scene.server.crash()
        scene.server.start()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("COMMIT")
    scene.wait_for_a_mark()
    # The server infers the rollback when it next writes down which transactions run.
    scene.database.execute("CHECKPOINT")
    scene.mirror.until(lambda: scene.open_bytes() == 0, "end of the dead transaction")
    with scene.opened(ROWS + 1) as connection:
        scene.wait_for_pieces()
        connection.execute("COMMIT")
    scene.wait_for_a_mark()
    assert sorted(scene.column("t")) == list(range(ROWS + 1, 2 * ROWS + 1))
    _judge(scene)


def test_g4_a_full_disk_and_damage_under_an_open_transaction_cost_nothing(scene: Scene) -> None:
    spool = scene.mirror.lake_path / "_headrace/spool/main"
    with scene.opened(1) as connection:
        scene.wait_for_pieces()
        [path] = spool.glob("*-*.raw")
        path.unlink()
        path.symlink_to("/dev/full")  # answers every write with ENOSPC, as a full disk does
        connection.execute("UPDATE t SET n = n + 1 WHERE id % 2 = 0")
        scene.mirror.until(lambda: "SPOOL_FULL" in scene.mirror.log(), "word of the full disk")
        scene.wait_for_pieces()
        [path] = spool.glob("*-*.raw")
        assert not path.is_symlink()
        with path.open("r+b") as file:
            file.seek(-1000, 2)
            file.write(b"\xff" * 8)
        connection.execute("COMMIT")
    scene.mirror.until(lambda: "SPOOL_DAMAGED" in scene.mirror.log(), "word of the damage")
    scene.wait_for_a_mark()
    assert len(scene.column("t")) == ROWS
    _judge(scene)
