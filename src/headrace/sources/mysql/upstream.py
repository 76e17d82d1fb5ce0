"""The record of a mirror at its server: the tables, and the life of the binlog.

A lake stores it, and hands it back with each request. No object of ours exists at the server, so nothing is
made or removed. Only a receiver's copy of the record names tables, from the lake's own records; the stored
one names none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.core.records import from_record, on_disk
from headrace.sources.contract.column_rules import ColumnRules
from headrace.sources.contract.values import COLUMNS
from headrace.sources.mysql.declaration import ACCEPT, REFUSE, UNLOGGED_CASCADES
from headrace.sources.mysql.position import MysqlTimeline


@dataclass(frozen=True, slots=True)
class MysqlUpstream:
    """The tables that are picked out of the binlog, and the base that makes times of counts.

    With `base` times grow for ever even if the server was set back. `unlogged_gtids` are the transactions
    that counted as executed when the stream began, and never were in the log
    (`session.log_end.unlogged_gtids`). With `accepts_cascades` the user guarantees that no foreign key
    changes a row unlogged. With `case_insensitive` a name means the same in any case.
    """

    tables: tuple[tuple[str, str], ...] = ()  # database, table
    base: int = 0
    unlogged_gtids: str = field(default="", metadata=on_disk("unlogged"))
    accepts_cascades: bool = False
    # Records of earlier versions lack it.
    case_insensitive: bool = field(default=False, metadata=on_disk("folded", optional=True))
    columns: str = field(default="", metadata=on_disk(sparse=True))  # their rules (`ColumnRules.text`)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> MysqlUpstream:
        """Read the record that the lake stores and hands back."""
        return from_record(cls, record)

    @property
    def rules(self) -> ColumnRules:
        """The columns that must not leave."""
        return ColumnRules.parse(self.columns)

    @property
    def log(self) -> MysqlTimeline:
        """The binlog's timeline, in this life of it."""
        return MysqlTimeline(self.base, self.unlogged_gtids)


def plan(options: Mapping[str, str]) -> MysqlUpstream:
    """The record of a planned mirror, from its options."""
    return MysqlUpstream(
        accepts_cascades=options.get(UNLOGGED_CASCADES.name) == ACCEPT,
        columns=ColumnRules.parse(options.get(COLUMNS.name, "")).text,
    )


def options(upstream: MysqlUpstream) -> dict[str, str]:
    """The options of a record."""
    return {UNLOGGED_CASCADES.name: ACCEPT if upstream.accepts_cascades else REFUSE} | upstream.rules.options
