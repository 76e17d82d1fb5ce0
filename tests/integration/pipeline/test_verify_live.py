"""Verify beside a run that goes on: under pgbench's load, at rest, and from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.postgres import Database
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.typed import typed
from tests.integration.pipeline.verifying import outcomes, rewrite, setting, verified
from tests.nursery import Nursery
from tests.without_spark import jobs_in_process

pytestmark = pytest.mark.server

# Far less than the minute after which an idle source gets a mark by itself.
SOON = 30.0
ACCOUNTS = 10_000


@pytest.mark.timeout(600)
def test_verify_passes_under_load_and_names_the_row_of_a_changed_value(
    database: Database, tmp_path: Path, program: Program, nursery: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs_in_process(monkeypatch)
    lake = tmp_path / "lake"
    database.pgbench_tables(accounts=ACCOUNTS)
    names = [f"public.pgbench_{name}" for name in ("accounts", "branches", "history", "tellers")]
    mirrors = Mirrors(database, lake, None)
    with Mirrored(lake, database.url(user="app"), "public.*", program=program) as mirror:
        with database.pgbench(clients=4, rate=100, accounts=ACCOUNTS):
            mirror.until_live()
            for _ in range(2):
                assert outcomes(verified(mirrors)) == dict.fromkeys(names, "equal")
        # Nothing is committed any more: the run is asked for a mark.
        verdict = verified(mirrors, wait=SOON)
        assert outcomes(verdict) == dict.fromkeys(names, "equal")
        assert verdict.tables[0].rows == ACCOUNTS
        rewrite(lake, "pgbench_accounts", setting("abalance", 123_456_789, where=4711, key="aid"))
        password = str(conninfo_to_dict(database.url(user="app"))["password"])
        arguments = ["verify", "--lake", str(lake), "--json", "--repair", "--wait", str(SOON)]
        done = typed(program, nursery, *arguments, environment={"PGPASSWORD": password})
        assert done.returncode == 3, done.stderr
        tables = json.loads(done.stdout)["main"]["tables"]
        assert {name: each["outcome"] for name, each in tables.items()} == {
            name: "different" if name == names[0] else "equal" for name in names
        }
        [found] = tables[names[0]]["differences"]
        assert (found["kind"], found["key"], found["columns"]) == ("changed", {"aid": "4711"}, ["abalance"])
        assert "VERIFY_DIFFERENT" in done.stderr
        assert "123456789" not in done.stdout + done.stderr
        assert password not in done.stdout + done.stderr
        # The run was asked to copy the table anew, and puts what differs right.
        assert f"{names[0]}: is copied anew" in done.stderr
        mirror.until(lambda: outcomes(verified(mirrors)) == dict.fromkeys(names, "equal"), "repair", 120)
