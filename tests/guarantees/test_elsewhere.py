"""G1 to G4 where nothing is shared: executors that are other processes, and a lake in a bucket.

Executors get the stream's bytes from the driver and write to the bucket with the options that they are
handed; the spool stays on the driver's disk. The bucket is on S3, in the full run on Google's and Azure's
stores too;
a short scene without Spark is on Google's in every run.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.core.names import TableName
from headrace.lake.read.lake import Lake
from headrace.pipeline.state.records import Way, tables_of
from headrace_testing import validators, workload
from headrace_testing.mirror_process import Mirrored
from headrace_testing.postgres import Database
from headrace_testing.wholeness import balances, transfers
from tests import jvms
from tests.guarantees.conftest import TABLES, Stormy, storm
from tests.lakes import IN_BUCKETS, Bucket, has_vectors
from tests.nursery import Nursery

pytestmark = [pytest.mark.spark, pytest.mark.server]

CLUSTER = {
    "master": "local-cluster[2,1,1024]",
    "conf": {"spark.executor.extraJavaOptions": jvms.SHORT_LIVED},
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("altered", [False, pytest.param(True, marks=pytest.mark.full)])
def test_g1_g2_executors_of_their_own_and_a_bucket_hold_whole_transactions_exactly(
    any_bucket: Bucket, database: Database, seed: int, altered: bool
) -> None:
    url = database.url(user="app")
    with ExitStack() as stack:
        writers = stack.enter_context(ExitStack())
        kind = workload.Transfers()
        writers.enter_context(workload.running(kind, url, seed=seed, writers=1, pause=0.02))
        # All epochs are jobs: none is so small that the driver does it.
        options = {"driver_epochs": 0, "merge": "vectors"}
        where = any_bucket.address
        mirror = stack.enter_context(Mirrored(where, url, "public.*", options=options, spark=CLUSTER))
        mirror.until_live()
        known = mirror.lake.marks()[-1].epoch
        mirror.until(
            lambda: sum(m.epoch > known and m.transactions > 0 for m in mirror.lake.marks()) > 1, "marks"
        )
        writers.close()
        mirror.until(lambda: validators.exact(mirror.lake, database.url()) == [], "lake that caught up")
        verdict = transfers(mirror.lake, sample=None)
        assert verdict.violations == []
        assert verdict.marks > 2
        assert has_vectors(mirror.lake)
        if altered:
            _alter(mirror, database)
        assert validators.definite(mirror.lake) == []


def _alter(mirror: Mirrored, database: Database) -> None:
    """Add a column that has the executors write all rows again."""
    database.execute("ALTER TABLE transfer_out ADD COLUMN said text DEFAULT 'nothing'", user="app")
    mirror.until(lambda: "said" in _columns(mirror.lake, "public.transfer_out"), "rows written again")
    assert validators.exact(mirror.lake, database.url()) == []
    alteration = tables_of(mirror.lake.catalog())[TableName("public", "transfer_out")].alteration
    assert alteration is not None
    assert alteration.way is Way.REWRITTEN


@pytest.mark.parametrize("any_bucket", IN_BUCKETS[1:], indirect=True)
def test_g1_g2_a_bucket_holds_whole_transactions_exactly_over_a_kill(
    any_bucket: Bucket, database: Database, nursery: Nursery, seed: int
) -> None:
    url = database.url(user="app")
    writers = workload.running(workload.Transfers(), url, seed=seed, writers=1, pause=0.02)
    with Mirrored(any_bucket.address, url, "public.*", program=nursery.run) as mirror:
        with writers:
            mirror.until_live()
            mirror.kill()
            mirror.start()
            known = mirror.lake.marks()[-1].epoch
            mirror.until(
                lambda: sum(m.epoch > known and m.transactions > 0 for m in mirror.lake.marks()) > 1, "marks"
            )
        mirror.until(lambda: validators.exact(mirror.lake, database.url()) == [], "lake that caught up")
        assert transfers(mirror.lake, sample=None).violations == []
        assert validators.definite(mirror.lake) == []
        assert any_bucket.secret not in mirror.log()


def _columns(lake: Lake, table: str) -> list[str]:
    """The columns that the newest mark has of a table; none where it has not the table."""
    cut = lake.at()
    return cut.schema(table).names if table in cut.tables() else []


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_g1_g2_g3_g4_g8_hold_after_every_fault_elsewhere_too(
    any_bucket: Bucket, tmp_path: Path, seed: int
) -> None:
    with storm(tmp_path, any_bucket.address, seed, CLUSTER) as after:
        _hold(after)
        events = [each.read_text() for each in after.events.rglob("*") if each.is_file()]
        assert events
        assert all(any_bucket.secret not in text for text in (after.output, *events))


def _hold(storm_elsewhere: Stormy) -> None:
    lake = storm_elsewhere.lake
    assert len(lake.marks()[-1].versions) == TABLES
    assert validators.exact(lake, storm_elsewhere.url) == []
    for verdict in (balances(lake, sample=None), transfers(lake, sample=None)):
        assert verdict.violations == []
        assert verdict.marks > 15
    assert validators.definite(lake) == []
    assert [mark.epoch for mark in lake.marks()] == list(range(1, len(lake.marks()) + 1))
