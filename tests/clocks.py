"""A clock that a test puts forward: what waits for minutes by it is tried in no time."""

from __future__ import annotations

import time
from types import ModuleType

import pytest


class Clock:
    """In the place of a module's `time`, of which it is all that there is."""

    def __init__(self) -> None:
        self.ahead = 0.0  # seconds

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


def clock_of(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that this module goes by from now on."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock
