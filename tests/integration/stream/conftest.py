"""Receivers that are ready at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import receivers


@pytest.fixture(scope="package", autouse=True)
def quick_receivers() -> Iterator[None]:
    with receivers.forked():
        yield
