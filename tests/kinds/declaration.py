"""A kind of source that has nothing but options. Known while a test puts it into the registry (`beside`)."""

from __future__ import annotations

import pytest

from headrace.sources import registry
from headrace.sources.contract.values import Declaration, Option

DECLARATION = Declaration(
    kind="tide",
    title="Tide",
    schemes=("tide",),
    password="BASIN_PASSWORD",
    options=(
        Option("basin", "where it is measured", in_sql=True),
        Option("moon", "which one", default="new", choices=("new", "full")),
    ),
)


def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the registry know the kind until the test ends."""
    monkeypatch.setitem(registry._FOLDERS, "tide", ("tests.kinds", ""))
