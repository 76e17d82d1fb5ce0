"""The record of a mirror's objects upstream: its publication, its slot, and the life of their server.

`objects` makes the record. A lake stores it, and hands it back with each request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.core.position import Position
from headrace.core.records import from_record, on_disk
from headrace.sources.contract.column_rules import ColumnRules
from headrace.sources.postgres.position import Forks, Lsn, PostgresTimeline


@dataclass(frozen=True, slots=True)
class PostgresUpstream:
    """The objects that a stream is read through, and the life of the server.

    Times are the server's positions plus `base`, so they grow for ever even if the server was set back.
    `publication_oid` is 0 as long as the publication is not known to exist. `forks` led to the server's
    timeline when the stream began there; None if they are not known. With `failover` the server's standbys
    shall keep a copy of the slot, if the slot is ours.
    """

    slot: str
    publication: str
    owns_slot: bool = True
    owns_publication: bool = True
    publication_oid: int = 0
    base: int = 0
    # Records of earlier versions lack these.
    forks: Forks | None = field(default=None, metadata=on_disk(sparse=True))
    failover: bool = field(default=True, metadata=on_disk(sparse=True))
    columns: str = field(default="", metadata=on_disk(sparse=True))  # their rules (`ColumnRules.text`)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> PostgresUpstream:
        """Read the record that the lake stores and hands back."""
        return from_record(cls, record)

    @property
    def rules(self) -> ColumnRules:
        """The columns that must not leave."""
        return ColumnRules.parse(self.columns)

    @property
    def log(self) -> PostgresTimeline:
        """The server's log, in this life of it."""
        return PostgresTimeline(self.base)

    def position(self, lsn: Lsn) -> Position:
        """Convert an LSN of the server to a position."""
        return self.log.position(lsn)
