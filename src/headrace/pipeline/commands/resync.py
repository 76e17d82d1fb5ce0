"""The deed "resync": copy tables anew, for whoever suspects or lost them.

    names ─► still there, fit as for their first choice ─► wholly captured ─► PENDING

        the columns of their history    a new copy beside the old contents, which stay what readers have until
                                        `replacement` puts the difference into one mark
        other columns                   the table leaves the marks, is copied as it is now, and returns with a
                                        new interval (`state.table_epochs`): no history tells their difference

For tables that are live and for those that stopped. Asked twice, it is done once: a table that is being
copied anew already is left alone. One that fails a check is refused, and the others go on: `headrace run
--reconcile` (`recovery`) asks here too, and so does a run that follows DDL by itself (`following`).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.core.errors import HeadraceError, Misconfigured, TableMissing
from headrace.core.names import TableName
from headrace.core.schema import TableSchema
from headrace.pipeline.commands.capture import Capturing, SourcePlace
from headrace.pipeline.resync import replacement
from headrace.pipeline.state import records
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.owner import Errand, Owner, Steps
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.state.table_epochs import Arrival, arrival_epoch, take_up
from headrace.sources.contract.mirror import CapturedTables
from headrace.sources.contract.values import ExaminedTables, TableDef
from headrace.sources.shared.patterns import select


def resync(owner: Owner, arguments: Mapping[str, Any]) -> Steps:
    """Begin a new copy of each of these tables."""
    refuse_while_recovering(owner.ledger)
    folded = SourcePlace.of(owner).record.facts.case_insensitive
    names = tables_of_patterns(owner.ledger, arguments["tables"], case_insensitive=folded)
    begun: ResyncStart = yield from copied_anew(owner, names)
    begun.check()
    return {"tables": [str(name) for name in names]}


@dataclass(frozen=True, slots=True)
class ResyncStart:
    """The tables of which a new copy has begun, and what stands against one of the others."""

    names: tuple[TableName, ...]
    refusals: Mapping[TableName, HeadraceError]

    def check(self) -> None:
        """Raise the error of the first table that was refused; it says what became of the others."""
        if not self.refusals:
            return
        first, *others = self.refusals.values()
        for error in others:
            first = first.adding(f"and {error.code}: {error.primary}")
        raise first.adding(f"copied anew: {', '.join(map(str, self.names))}") if self.names else first


def copied_anew(owner: Owner, names: Sequence[TableName]) -> Generator[Errand, Any, ResyncStart]:
    """Begin a new copy of each of these tables, unless there is one already; which those are."""
    ledger = owner.ledger
    wanted = [name for name in names if name not in ledger.staged]
    captured: CapturedTables = yield Capturing(wanted, SourcePlace.of(owner).capture_again)
    copies: list[TableRecord] = []
    arrivals: list[Arrival] = []
    refused: dict[TableName, HeadraceError] = {}
    for name in wanted:
        record = ledger.tables.get(name)
        if record is None or not record.state.may_resync:
            continue  # it was dropped, or stopped to be what it was, while the source was asked
        try:
            now = there(record, captured.examined_tables)
            if replacement.alike(record.schema, now.schema):
                copies.append(new_copy_record(ledger, record, captured.examined_tables))
            else:
                start = max(captured.position, ledger.position)
                arrivals.append(take_up(ledger, record, now, start))
        except HeadraceError as error:
            refused[name] = error
    begun = (*(copy.name for copy in copies), *(each.record.name for each in arrivals))
    if begun:
        owner.publish(arrival_epoch("resync", ledger, arrivals, copies))
    return ResyncStart(begun, refused)


def refuse_while_recovering(ledger: Ledger) -> None:
    """Until a lost position is left the tables stay what they are."""
    if ledger.recovering:
        raise Misconfigured(
            "RESYNC_HEALING",
            "all tables of the source are being copied anew",
            hint="headrace status shows how far they are; ask again when they are live",
        )


def tables_of_patterns(
    ledger: Ledger, patterns: Sequence[str], *, case_insensitive: bool = False
) -> tuple[TableName, ...]:
    """The tables that patterns mean, without those that only a wildcard matches and that are being copied."""
    chosen = select(patterns, ledger.tables, case_insensitive=case_insensitive).check()
    for pattern in chosen.empty:
        if not pattern.excludes:
            raise Misconfigured(
                "RESYNC_TABLE_UNKNOWN",
                f'"{pattern.text}" means no table that this source mirrors',
                detail=pattern.near(ledger.tables),
                hint="headrace status lists the tables; write the schema, too",
            )
    copying = [name for name in chosen.names if not ledger.tables[name].state.may_resync]
    names = tuple(name for name in chosen.names if name not in copying)
    busy = chosen.named_tables.intersection(copying) or (() if names else copying)
    for name in busy:
        raise Misconfigured(
            "RESYNC_TABLE_COPYING",
            f"{name} is being copied already",
            hint="wait until headrace status shows it live",
        )
    return names


def there(record: TableRecord, examined_tables: ExaminedTables) -> TableDef:
    """The table as it is at the source by now; an error where it is not, or is not fit to be mirrored."""
    if record.name in examined_tables.errors:
        raise examined_tables.errors[record.name]
    table = examined_tables.defs.get(record.name)
    if table is None:
        raise TableMissing(
            "RESYNC_TABLE_GONE",
            f"{record.name} is not at the source any more",
            hint=f"if it is gone for good: headrace tables drop {record.name}; older marks keep it",
        )
    return table


def new_copy_record(ledger: Ledger, record: TableRecord, examined_tables: ExaminedTables) -> TableRecord:
    """The record of the new copy of a table, whose contents can be compared with the old ones."""
    table = there(record, examined_tables)
    replacement.refuse_other_columns(record.name, record.schema, table.schema)
    fresh = record.with_definition(replace(table, schema=_continuing(record.schema, table.schema)))
    altered = records.entry_of_copy(ledger.mark.epoch + 1, ledger.position, record.error, record.alteration)
    fresh = replace(fresh, alteration=altered)
    return replacement.staged_record(fresh, stage_of(ledger, record.name), ledger.position)


def _continuing(old: TableSchema, now: TableSchema) -> TableSchema:
    """The schema of the same columns, with what the lake alone knows of the table."""
    return replace(now, version=old.version, earlier=old.earlier)


def stage_of(ledger: Ledger, name: TableName) -> str:
    """A name for the folder of a new copy that none before had."""
    number = sorted(ledger.tables).index(name)
    return f"{ledger.mark.epoch + 1}-{number}"
