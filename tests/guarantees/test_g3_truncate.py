"""G1, G3 and G4 where a table is truncated while it is copied, or a crash stands beside a TRUNCATE.

TRUNCATE is not bound by snapshots: a reader with an older one finds the table empty. So there are four
cases, and each ends in the same contents: the copy holds it; it comes after the snapshot and before the rows
are read; it comes while they are read, between two ranges; it comes after the copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.pipeline.state.records import TableRecord, tables_of
from headrace_testing import validators
from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.postgres import Database
from tests.guarantees.conftest import first

KINDS = ("keyed", "whole", "bag")
NAMES = tuple(f"public.{kind}" for kind in KINDS)
TABLES = """
CREATE TABLE keyed (id int PRIMARY KEY, n int, s text);
CREATE TABLE whole (id int PRIMARY KEY, n int, s text);
CREATE TABLE bag (id int, n int, s text);
ALTER TABLE whole REPLICA IDENTITY FULL;
ALTER TABLE bag REPLICA IDENTITY FULL;
"""


@pytest.fixture
def filled(database: Database) -> Database:
    database.execute(TABLES, user="app")
    for kind in KINDS:
        database.execute(f"INSERT INTO {kind} SELECT i, 0, 'first' FROM generate_series(1, 50) i", user="app")
    return database


@pytest.fixture
def mirror(filled: Database, tmp_path: Path, handoff: str, program: Program) -> Iterator[Mirrored]:
    url = filled.url(user="app")
    with_xid = {"handoff": handoff}
    mirror = Mirrored(tmp_path / "lake", url, "public.*", options=with_xid, program=program)
    try:
        yield mirror
    finally:
        mirror.close()


def _reload(database: Database, value: str) -> None:
    """Changes, a TRUNCATE and new rows, all in one transaction; then changes of those."""
    with database.connect(user="app") as connection, connection.transaction():
        for kind in KINDS:
            connection.execute(f"INSERT INTO {kind} VALUES (1000, 0, 'never seen')".encode())
            connection.execute(f"TRUNCATE {kind}".encode())
            rows = f"INSERT INTO {kind} SELECT i, 0, '{value}' FROM generate_series(10, 30) i"
            connection.execute(rows.encode())
    database.execute("; ".join(f"UPDATE {kind} SET n = n + 1 WHERE id = 11" for kind in KINDS), user="app")


def _caught_up(mirror: Mirrored, database: Database) -> None:
    mirror.until_live()
    assert mirror.stop() == 0, mirror.log()
    _exact(mirror, database)


def _exact(mirror: Mirrored, database: Database) -> None:
    assert mirror.once() == 0, mirror.log()
    assert validators.exact(mirror.lake, database.url(), values=True) == []
    assert validators.definite(mirror.lake) == []


def _record(mirror: Mirrored, table: str) -> TableRecord:
    return {str(name): record for name, record in tables_of(mirror.lake.catalog()).items()}[table]


@pytest.mark.parametrize("handoff", first("xid"))
def test_g3_a_truncate_that_the_copy_holds_begins_the_history(mirror: Mirrored, filled: Database) -> None:
    with mirror.held_up("copy.snapshot.before"):
        filled.execute("; ".join(f"DELETE FROM {kind} WHERE id = 1" for kind in KINDS), user="app")
        _reload(filled, "second")
        recorded = validators.record(filled.url(), NAMES[1:])
        filled.execute("; ".join(f"DELETE FROM {kind} WHERE id > 20" for kind in KINDS), user="app")
    _caught_up(mirror, filled)
    for name in NAMES[1:]:
        since = _record(mirror, name).since
        assert since is not None
        assert min(mirror.lake.history(name)["_time"].to_pylist()) >= since
        assert _record(mirror, name).held_transactions >= 3
    assert validators.exact_at(mirror.lake, [recorded], values=True) == []


# Chunks have no snapshot in common: tests/integration/pipeline/test_chunks.py truncates between them.
@pytest.mark.parametrize("handoff", first("slot", among=("slot", "xid")))
@pytest.mark.parametrize(
    "kind", ["keyed", *(pytest.param(kind, marks=pytest.mark.full) for kind in KINDS[1:])]
)
def test_g1_a_table_truncated_between_its_snapshot_and_its_copy_is_copied_again(
    mirror: Mirrored, filled: Database, kind: str
) -> None:
    with mirror.held_up(f"copy.range.before@public.{kind}"):
        others = set(NAMES) - {f"public.{kind}"}
        mirror.until(lambda: others <= set(mirror.lake.at().mark.versions), "mark with the others")
        recorded = validators.record(filled.url(), others - {"public.keyed"})
        _reload(filled, "second")
    _caught_up(mirror, filled)
    assert validators.exact_at(mirror.lake, [recorded], values=True) == []


_STEPS = [
    "lake.table.after@public.whole",
    *(pytest.param(f"lake.{step}", marks=pytest.mark.full) for step in ("plan.before", "plan.after")),
    *(pytest.param(f"lake.{step}", marks=pytest.mark.full) for step in ("mark.before", "mark.after")),
]


@pytest.mark.parametrize("handoff", ["slot"])
@pytest.mark.parametrize("step", _STEPS)
def test_g4_a_kill_beside_a_truncate_costs_nothing(mirror: Mirrored, filled: Database, step: str) -> None:
    assert mirror.once() == 0, mirror.log()
    _reload(filled, "second")
    mirror.start("--once", environment={"HEADRACE_FAILPOINT": f"{step}=kill"})
    assert mirror.wait() == -9, mirror.log()
    filled.execute(f"TRUNCATE {', '.join(KINDS)}", user="app")
    _reload(filled, "third")
    filled.server.crash()
    filled.server.start()
    _exact(mirror, filled)
