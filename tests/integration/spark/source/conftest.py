"""A Spark as a user has it, which finds `format("headrace")` by itself; one for each module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.spark.session import SparkConfig, open_session
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
