"""A Spark as a user has it, which finds `format("headrace")` by itself; one for each module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.spark.session import SparkConfig, open_session
from tests.nursery import nursery

__all__ = ["nursery"]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A session on two cores."""
    conf = {"spark.sql.session.timeZone": "UTC", "spark.ui.enabled": "false"}
    with open_session(SparkConfig(master="local[2]", conf=conf)) as session:
        yield session.spark
