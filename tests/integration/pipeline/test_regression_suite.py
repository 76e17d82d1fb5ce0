"""PostgreSQL's own regression database, mirrored with one wildcard: tables that nobody would think up.

Few of its tables have an identity, so a wildcard takes those and leaves out the others; the statements of the
preflight make nearly all of them fit. Each holds what the source holds, before and after a load of changes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.sources.contract.findings import CheckReport
from headrace.sources.postgres.preflight import PostgresWish, examine, script
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.status.picture import pictures
from headrace_testing import regression, validators
from headrace_testing.postgres import Database, postgres
from tests.integration.pipeline.conftest import Mirrors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.server, pytest.mark.full, pytest.mark.timeout(7200)]

SEED = int(os.environ.get("HEADRACE_SEED", "1"))


@pytest.fixture
def suite() -> Iterator[Database]:
    with postgres("15") as server, server.database("regression") as database:
        regression.load(database)
        yield database


def _examined(database: Database) -> CheckReport:
    return examine(PostgresAddress.parse(database.url()), PostgresWish(("*.*",)))


def test_every_table_of_the_suite_that_can_be_mirrored_is_exact_before_and_after_changes(
    suite: Database, tmp_path: Path, engine: SparkSession | None
) -> None:
    first = _examined(suite)
    assert first.errors == ()
    assert len(first.tables) > 50
    assert Counter(error.code for error in first.left_out.values())["PG_IDENTITY_MISSING"] > 300
    for statement in script(first.findings):
        suite.execute(statement)
    mended = _examined(suite)
    assert {error.code for error in mended.left_out.values()} <= {"PG_NOT_STREAMED", "PG_COLUMNS_NONE"}
    names = sorted(str(table.name) for table in mended.tables)
    assert len(names) > 500

    url = suite.url()
    mirrors = Mirrors(suite, tmp_path / "lake", engine, {"url": url})
    mirrors.once("*.*")
    assert sorted(mirrors.lake.marks()[-1].versions) == names
    [source] = pictures(str(mirrors.path))
    assert {str(name): error.code for name, error in mended.left_out.items()} == source.unmirrored_tables
    assert validators.exact(mirrors.lake, url) == []

    changed = regression.change(suite, [table.name for table in mended.tables], seed=SEED)
    assert changed > 500, changed
    mirrors.once("*.*")
    assert sorted(mirrors.lake.marks()[-1].versions) == names
    assert validators.exact(mirrors.lake, url) == []
