"""Clocks of tests: what waits for minutes is tried in no time, and a bound is tried on a busy machine.

Clock     goes like the real one, and a test puts it forward
Slept     goes by what is slept and by nothing else, however long this machine takes for the rest
"""

from __future__ import annotations

import time
from collections.abc import Callable
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


class Slept:
    """A clock for a module that sleeps: after each sleep it calls `then` with the seconds slept so far."""

    def __init__(self, then: Callable[[float], object] = lambda _: None) -> None:
        self.slept = 0.0
        self._then = then

    def monotonic(self) -> float:
        return self.slept

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
        self.slept += seconds
        self._then(self.slept)
