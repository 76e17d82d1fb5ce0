"""Migrations as they are written, on tables that the application goes on writing, while the mirror runs.

writers     ═══════════════ transfers, and pgbench ═════════════════════▶
migration        ▲ one transaction    ▲ ▲ ▲ several, at once     ▲
out, in     live ── copied ── live ───── copied ─── live ──── copied ─ live
sound       live ───────────────────────────────────────────────────────▶
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from headrace_testing import validators
from headrace_testing.wholeness import balances, transfers
from headrace_testing.workload import Transfers, make_tables, running
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.serving import Served, serving

pytestmark = pytest.mark.server

ACCOUNTS = 50
FIRST = {
    "transfer_in": "transfer part parts revision amount",
    "transfer_out": "transfer part parts revision amount",
    "pgbench_accounts": "aid bid abalance filler",
    "pgbench_tellers": "tid bid tbalance filler",
    "pgbench_branches": "bid bbalance filler",
    "pgbench_history": "tid bid aid delta mtime filler",
}
# Each a way of writing them: its transactions, then the tables whose columns are others after it.
ADDED_WITH_DEFAULT = (
    "ALTER TABLE transfer_in ADD COLUMN note varchar(20) DEFAULT 'none' NOT NULL;"
    " ALTER TABLE transfer_in ALTER COLUMN note DROP DEFAULT",
    # Here the application gives it; these writers don't know it, and could open no transfer any more.
    "ALTER TABLE transfer_in ALTER COLUMN note SET DEFAULT 'later'",
    "ALTER TABLE pgbench_accounts ADD COLUMN note varchar(20) DEFAULT 'none' NOT NULL;"
    " ALTER TABLE pgbench_accounts ALTER COLUMN note DROP DEFAULT",
)
NOTED = FIRST | {
    "transfer_in": "transfer part parts revision amount note",
    "pgbench_accounts": "aid bid abalance filler note",
}
EXPANDED_AND_CONTRACTED = (
    "ALTER TABLE transfer_out ADD COLUMN amount_new numeric(20, 2)",
    "UPDATE transfer_out SET amount_new = amount WHERE transfer % 2 = 0",
    "UPDATE transfer_out SET amount_new = amount WHERE transfer % 2 = 1",
    "ALTER TABLE transfer_out RENAME COLUMN amount TO amount_old;"
    " ALTER TABLE transfer_out RENAME COLUMN amount_new TO remark",
    "ALTER TABLE transfer_out DROP COLUMN remark",
    "ALTER TABLE pgbench_tellers ADD COLUMN label text",
    "UPDATE pgbench_tellers SET label = 'teller ' || tid WHERE tid % 2 = 0",
    "UPDATE pgbench_tellers SET label = 'teller ' || tid WHERE tid % 2 = 1",
    "ALTER TABLE pgbench_tellers DROP COLUMN filler",
)
CONTRACTED = NOTED | {
    "transfer_out": "transfer part parts revision amount_old",
    "pgbench_tellers": "tid bid tbalance label",
}
RETYPED = (
    "BEGIN; UPDATE transfer_in SET amount = amount; ALTER TABLE transfer_in ALTER amount TYPE numeric(12, 1);"
    " UPDATE transfer_in SET amount = amount + 0.5; COMMIT",
    "BEGIN; UPDATE pgbench_history SET filler = 'short'; ALTER TABLE pgbench_history ALTER delta TYPE bigint;"
    " UPDATE pgbench_history SET filler = 'long'; COMMIT",
)


def _migrate(mirrors: Mirrors, served: Served, migration: Sequence[str], columns: Mapping[str, str]) -> None:
    """Run it; then wait until all tables are in a mark again, under these last columns."""
    for statements in migration:
        mirrors.database.execute(statements, user="app")
    wanted = {f"public.{name}": names.split() for name, names in columns.items()}

    def back() -> bool:
        cut = mirrors.lake.at()
        if not set(wanted) <= set(cut.tables()):
            return False
        return {name: cut.schema(name).names for name in wanted} == wanted

    served.until(back, "all tables under their new columns")


def test_migrations_beside_writers_are_followed_and_every_mark_is_whole(mirrors: Mirrors, seed: int) -> None:
    url = mirrors.database.url(user="app")
    make_tables(url, Transfers())
    mirrors.database.pgbench_tables(accounts=ACCOUNTS)
    mirrors.database.execute("CREATE TABLE sound (id int PRIMARY KEY)", user="app")
    first = mirrors.once().marks()[-1]
    with (
        running(Transfers(), url, seed=seed, pause=0.02, prepare=False) as work,
        mirrors.database.pgbench(clients=2, rate=40, accounts=ACCOUNTS),
    ):
        with serving(mirrors) as served:
            _migrate(mirrors, served, ADDED_WITH_DEFAULT, NOTED)
            _migrate(mirrors, served, EXPANDED_AND_CONTRACTED, CONTRACTED)
            _migrate(mirrors, served, RETYPED, CONTRACTED)
            enough = work.committed + 40
            served.until(lambda: work.committed > enough, "writers under the last columns")
        assert not served.codes
    assert work.committed > 50
    lake = mirrors.once()
    assert validators.exact(lake, mirrors.database.url(), values=True) == []
    for verdict in (transfers(lake, sample=None), balances(lake, sample=None)):
        assert verdict.violations == []
        assert (verdict.marks > 5, verdict.times > 10) == (True, True)
    assert all("public.sound" in mark.versions for mark in lake.marks() if mark.epoch >= first.epoch)
