"""Positions in a PostgreSQL log: the LSN, and the three that are told apart.

    commit LSN   where a transaction's commit record starts: the time of its updates
    end LSN      the first byte after that record: the frontier once it is applied; may equal the
                 next commit LSN
    wal end      how far the server has read, from a keepalive; may equal the *next* commit LSN

A frontier is exclusive: it covers every commit LSN that is smaller, none that is equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.core.errors import Misconfigured

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})\Z")


@dataclass(frozen=True, slots=True, order=True)
class Lsn:
    """A byte position in the write-ahead log. `int(lsn)` is what the lake stores as `_time`."""

    value: int

    def __int__(self) -> int:
        return self.value

    def __str__(self) -> str:
        return f"{self.value >> 32:X}/{self.value & 0xFFFFFFFF:X}"

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
