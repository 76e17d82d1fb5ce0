"""G5 and G6 while others hold locks: on tables, a partition, the publication and a type, at every level.

    held        l1 ... l8 at one level each, a partition, our publication, an enum, for as long as the scene
    lasts asked for   a new copy of each held table (`tables resync`): it needs what they hold free        a
    table that is written all the time: each row is in a mark soon

No stream is interrupted for it (the receiver's session is the same in the end), no session of ours piles up.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest

from headrace_testing import validators
from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.postgres import Database

LEVELS = (
    "ACCESS SHARE",
    "ROW SHARE",
    "ROW EXCLUSIVE",
    "SHARE UPDATE EXCLUSIVE",
    "SHARE",
    "SHARE ROW EXCLUSIVE",
    "EXCLUSIVE",
    "ACCESS EXCLUSIVE",
)
PATTERNS = ("public.*", "!public.part")  # partitions one by one
CONNECTIONS = 2
# Beside those that copy: the loop, the receiver, a leader and who observes it, one that looks, one that
# commands.
OTHERS = 6
SOON = 30.0  # seconds until a row is in a mark, on a machine that is busy with other tests


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seconds", [8.0, pytest.param(120.0, marks=pytest.mark.full)])
def test_g5_who_holds_locks_keeps_neither_other_tables_nor_connections(
    database: Database, tmp_path: Path, seconds: float, program: Program
) -> None:
    _tables(database)
    options = {"handoff": "xid", "snapshot_connections": CONNECTIONS}
    url = database.url(user="app")
    with Mirrored(tmp_path / "lake", url, *PATTERNS, options=options, program=program) as mirror:
        mirror.until_live()
        receiver = _receiver(database)
        with _held(database) as holders:
            _resync(mirror, database, "moody", *(f"l{number}" for number in range(1, 9)))
            _resync(mirror, database, "part_1")
            most = _write_on(mirror, database, seconds)
            mirror.until(lambda: "PG_TABLE_LOCKED" in mirror.status().warnings, "the holder's name")
            said = mirror.status().warnings["PG_TABLE_LOCKED"]
            # Two are held so that nobody may read them; it names those that were tried by then.
            named = [name for name in ("l8", "part_1") if f"public.{name} " in said]
            assert named, said
            for name in named:
                assert f"pid {holders[name].info.backend_pid}" in said
            assert _receiver(database) == receiver, "the stream was interrupted"
        assert most <= CONNECTIONS + OTHERS
        mirror.until_live()
        mirror.until(lambda: not _copies(mirror), "the new copies")
        assert mirror.stop() == 0, mirror.log()
        assert mirror.once() == 0, mirror.log()
        assert validators.exact(mirror.lake, database.url()) == []


def _tables(database: Database) -> None:
    database.execute("CREATE TYPE mood AS ENUM ('good', 'bad')", user="app")
    names = ["free", *(f"l{number}" for number in range(1, 9))]
    for name in names:
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)", user="app")
        database.execute(f"INSERT INTO {name} SELECT i, i FROM generate_series(1, 100) i", user="app")
    database.execute("CREATE TABLE moody (id int PRIMARY KEY, m mood)", user="app")
    database.execute("INSERT INTO moody VALUES (1, 'good')", user="app")
    database.execute("CREATE TABLE part (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)", user="app")
    for number, bounds in ((1, "FROM (100) TO (200)"), (2, "FROM (200) TO (300)")):
        database.execute(f"CREATE TABLE part_{number} PARTITION OF part FOR VALUES {bounds}", user="app")
    database.execute("INSERT INTO part SELECT i, i FROM generate_series(100, 299) i", user="app")


@contextmanager
def _held(database: Database) -> Iterator[dict[str, psycopg.Connection]]:
    """All of it held, each by a transaction of its own, which rolls back in the end."""
    [(publication,)] = database.execute("SELECT pubname FROM pg_publication")
    held = {f"l{number}": f"LOCK TABLE l{number} IN {level} MODE" for number, level in enumerate(LEVELS, 1)}
    held["part_1"] = "TRUNCATE part_1"
    held["publication"] = f"ALTER PUBLICATION {publication} DROP TABLE ONLY l1"
    held["type"] = "ALTER TYPE mood RENAME VALUE 'bad' TO 'worse'"
    with ExitStack() as stack:
        holders = {}
        for name, statement in held.items():
            holders[name] = stack.enter_context(database.connect(user="app"))
            stack.callback(holders[name].rollback)
            holders[name].autocommit = False
            holders[name].execute(statement.encode())
        yield holders


def _resync(mirror: Mirrored, database: Database, *names: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "headrace.cli.main",
            "tables",
            "resync",
            *names,
            "--lake",
            str(mirror.lake_path),
        ],
        env={"PATH": "/usr/bin:/bin", "PGPASSWORD": database.server.password},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _copies(mirror: Mirrored) -> set[str]:
    return {key for key in mirror.lake.catalog() if key.startswith("staged/")}


def _write_on(mirror: Mirrored, database: Database, seconds: float) -> int:
    """Rows that are in a mark soon, one after another; the most sessions of ours that there ever were."""
    most, number, end = 0, 1000, time.monotonic() + seconds
    while time.monotonic() < end:
        number += 1
        database.execute("INSERT INTO free VALUES (%s, 0)", [number], user="app")
        mirror.until(partial(_in_the_marks, mirror, number), f"a mark with row {number}", SOON)
        most = max(most, *database.execute(_OURS)[0])
    return most


_OURS = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'headrace %'"
    " AND datname = current_database()"
)


def _in_the_marks(mirror: Mirrored, number: int) -> bool:
    rows = mirror.lake.at().arrow("public.free").column("id")
    return number in rows.to_pylist()


def _receiver(database: Database) -> int:
    [(pid,)] = database.execute(
        "SELECT active_pid FROM pg_replication_slots WHERE database = current_database() AND NOT temporary"
    )
    return int(pid)
