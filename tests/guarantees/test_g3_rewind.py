"""G3, and G1 before the first mark: the rewind.

Tables whose changes carry whole before-images are exact from the start of the stream on, whatever moment they
were copied at: the first mark minus history equals what the source held when the slot was made, and at each
time in between. The run is held up by fail points so that writers surely run between the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.pipeline.state.records import tables_of
from headrace.pipeline.state.table_state import State
from headrace_testing import validators, workload
from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.guarantees.conftest import OTHERS_IN_FULL, copied_by, first


@contextmanager
def _held_up(mirror: Mirrored, where: str, release: Path) -> Iterator[None]:
    """The mirror stands at a fail point while the block runs."""
    point = {"HEADRACE_FAILPOINT": f"{where}=pause", "HEADRACE_FAILPOINT_RELEASE": str(release)}
    mirror.start(environment=point)
    mirror.until(lambda: "fail point" in mirror.log(), f"stop at {where}")
    yield
    release.touch()


def _write(kind: workload.Workload, url: str, seed: int) -> None:
    """Fifteen transactions of each of two writers."""
    with workload.running(kind, url, seed=seed, times=15, prepare=False) as work:
        wait_for(lambda: work.finished, "the writers", deadline=60)


# Under "slot" the storm's tables are rewound.
@pytest.mark.parametrize("handoff", first("chunks"))
def test_g3_rewound_tables_are_exact_from_the_start_of_the_stream_on(
    database: Database, tmp_path: Path, seed: int, handoff: str, program: Program
) -> None:
    names = ["public.keyed", "public.bag"]
    url = database.url(user="app")
    workload.make_tables(url, workload.Keyed("keyed", "full"), workload.Bag())
    database.execute("INSERT INTO bag SELECT i % 7, 'first' FROM generate_series(1, 50) i", user="app")
    recordings = [validators.record(database.url(), names)]  # nobody writes: this is what the slot finds
    mirror = Mirrored(tmp_path / "lake", url, "public.*", options=copied_by(handoff), program=program)
    try:
        with _held_up(mirror, "copy.snapshot.before", tmp_path / "release"):
            for number in range(4):
                for kind in (workload.Keyed("keyed", "full"), workload.Bag()):
                    _write(kind, url, seed + number)
                recordings.append(validators.record(database.url(), names))
        mirror.until_live()
        assert mirror.stop() == 0, mirror.log()
        assert mirror.once() == 0, mirror.log()
        records = {str(name): record for name, record in tables_of(mirror.lake.catalog()).items()}
        first = mirror.lake.marks()[0]
        assert all(records[name].join == "rewind" for name in names)
        assert all(records[name].held_transactions >= 50 for name in names), records
        start = next(mark for mark in mirror.lake.marks() if mark.kind == "open")
        recordings[0] = validators.Recording(start.position, recordings[0].rows)
        assert validators.exact_at(mirror.lake, recordings, values=True) == []
        assert validators.exact(mirror.lake, database.url()) == []
        assert validators.definite(mirror.lake) == []
        assert first.versions == {}
    finally:
        mirror.close()


@pytest.mark.parametrize("handoff", OTHERS_IN_FULL)
def test_g3_a_transaction_open_while_its_table_is_published_loses_nothing(
    database: Database, tmp_path: Path, handoff: str, program: Program
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, s text)", user="app")
    mirror = Mirrored(
        tmp_path / "lake",
        database.url(user="app"),
        "public.*",
        options=copied_by(handoff),
        program=program,
    )
    try:
        with database.connect(user="app") as writer:
            writer.execute("BEGIN")
            writer.execute("INSERT INTO t VALUES (1, 'before the table was published')")
            mirror.start("--once")
            mirror.until(lambda: _published(database), "publication")
            writer.execute("INSERT INTO t VALUES (2, 'after')")
            writer.execute("COMMIT")
        assert mirror.wait() == 0, mirror.log()
        assert validators.exact(mirror.lake, database.url()) == []
        assert mirror.lake.at().arrow("public.t").num_rows == 2
    finally:
        mirror.close()


def _published(database: Database) -> bool:
    return bool(database.execute("SELECT 1 FROM pg_publication_tables"))


@pytest.mark.parametrize("handoff", OTHERS_IN_FULL)
def test_g3_of_two_tables_one_copied_before_a_crash_both_are_exact_at_every_time(
    database: Database, tmp_path: Path, handoff: str, program: Program
) -> None:
    names = ["public.one", "public.two"]
    for name in ("one", "two"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, s text)", user="app")
        database.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL", user="app")
        database.execute(f"INSERT INTO {name} SELECT i, 'first' FROM generate_series(1, 10) i", user="app")
    mirror = Mirrored(
        tmp_path / "lake",
        database.url(user="app"),
        "public.*",
        options=copied_by(handoff),
        program=program,
    )
    try:
        recordings = [validators.record(database.url(), names)]
        piece = "chunk" if handoff == "chunks" else "range"
        with _held_up(mirror, f"copy.{piece}.before@public.two", tmp_path / "release"):
            mirror.until(lambda: _state(mirror, "public.one") is State.LIVE, "first table")
            assert _state(mirror, "public.two") is State.PENDING
            mirror.kill()
        for step in range(3):
            for name in ("one", "two"):
                database.execute(f"INSERT INTO {name} VALUES ({11 + step}, 'while down')", user="app")
                database.execute(f"UPDATE {name} SET s = s || '!' WHERE id % 3 = {step}", user="app")
            recordings.append(validators.record(database.url(), names))
        assert mirror.once() == 0, mirror.log()
        assert mirror.lake.at().arrow("public.two").num_rows == 13
        assert validators.exact(mirror.lake, database.url()) == []
        assert validators.exact_at(mirror.lake, recordings, values=True) == []
        assert validators.definite(mirror.lake) == []
    finally:
        mirror.close()


def _state(mirror: Mirrored, table: str) -> State | None:
    records = {str(name): record for name, record in tables_of(mirror.lake.catalog()).items()}
    return records[table].state if table in records else None
