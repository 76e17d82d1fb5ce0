"""Mirrors within this process, a lake for each test.

A mirror does the same whether its jobs run on Spark or as functions of this process, and a Spark takes
seconds. So mirrors are on Spark, one for all tests of the folder, only where the test is marked
`spark`: where another engine reads what was written, where rows are many. The storm that the guarantees are
judged on is mirrored by Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.lake.read.lake import Lake
from headrace.pipeline.state.records import TableRecord, tables_of
from headrace.spark.session import SparkConfig, open_session
from headrace_testing.postgres import Database
from tests import without_spark
from tests.nursery import nursery, program

__all__ = ["nursery", "program"]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    """A local Spark of two cores; it ends with the folder, since other folders start their own."""
    with open_session(SparkConfig(master="local[2]")) as session:
        yield session.spark


@dataclass
class Mirrors:
    """Runs `headrace.mirror(..., once=True)` from one database into one lake."""

    database: Database
    path: Path
    spark: SparkSession | None
    options: dict[str, Any] = field(default_factory=dict)

    def once(self, *tables: str, **options: Any) -> Lake:
        """Catch up with the source; the lake."""
        source = {"url": self.database.url(user="app"), "tables": list(tables or ("public.*",))}
        config = {"lake": {"path": str(self.path)}, "source": {"main": source | self.options | options}}
        headrace.mirror(config, spark=self.spark, once=True)
        return self.lake

    @property
    def lake(self) -> Lake:
        return Lake(self.path)

    def record(self, table: str) -> TableRecord:
        """Read the catalog's record of a table."""
        [found] = [r for name, r in tables_of(self.lake.catalog()).items() if str(name) == table]
        return found


@pytest.fixture
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SparkSession | None:
    """Choose what jobs run on: Spark if the test is marked so, otherwise this process."""
    if request.node.get_closest_marker("spark"):
        session: SparkSession = request.getfixturevalue("spark")
        return session
    without_spark.jobs_in_process(monkeypatch)
    return None


@pytest.fixture
def mirrors(database: Database, tmp_path: Path, engine: SparkSession | None) -> Mirrors:
    """The database's mirror, into a fresh lake."""
    return Mirrors(database, tmp_path / "lake", engine)
