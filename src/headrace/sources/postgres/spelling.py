"""The spelling of PostgreSQL's positions, for readers of a lake: nothing else of the source is loaded."""

from __future__ import annotations

from headrace.core.position import Position
from headrace.sources.postgres.position import Lsn, PostgresTimeline


class LsnSpelling:
    """The spelling of PostgreSQL (`core.position.Spelling`): LSNs."""

    def reads(self, text: str) -> bool:
        return Lsn.matches(text.strip())

    def time(self, text: str, near: Position) -> int | None:
        return int(Lsn.parse(text.strip())) + _base(near)

    def text(self, time: int, near: Position) -> str | None:
        base = _base(near)
        return None if time < base else str(PostgresTimeline(base).lsn_at(time))

    def agree(self, text: str, other: str) -> bool:
        return True

    def covering(self, text: str) -> None:
        return None


def _base(near: Position) -> int:
    return near.time - int(Lsn.parse(near.text)) if near.text else near.time


SPELLING = LsnSpelling()
