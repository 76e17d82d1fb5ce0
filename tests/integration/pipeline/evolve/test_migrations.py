"""Migrations as they are written, on tables that the application goes on writing, while the mirror runs.

writers     ════════════════════════════════════════════════════════════▶
migration        ▲ one transaction    ▲ ▲ ▲ several, at once     ▲
out, in     live ── copied ── live ───── copied ─── live ──── copied ─ live
sound       live ───────────────────────────────────────────────────────▶
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.testing import validators
from headrace.testing.wholeness import transfers
from headrace.testing.workload import Transfers, make_tables, running
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.serving import Served, serving

pytestmark = pytest.mark.server

TABLES = ("public.transfer_in", "public.transfer_out")
# Each a way of writing them: its transactions, then the columns that the two tables have after it.
ADDED_WITH_DEFAULT = (
    "ALTER TABLE transfer_in ADD COLUMN note varchar(20) DEFAULT 'none' NOT NULL;"
    " ALTER TABLE transfer_in ALTER COLUMN note DROP DEFAULT",
    # Here the application gives it; these writers don't know it, and could open no transfer any more.
    "ALTER TABLE transfer_in ALTER COLUMN note SET DEFAULT 'later'",
)
EXPANDED_AND_CONTRACTED = (
    "ALTER TABLE transfer_out ADD COLUMN amount_new numeric(20, 2)",
    "UPDATE transfer_out SET amount_new = amount WHERE transfer % 2 = 0",
    "UPDATE transfer_out SET amount_new = amount WHERE transfer % 2 = 1",
    "ALTER TABLE transfer_out RENAME COLUMN amount TO amount_old;"
    " ALTER TABLE transfer_out RENAME COLUMN amount_new TO remark",
    "ALTER TABLE transfer_out DROP COLUMN remark",
)
RETYPED = (
    "BEGIN; UPDATE transfer_in SET amount = amount; ALTER TABLE transfer_in ALTER amount TYPE numeric(12, 1);"
    " UPDATE transfer_in SET amount = amount + 0.5; COMMIT",
)


def _migrate(mirrors: Mirrors, served: Served, migration: Sequence[str], *columns: Sequence[str]) -> None:
    """Run it; then wait until both tables are in a mark again, under these last columns."""
    for statements in migration:
        mirrors.database.execute(statements, user="app")

    def back() -> bool:
        cut = mirrors.lake.at()
        if not set(TABLES) <= set(cut.tables()):
            return False
        return [cut.schema(name).names[4:] for name in TABLES] == list(map(list, columns))

    served.until(back, "both tables under their new columns")


def test_migrations_beside_writers_are_followed_and_every_mark_is_whole(mirrors: Mirrors, seed: int) -> None:
    url = mirrors.database.url(user="app")
    make_tables(url, Transfers())
    mirrors.database.execute("CREATE TABLE sound (id int PRIMARY KEY)", user="app")
    first = mirrors.once().marks()[-1]
    with running(Transfers(), url, seed=seed, pause=0.02, prepare=False) as work:
        with serving(mirrors) as served:
            _migrate(mirrors, served, ADDED_WITH_DEFAULT, ["amount", "note"], ["amount"])
            _migrate(mirrors, served, EXPANDED_AND_CONTRACTED, ["amount", "note"], ["amount_old"])
            _migrate(mirrors, served, RETYPED, ["amount", "note"], ["amount_old"])
            enough = work.committed + 80
            served.until(lambda: work.committed > enough, "writers under the last columns")
        assert not served.codes
    assert work.committed > 50
    lake = mirrors.once()
    assert validators.exact(lake, mirrors.database.url(), values=True) == []
    verdict = transfers(lake, sample=None)
    assert verdict.violations == []
    assert (verdict.marks > 5, verdict.times > 10) == (True, True)
    assert all("public.sound" in mark.versions for mark in lake.marks() if mark.epoch >= first.epoch)
