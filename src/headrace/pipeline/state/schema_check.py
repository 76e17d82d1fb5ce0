"""The look at the source's tables before each mark.

Rewriting DDL sends nothing through the stream if no row changes after it, so the stream alone can't
vouch for a table. Before a mark, and after the epoch's last commit was received, one look compares each
mirrored table with what was recorded when it was copied.

    changed   the table is not what was copied: it stops; its last mark stands
    locked    DDL may be in the stream already while no look can see it yet; the table sits this mark out and
              is in the next
    the same  the mark may name it; what is new about it and means nothing is recorded (`renewed`)

How the source finds out is its own affair (`sources.contract.tables`). Which record is meant, between which
positions, and the way back are ours. The look also brings how far the source is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.core.errors import Definite, HeadraceError
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.state.remedies import way_back
from headrace.sources.contract.tables import Change, TableDef, Tables


@dataclass(frozen=True, slots=True)
class RecordsCheck:
    """The outcome of one look. A table and its new copy are two records, which may differ by themselves."""

    reference: int  # what the decoder of the stream is made with
    end: Position
    errors: Mapping[str, Definite]  # by the record's key
    locked: frozenset[TableName]
    broken: HeadraceError | None = None  # the objects upstream are others: it concerns all tables
    news: Mapping[str, TableDef] = field(default_factory=dict)  # by the record's key

    def changed(self, records: Iterable[TableRecord]) -> dict[TableName, HeadraceError]:
        """Those of the records whose tables are not what was recorded."""
        return {r.name: self.errors[r.key] for r in records if r.key in self.errors}

    def renewed(self, record: TableRecord) -> TableRecord:
        """The record with what is new of its table and means nothing to its rows."""
        now = self.news.get(record.key)
        return record if now is None else record.defined(now)


def check_records(tables: Tables, records: Iterable[TableRecord], after: Position) -> RecordsCheck:
    """Look at the source and at these tables; `after` is the position of the mark before."""
    known = {record.key: record for record in records}
    check = tables.check({key: record.definition for key, record in known.items()})
    span = (after, check.end)
    return RecordsCheck(
        reference=check.reference,
        end=check.end,
        errors={key: _changed(known[key], change, span) for key, change in check.changes.items()},
        locked=frozenset(record.name for key, record in known.items() if key in check.locked),
        broken=check.broken,
        news=check.news,
    )


def _changed(record: TableRecord, change: Change, span: tuple[Position, Position]) -> Definite:
    return Definite(
        "TABLE_CHANGED",
        f"{record.name} is not what was copied: {change.what}",
        detail=f'noticed between the positions "{record.applied or span[0]}" and "{span[1]}"',
        hint=way_back(record, change),
    )
