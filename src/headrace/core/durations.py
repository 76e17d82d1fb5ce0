"""Durations as people write them, `90s`, `45m`, `12h`, `30d`, `2w`, and as they read them.

A number and one unit, nothing else: what deletes data must not be guessed at. Pure.
"""

from __future__ import annotations

import re
from datetime import timedelta

from headrace.core.errors import Misconfigured

AUTO = "auto"
_WRITTEN = re.compile(r"(\d{1,6})([smhdw])\Z", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def duration_text(seconds: float) -> str:
    """A duration for people to read, in its largest whole unit."""
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def duration(text: str, what: str) -> timedelta:
    """The duration that is written here; `what` names it in the error."""
    return _duration(text, what, "")


def pace(text: str, what: str) -> float | None:
    """The seconds of a pace that is written here; None for `auto`."""
    return None if text.strip() == AUTO else _duration(text, what, f", or {AUTO}").total_seconds()


def _duration(text: str, what: str, otherwise: str) -> timedelta:
    match = _WRITTEN.match(text.strip())
    if match is None:
        raise Misconfigured(
            "DURATION_MALFORMED",
            f'"{text}" is not a duration that {what} can have',
            hint=f"write a number and a unit: 90s, 45m, 12h, 30d or 2w{otherwise}",
        )
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
