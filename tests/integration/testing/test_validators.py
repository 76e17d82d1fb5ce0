"""The validators on a real lake and a real server under load, and lies planted into that lake."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from headrace_testing.canonical import Rows
from headrace_testing.pgbench import TABLES
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from headrace_testing.validators import Recording, definite, exact, exact_at, record, whole
from headrace_testing.workload import Transfers, running
from tests.integration.testing.handmade import Handmade

pytestmark = pytest.mark.server

NAMES = ("public.transfer_out", "public.transfer_in")


@pytest.fixture
def mirror(database: Database, tmp_path: Path, seed: int) -> tuple[Handmade, list[Recording]]:
    """A lake with eight marks of a source that was written all the while, and caught up at the end."""
    made = Handmade(tmp_path / "lake")
    recordings: list[Recording] = []
    with running(Transfers(), database.url(user="app"), seed=seed, writers=2) as work:
        for _ in range(7):
            before = work.committed
            recordings.append(record(database.url(), NAMES))
            wait_for(lambda before=before: work.committed > before + 5, "more is written")  # type: ignore[misc]
    recordings.append(record(database.url(), NAMES))
    for recording in recordings:
        made.publish(recording)
    return made, recordings


def without_one(recording: Recording, name: str) -> Recording:
    rows = recording.rows[name]
    return replace(recording, rows={**recording.rows, name: Rows(rows.names, rows.frame.head(-1))})


def test_a_true_lake_has_no_violations(database: Database, mirror: tuple[Handmade, list[Recording]]) -> None:
    made, recordings = mirror
    assert recordings[3].rows[NAMES[0]].frame.height > 0
    assert exact(made.lake, database.url()) == []
    assert exact_at(made.lake, recordings) == []
    assert definite(made.lake, every=True) == []
    assert whole(made.lake, every=True) == []


def test_a_row_that_the_source_has_and_the_lake_has_not_is_named_by_its_key(
    database: Database, mirror: tuple[Handmade, list[Recording]]
) -> None:
    made, _ = mirror
    database.execute("INSERT INTO transfer_in VALUES (4711, 0, 1, 0, 5)")
    (violation,) = exact(made.lake, database.url())
    assert (violation.guarantee, violation.table) == ("G1", NAMES[1])
    assert violation.what == "0 rows too many, 1 too few: -1 x transfer=4711, part=0"
    assert violation.epoch == made.lake.marks()[-1].epoch


def test_a_table_that_left_the_marks_is_a_violation(
    database: Database, mirror: tuple[Handmade, list[Recording]]
) -> None:
    made, _ = mirror
    (violation,) = exact(made.lake, database.url(), ["public.elsewhere"])
    assert "the newest mark does not have it" in violation.what


def test_a_past_state_that_the_lake_does_not_show_is_found(mirror: tuple[Handmade, list[Recording]]) -> None:
    made, recordings = mirror
    wrong = without_one(recordings[5], NAMES[0])
    (violation,) = exact_at(made.lake, [*recordings[:5], wrong, *recordings[6:]])
    assert violation.time == wrong.position.last
    assert violation.what == "1 rows too many, 0 too few"


def test_a_position_that_no_mark_has_reached_is_found(
    database: Database, mirror: tuple[Handmade, list[Recording]]
) -> None:
    made, _ = mirror
    database.execute("INSERT INTO transfer_in VALUES (4711, 0, 1, 0, 5)")
    (violation,) = exact_at(made.lake, [record(database.url(), NAMES[:1])])
    assert "no mark has reached" in violation.what


def test_a_mark_that_lacks_a_row_breaks_both_wholeness_and_definiteness(
    tmp_path: Path, mirror: tuple[Handmade, list[Recording]]
) -> None:
    _, recordings = mirror
    torn = Handmade(tmp_path / "torn")
    for recording in [*recordings[:-1], without_one(recordings[-1], NAMES[1])]:
        torn.publish(recording)
    assert {violation.epoch for violation in whole(torn.lake)} >= {len(recordings) + 1}
    # History was made from the same lie, so the lake agrees with itself; only the source can tell.
    assert definite(torn.lake, every=True) == []
    assert [violation.table for violation in exact_at(torn.lake, recordings)] == [NAMES[1]]


def test_a_recording_under_load_is_a_state_that_the_source_had(database: Database) -> None:
    database.pgbench_tables()
    names = [f"public.{table}" for table in TABLES]
    with database.pgbench(clients=4):
        for _ in range(5):
            rows = record(database.url(), names).rows
            sums = {
                rows[name]
                .frame.select(
                    (pl.col(f"c{rows[name].names.index(column)}").cast(pl.Int64) * pl.col("n")).sum()
                )
                .item()
                for name, column in zip(names, ("abalance", "tbalance", "bbalance", "delta"), strict=True)
            }
            assert len(sums) == 1


def inserted_below(database: Database, position: int) -> int:
    """Count the rows that transactions with a lower commit LSN have inserted, by the stream's own word."""
    messages = database.execute(
        "SELECT data FROM pg_logical_slot_peek_binary_changes('witness', NULL, NULL,"
        " 'proto_version', '1', 'publication_names', 'p')"
    )
    count, below = 0, False
    for (data,) in messages:
        if data[:1] == b"B":
            below = int.from_bytes(data[1:9]) < position
        count += data[:1] == b"I" and below
    return count


def test_a_recording_holds_exactly_the_commits_below_its_position(database: Database) -> None:
    database.pgbench_tables()
    database.execute("CREATE PUBLICATION p FOR TABLE pgbench_history")
    database.execute("SELECT pg_create_logical_replication_slot('witness', 'pgoutput')")
    with database.pgbench(clients=4):
        recordings = [record(database.url(), ["public.pgbench_history"]) for _ in range(8)]
    for recording in recordings:
        rows = recording.rows["public.pgbench_history"].frame
        assert rows["n"].sum() == inserted_below(database, recording.position.time)
    assert recordings[-1].rows["public.pgbench_history"].frame.height > 0
