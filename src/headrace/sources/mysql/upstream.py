"""The record of what a mirror follows at its server: which tables, and which life of the binlog.

A lake stores it, and hands it back with whatever it asks for. Nothing of ours exists at the server, so there
is nothing to make, and nothing to remove. The tables are named for a receiver alone, by the lake's own
records; where it is stored there are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.core.records import from_record, on_disk
from headrace.sources.mysql.declaration import ACCEPT, REFUSE, UNLOGGED_CASCADES
from headrace.sources.mysql.position import MysqlTimeline


@dataclass(frozen=True, slots=True)
class MysqlUpstream:
    """The tables that are picked out of the binlog, and what is added to counts to make times of them.

    `base` makes times grow for ever though the server was set back. `unlogged_gtids` are the transactions
    that counted as executed and never were in the log, when the stream began
    (`session.log_end.unlogged_gtids`). By `accepts_cascades` somebody says that no foreign key ever changes a
    row unlogged. `case_insensitive` is of a server for which names mean the same in any case.
    """

    tables: tuple[tuple[str, str], ...] = ()  # database, table
    base: int = 0
    unlogged_gtids: str = field(default="", metadata=on_disk("unlogged"))
    accepts_cascades: bool = False
    # Earlier versions did not ask.
    case_insensitive: bool = field(default=False, metadata=on_disk("folded", optional=True))

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> MysqlUpstream:
        """Read the record of it, which the lake stores and hands back."""
        return from_record(cls, record)

    @property
    def log(self) -> MysqlTimeline:
        """The server's binlog, in this life of it."""
        return MysqlTimeline(self.base, self.unlogged_gtids)


def plan(options: Mapping[str, str]) -> MysqlUpstream:
    """The record of a mirror that is to be, by the options of its user."""
    return MysqlUpstream(accepts_cascades=options.get(UNLOGGED_CASCADES.name) == ACCEPT)


def options(upstream: MysqlUpstream) -> dict[str, str]:
    """The options that say the same."""
    return {UNLOGGED_CASCADES.name: ACCEPT if upstream.accepts_cascades else REFUSE}
