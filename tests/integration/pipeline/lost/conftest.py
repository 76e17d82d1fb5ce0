"""A server whose place in its log can be lost, and a mirror of it with a history; see `losing`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace_testing.postgres import Database, Server, postgres
from tests.integration.pipeline.lost.losing import SETTINGS, Source, filled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres(settings=SETTINGS) as made:
        yield made


@pytest.fixture
def database(server: Server) -> Iterator[Database]:
    yield from filled(server)


@pytest.fixture
def source(tmp_path: Path, engine: SparkSession | None, database: Database) -> Source:
    made = Source(tmp_path / "lake", engine, database)
    made.begin()
    return made
