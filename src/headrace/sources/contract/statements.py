"""The statements of a stream: what it says of tables otherwise than by rows, at its own place. Values only.

Found by a source's decoder, handed to its tables with the next look (`tables.StatementLog`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StatementEffect:
    """A statement on a table, or on all."""

    time: int
    steps: bytes | None  # what it did, in the source's own words; None: they do not say
    replaces: bool = False  # the table is gone, or another one has its name
