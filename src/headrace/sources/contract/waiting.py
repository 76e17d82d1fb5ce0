"""Waiting for others: who may end it, and who hears what is waited for. A value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.core.errors import Transient


def _nobody() -> None:
    """Nobody wants to end the wait before its time."""


def _unheard(reason: Transient) -> None:
    """Nobody asks what is waited for."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The manner in which somebody waits for other transactions to have what comes after them."""

    check: Callable[[], None] = _nobody  # raises when it is not wanted any more
    tell: Callable[[Transient], None] = _unheard  # hears every few seconds what is waited for


ALONE = Waiting()
