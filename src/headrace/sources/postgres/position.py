"""Positions in a PostgreSQL log: the LSN, three kinds of it, and the times that we make of them.

    commit LSN   the start of a transaction's commit record: the time of its updates
    end LSN      the first byte after that record: the frontier once it is applied; may equal the
                 next commit LSN
    wal end      the position that the server has read, from a keepalive; may equal the *next* commit LSN

Records begin at multiples of eight bytes, so the LSNs of two commits differ by `core.position.STEP` or more.

A server that was set back or replaced counts from a smaller number on. But times must always grow: a time is
the server's own LSN plus a *base*, which grows with each such break. The text of a position is always an LSN
of its own server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from headrace.core.errors import Misconfigured
from headrace.core.position import Position

FURTHER = 1 << 32  # a base grows by multiples of this
_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})\Z")


@dataclass(frozen=True, slots=True, order=True)
class Lsn:
    """A byte position in the write-ahead log of a server."""

    value: int

    def __int__(self) -> int:
        return self.value

    def __str__(self) -> str:
        return f"{self.value >> 32:X}/{self.value & 0xFFFFFFFF:X}"

    @staticmethod
    def matches(text: str) -> bool:
        """Tell whether a text is an LSN."""
        return _TEXT.match(text) is not None

    @classmethod
    def parse(cls, text: str) -> Lsn:
        """Read PostgreSQL's own spelling, `16/B374D848`."""
        match = _TEXT.match(text)
        if match is None:
            raise Misconfigured(
                "POSITION_MALFORMED",
                f"{text!r} is not an LSN",
                hint="write it as PostgreSQL prints it, for example 16/B374D848",
            )
        return cls(int(match[1], 16) << 32 | int(match[2], 16))


class Fork(NamedTuple):
    """The end of a timeline in the history of a later one, which has all of its log before this LSN."""

    timeline: int
    lsn: int


Forks = tuple[Fork, ...]  # that lead to a server's timeline, the oldest first


@dataclass(frozen=True, slots=True)
class PostgresTimeline:
    """One life of a server's log: the base that is added to LSNs to make times."""

    base: int = 0

    def position(self, lsn: Lsn) -> Position:
        """Convert the server's LSN to our position."""
        return Position(self.base + int(lsn), str(lsn))

    def at(self, time: int) -> Position:
        """The position at a time."""
        return self.position(self.lsn_at(time))

    def lsn(self, position: Position) -> Lsn:
        """Convert our position to the server's LSN; it may come from an earlier life."""
        return self.lsn_at(position.time)

    def lsn_at(self, time: int) -> Lsn:
        return Lsn(max(0, time - self.base))

    def behind(self, frontier: Position, start: Lsn) -> PostgresTimeline:
        """The next life, whose log begins at `start`: all its times are later than `frontier`."""
        missing = max(0, frontier.time - self.position(start).time)
        return PostgresTimeline(self.base + (missing // FURTHER + 1) * FURTHER)
