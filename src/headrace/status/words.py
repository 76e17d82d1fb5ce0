"""Figures and times as the page and the terminal write them: `1.2 GB`, `4 min`, `12,345`, `14:03:22 UTC`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def size(count: float | None) -> str:
    """Bytes, in a unit that needs few digits."""
    if count is None:
        return "unknown"
    for unit in _UNITS:
        if abs(count) < 1000 or unit == _UNITS[-1]:
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"


def span(seconds: float | None) -> str:
    """A duration, in one or two units."""
    if seconds is None:
        return "unknown"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, hours, days = round(seconds / 60), seconds / 3600, seconds / 86400
    if minutes < 120:
        return f"{minutes} min"
    return f"{hours:.0f} h" if hours < 48 else f"{days:.0f} days"


def number(count: float | None) -> str:
    if count is None:
        return ""
    return f"{count:,.0f}" if count >= 10 or count == int(count) else f"{count:.1f}"


def count_of(count: int, noun: str) -> str:
    """`1 table`, `2 tables`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def moment(text: str | None) -> datetime | None:
    """Parse a time of a status; None if there is none, or if it is malformed."""
    try:
        read = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return read.astimezone(UTC) if read.tzinfo else read.replace(tzinfo=UTC)


def clock(at: datetime | None) -> str:
    """A time of the last 20 hours without its date, any other with it."""
    if at is None:
        return ""
    is_near = abs(datetime.now(UTC) - at) < timedelta(hours=20)
    return f"{at:%H:%M:%S} UTC" if is_near else f"{at:%Y-%m-%d %H:%M} UTC"


def ago(at: datetime | None) -> str:
    """The duration since a time."""
    return "" if at is None else f"{span(max(0.0, (datetime.now(UTC) - at).total_seconds()))} ago"


def clock_and_age(at: datetime | None) -> str:
    """`14:03:22 UTC, 4 min ago`."""
    return "" if at is None else f"{clock(at)}, {ago(at)}"
