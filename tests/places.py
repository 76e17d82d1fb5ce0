"""Positions as tests write them: of a server whose LSNs are the times themselves."""

from __future__ import annotations

from headrace.core.position import Position
from headrace.sources.postgres.position import PostgresTimeline


def place_at(time: int) -> Position:
    """The position at a time, spelled as that server spells it."""
    return PostgresTimeline().at(time)
