"""The record of what a mirror has upstream: its publication, its slot, and the life of the server of both.

`objects` makes it; a lake stores it, and hands it back with whatever it asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.core.position import Position
from headrace.core.records import from_record
from headrace.sources.postgres.position import Lsn, PostgresTimeline


@dataclass(frozen=True, slots=True)
class PostgresUpstream:
    """The objects that a stream is read through, and which life of the server it is of.

    `base` is what is added to the server's positions to make times of them, which grow for ever though the
    server was set back. `publication_oid` is 0 as long as the publication is not known to be there.
    """

    slot: str
    publication: str
    owns_slot: bool = True
    owns_publication: bool = True
    publication_oid: int = 0
    base: int = 0

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> PostgresUpstream:
        """Read the record of it, which the lake stores and hands back."""
        return from_record(cls, record)

    @property
    def log(self) -> PostgresTimeline:
        """The server's log, in this life of it."""
        return PostgresTimeline(self.base)

    def position(self, lsn: Lsn) -> Position:
        """A position of the server's as one of ours."""
        return self.log.position(lsn)
