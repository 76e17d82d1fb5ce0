"""The look at the source's tables before each mark.

Rewriting DDL sends nothing through the stream if no row changes after it, so the stream alone can't
vouch for a table. Before a mark, and after the epoch's last commit was received, one look compares each
mirrored table with its record.

    changed   the table differs from its record: it stops; its last mark stands
    widened   columns were added, NULL in all old rows: it goes on with these columns (`stream.ddl`)
    rewritten each old row becomes another by a function of it: they are written again in the lake
              (`stream.ddl`)
    locked    the stream may have DDL already that no look can see yet: this mark omits the table, and the
              next one names it. The same holds after a statement that the stream has yet to bring
              (`AwaitedTables`)
    half told the stream has brought some of the statements that altered it
    denied    marks omit the table as long as we lack the privilege to see its definition
    unchanged the mark may name it; news that do not concern its rows are recorded (`renew`)

The source decides how to find out (`sources.contract.values`). This module chooses the records and the
positions, and names the way back. The look also brings the source's position.

`way_back` says what to type for a table that stopped because it was changed or replaced at the source; a
resync that finds more than the look saw refuses with a hint of its own:

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
    """A table in its new shape, the conversion of its rows, and a text of what was altered."""

    now: TableDef
    conversion: Conversion
    what: str  # for a message


@dataclass(slots=True)
class AwaitedTables:
    """The tables whose change a look showed before the stream did, and how far the stream has to come.

    The position comes from the first look that shows the change: a later look may show later statements.
    """

    by: dict[str, Position] = field(default_factory=dict)  # by the record's key

    def among(self, changes: Mapping[str, Change], log: StatementLog) -> frozenset[str]:
        """Return the tables whose change the stream may still explain; forget the others."""
        asked = {key: change.told_by for key, change in changes.items() if change.told_by is not None}
        self.by = {key: self.by.get(key, by) for key, by in asked.items()}
        return frozenset(key for key, by in self.by.items() if log.until < by)


@dataclass(frozen=True, slots=True)
class RecordsCheck:
    """The outcome of one look. A table and its new copy are two records, each with its own result."""

    reference: int  # the stream's decoder is made with it
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
    unproven: Mapping[str, Position | None] = field(default_factory=dict)  # by the record's key
    late_columns: Mapping[TableName, HeadraceError] = field(default_factory=dict)  # a rule holds them back
    proven_from: Mapping[str, Position] = field(default_factory=dict)  # of those, where a mark may name them

    def changed_tables(self, records: Iterable[TableRecord]) -> dict[TableName, HeadraceError]:
        """Find the records whose tables differ from what was recorded."""
        return {r.name: self.errors[r.key] for r in records if r.key in self.errors}

    def renew(self, record: TableRecord) -> TableRecord:
        """Return the record with the news of its table that do not concern its rows."""
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

    With `widen`, a table whose rows can be converted does not count as changed. A table whose change the
    stream may still explain does not count as changed for now: `log` has the statements since the last mark.
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
        late_columns={known[key].name: error for key, error in check.late_columns.items()},
        busy={known[key].name: error for key, error in check.busy.items()},
        unproven=check.unproven,
    )


def _conversion(record: TableRecord, change: Change, after: Position) -> tuple[Converts, AlteredTable] | None:
    """Find the conversion of old rows into the table's new shape, if its schemas allow one, too.

    A value without a lake form belongs to a column of its row: if there are any, rows are not converted.
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
    """Return the hint for a table that differs from its record."""
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
    """Return the way to a new interval of a table that cannot be compared with its old rows."""
    return f"headrace tables drop {old}, then headrace tables add {new}"
