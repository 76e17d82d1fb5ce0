"""Unit tests start no Spark: one that is still starting meets the environment of the tests that follow."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

_SECONDS = 120.0  # a start that fails imports PySpark first


@pytest.fixture(autouse=True)
def no_spark_goes_on() -> Iterator[None]:
    """Fail the test that leaves a Spark starting, and not the one that waits for it later."""
    yield
    for thread in threading.enumerate():
        if thread.name == "headrace-spark":
            thread.join(_SECONDS)
            assert not thread.is_alive(), "it left a Spark that is starting"
