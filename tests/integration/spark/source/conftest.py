"""A Spark as a user has it, which finds `format("headrace")` by itself; one for each module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.spark.session import SparkConfig, open_session
from headrace_testing.postgres import Database
from tests.integration.spark.source.direct import Query
from tests.nursery import nursery

__all__ = ["nursery"]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session on two cores, with an event log in which no test may find a secret."""
    events = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": str(tmp_path_factory.mktemp("events")),
    }
    conf = {"spark.sql.session.timeZone": "UTC", "spark.ui.enabled": "false", **events}
    with open_session(SparkConfig(master="local[2]", conf=conf)) as session:
        yield session.spark


@pytest.fixture
def orders(database: Database) -> Database:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
    database.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    database.execute("INSERT INTO orders SELECT g, 'n' || g FROM generate_series(1, 10) g")
    return database


@pytest.fixture
def queries() -> Iterator[Callable[..., Query]]:
    """Makes queries, whose receivers end with the test."""
    made: list[Query] = []

    def query(*args: Any) -> Query:
        made.append(Query(*args))
        return made[-1]

    yield query
    for each in made:
        each.close()
