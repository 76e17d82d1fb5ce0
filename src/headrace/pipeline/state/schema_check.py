"""The look at the source's tables before each mark.

Rewriting DDL sends nothing through the stream if no row changes after it, so the stream alone can't
vouch for a table. Before a mark, and after the epoch's last commit was received, one look compares each
mirrored table with what was recorded when it was copied.

    changed   the table is not what was copied: it stops; its last mark stands
    widened   columns were added, NULL in all rows from before: it goes on under these (`stream.ddl`)
    rewritten its rows from before become others by a function of each: they are written again in the lake
              (`stream.ddl`)
    locked    DDL may be in the stream already while no look can see it yet; the table sits this mark out and
              is in the next. So does one that was altered by a statement which the stream has yet to bring
              (`AwaitedTables`)
    half told the stream has brought some of the statements that altered it
    denied    the same, for as long as we may not see what the table is
    the same  the mark may name it; what is new about it and means nothing is recorded (`renew`)

How the source finds out is its own affair (`sources.contract.values`). Which record is meant, between which
positions, and the way back are ours. The look also brings how far the source is.

What a person types for a table that stopped because it is another one at the source (`way_back`); a resync
that finds more than the look saw refuses with a hint of its own:

    same columns            headrace tables resync      copied anew beside the old, the difference in one mark
    other columns           headrace tables resync      copied anew, a new interval and a new history
    other name              headrace tables drop, add   the same
    unfit to be mirrored    what makes it fit first: the source says the statement
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.core.conversion import Conversion
from headrace.core.errors import Definite, HeadraceError, ShapeChanged
from headrace.core.evolve import Converts, evolve
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.lake.format import layout
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.state.table_state import State
from headrace.sources.contract.errors import TableBusy, TableDenied
from headrace.sources.contract.mirror import Mirror
from headrace.sources.contract.values import Change, StatementLog, TableDef


@dataclass(frozen=True, slots=True)
class AlteredTable:
    """A table as it goes on, what becomes of its rows, and what was altered."""

    now: TableDef
    conversion: Conversion
    what: str  # for a message


@dataclass(slots=True)
class AwaitedTables:
    """The tables of which a look showed more than the stream had said by then, and how far it has to come.

    The first look that shows it says so: a later one would say it of later statements.
    """

    by: dict[str, Position] = field(default_factory=dict)  # by the record's key

    def among(self, changes: Mapping[str, Change], log: StatementLog) -> frozenset[str]:
        """The tables whose change the stream may still explain; of the others nothing is kept in mind."""
        asked = {key: change.told_by for key, change in changes.items() if change.told_by is not None}
        self.by = {key: self.by.get(key, by) for key, by in asked.items()}
        return frozenset(key for key, by in self.by.items() if log.until < by)


@dataclass(frozen=True, slots=True)
class RecordsCheck:
    """The outcome of one look. A table and its new copy are two records, which may differ by themselves."""

    reference: int  # what the decoder of the stream is made with
    end: Position
    errors: Mapping[str, Definite]  # by the record's key
    locked_tables: frozenset[TableName]
    upstream_error: HeadraceError | None = None  # the objects upstream are others: it concerns all tables
    news: Mapping[str, TableDef] = field(default_factory=dict)  # by the record's key
    denials: Mapping[TableName, HeadraceError] = field(default_factory=dict)  # of the locked, with the reason
    wider_tables: Mapping[TableName, AlteredTable] = field(default_factory=dict)
    rewritten: Mapping[TableName, AlteredTable] = field(default_factory=dict)
    half_told: frozenset[TableName] = frozenset()  # of the changed: the stream may explain it soon
    unreadable: Mapping[TableName, TableDenied] = field(default_factory=dict)  # a copy would fail
    busy: Mapping[TableName, TableBusy] = field(default_factory=dict)  # of the locked, where it is known
    # By the record's key: for those that waited, in no mark from before this look.
    unproven: frozenset[str] = frozenset()
    behind: Position | None = None  # this look
    proven_from: Mapping[str, Position] = field(default_factory=dict)  # of those, where a mark may name them

    def changed_tables(self, records: Iterable[TableRecord]) -> dict[TableName, HeadraceError]:
        """Find the records whose tables differ from what was recorded."""
        return {r.name: self.errors[r.key] for r in records if r.key in self.errors}

    def renew(self, record: TableRecord) -> TableRecord:
        """The record with what is new of its table and means nothing to its rows."""
        now = self.news.get(record.key)
        return record if now is None else record.with_definition(now)


def check_records(
    mirror: Mirror,
    records: Iterable[TableRecord],
    after: Position,
    *,
    widen: bool = False,
    log: StatementLog | None = None,
    pending: AwaitedTables | None = None,
) -> RecordsCheck:
    """Look at the source and at these tables; `after` is the position of the mark before.

    With `widen` a table whose rows become new ones has not changed. Nor has one, for now, that the stream
    may explain: what was heard since the last mark says which statements it has brought.
    """
    known = {record.key: record for record in records}
    check = mirror.check({key: record.definition for key, record in known.items()}, log)
    span = (after, check.end)
    copied = {record.name for record in known.values() if record.copy_id is not None}
    steps = {
        key: step
        for key, change in check.changes.items()
        if widen and known[key].name not in copied
        if (step := _conversion(known[key], change, after)) is not None
    }
    hopeful = pending.among(check.changes, log) if pending is not None and log is not None else frozenset()
    silent = frozenset(key for key in hopeful if log is None or not log.effects.get(key))
    over = steps.keys() | silent
    return RecordsCheck(
        reference=check.reference,
        end=check.end,
        errors={k: _changed_error(known[k], c, span) for k, c in check.changes.items() if k not in over},
        locked_tables=frozenset(
            record.name for key, record in known.items() if key in check.locked_tables | silent
        ),
        upstream_error=check.upstream_error,
        news=check.news,
        denials={known[key].name: error for key, error in check.denials.items()},
        wider_tables={known[key].name: each for key, (step, each) in steps.items() if not step.rewrites},
        rewritten={known[key].name: each for key, (step, each) in steps.items() if step.rewrites},
        half_told=frozenset(known[key].name for key in hopeful - silent),
        unreadable={known[key].name: error for key, error in check.unreadable.items()},
        busy={known[key].name: error for key, error in check.busy.items()},
        unproven=check.unproven,
        behind=check.behind,
    )


def _conversion(record: TableRecord, change: Change, after: Position) -> tuple[Converts, AlteredTable] | None:
    """The step to the table as it goes on, where its schemas say too that old rows become new ones.

    A value without a lake form follows its row by its column: where there are any, rows are not converted.
    """
    now, proven = change.now, change.derivation
    if now is None or proven is None or record.state is not State.LIVE:
        return None
    step = evolve(
        record.schema.at_time(after.time), now.schema, proven.parts, proven.until.time, proven.between
    )
    names = [layout.lake_column(name).lower() for name in now.schema.names]
    if not isinstance(step, Converts) or len(set(names)) < len(names):
        return None
    if step.rewrites and record.raw_columns:
        return None
    return step, AlteredTable(
        replace(now, schema=step.schema), step.conversion, f"{record.name}: {change.what}"
    )


def _changed_error(record: TableRecord, change: Change, span: tuple[Position, Position]) -> Definite:
    return ShapeChanged(
        "TABLE_CHANGED",
        f"{record.name} is not what was copied: {change.what}",
        detail=f'noticed between the positions "{record.frontier or span[0]}" and "{span[1]}"',
        hint=way_back(record, change),
    )


# --- the way back -------------------------------------------------------------------------------


def way_back(record: TableRecord, change: Change) -> str:
    """The hint for a table that is not what was recorded."""
    name, now = record.name, change.now
    again = f"headrace tables resync {name}"
    if now is None:
        return f"{again}, if it was made again; it says what to do if not"
    if now.name != name:
        return anew(name, now.name)
    if change.mend is not None:
        return f"{change.mend}, then {again}"
    kept = "; older marks keep what it was" if record.state.is_named else ""
    return again + kept if now.schema.columns != record.schema.columns else again


def anew(old: TableName, new: TableName) -> str:
    """The way to a new interval of a table that cannot be compared with what it was."""
    return f"headrace tables drop {old}, then headrace tables add {new}"
