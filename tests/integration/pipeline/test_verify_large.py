"""One changed byte in ten million rows is found and named, for one scan of the source."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from headrace.pipeline.verify.verdicts import Verdict
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.verifying import first_file, named, outcomes, rewrite, setting, verified

pytestmark = [pytest.mark.spark, pytest.mark.server]

# Blocks of the table that may be read beside those of one scan, as a share of it: narrowing's look-ups.
BESIDE = 0.1


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rows", [10_000_000])
def test_one_changed_byte_is_named_for_one_scan_of_the_source(
    mirrors: Mirrors, database: Database, rows: int
) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, n int, name text) WITH (autovacuum_enabled = off)", user="app"
    )
    database.execute("INSERT INTO t SELECT i, i %% 1000, 'name ' || i FROM generate_series(1, %s) i", [rows])
    database.execute("VACUUM ANALYZE t")
    mirrors.once()
    [(pages,)] = database.execute("SELECT pg_relation_size('t') / 8192")
    assert outcomes(_scanned(mirrors, pages)) == {"public.t": "equal"}
    one = pq.read_table(first_file(mirrors.path, "tables/main/public/t"), columns=["id"])["id"][0].as_py()
    rewrite(mirrors.path, "t", setting("name", f"nane {one}", where=one))
    [table] = _scanned(mirrors, pages).tables
    assert (table.rows, table.lake_rows) == (rows, rows)
    assert named(table.differences) == {("changed", str(one), ("name",), 1)}


def _scanned(mirrors: Mirrors, pages: int) -> Verdict:
    """Verify, and check that it scans the table once and reads little besides."""
    before = _blocks(mirrors.database)
    verdict = verified(mirrors)
    # What a session has read is told when it ends.
    wait_for(lambda: _blocks(mirrors.database) - before >= pages, "statistics of the scan")
    assert _blocks(mirrors.database) - before <= pages * (1 + BESIDE)
    return verdict


def _blocks(database: Database) -> int:
    """Blocks of the table's heap that were read so far."""
    [(blocks,)] = database.execute(
        "SELECT heap_blks_read + heap_blks_hit FROM pg_statio_all_tables WHERE relname = 't'"
    )
    return int(blocks)
