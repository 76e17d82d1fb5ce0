"""A lake that is made and asked by SQL alone, on one Spark for the folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import headrace
from headrace.pipeline.state.last_config import configuration_of
from headrace.spark.session import SparkConfig, open_session
from headrace.sql.session import At, SqlSession
from headrace_testing.postgres import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    with open_session(SparkConfig(master="local[2]")) as session:
        yield session.spark


@dataclass
class Asked:
    """A lake, its database, and statements."""

    path: Path
    database: Database
    spark: Any

    def session(self, at: At = None) -> SqlSession:
        return SqlSession(str(self.path), lambda: self.spark, at=at)

    def run(self, sql: str, *, at: At = None) -> list[dict[str, Any]]:
        """The rows of a statement; none of one that does something."""
        answer = self.session(at).run(sql)
        return [] if answer.rows is None else list(answer.rows.to_pylist())

    def create_source(self, name: str, publication: str) -> None:
        connection = f"CONNECTION '{self.connection}' PUBLICATION '{publication}'"
        self.run(f'CREATE SOURCE "{name}" FROM POSTGRES {connection}')

    @property
    def connection(self) -> str:
        said = {key: str(value) for key, value in conninfo_to_dict(self.database.url(user="app")).items()}
        said.pop("password", None)
        return make_conninfo(**said)

    def mirror(self) -> None:
        """Do what `headrace run --lake DIR --once` does."""
        headrace.mirror(configuration_of(str(self.path)), spark=self.spark, once=True)


@pytest.fixture
def asked(database: Database, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> Asked:
    password = conninfo_to_dict(database.url(user="app")).get("password")
    if password:
        monkeypatch.setenv("PGPASSWORD", str(password))
    return Asked(tmp_path / "lake", database, spark)
