"""The epochs between two of the stream: tables arrive in the marks, or stop with an error.

    new_arrival    a table that is not mirrored at the moment: chosen for the first time, or once more
    take_up        a mirrored table with another shape at the source by now: it leaves the marks until its
                   rows are there again, from the source or from the lake
    arrival_epoch  the one epoch for all of that

    stop_tables    stops tables at the newest mark, while the others go on
    stop_copies    stops new copies that can't be finished, at the stream's position; their tables stay
    stop_blocked   stops tables at which a plan failed that the takeover withdrew
    not_followed   the error of a bug of ours in following DDL; the table is copied instead

A folder that an arriving table had before is emptied by that epoch: older versions keep their files, and
history goes on in the same folder, where the new `since` keeps the two intervals apart. Under other columns
the epoch gives the folder's newest version those too, older versions keep theirs, and history goes on in a
folder of the next number. Changes from before the epoch's position are never applied: they may have the
table's columns of then.

If an epoch of the stream finds an error of a table, its own record of the table says so
(`TableRecord.with_error`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headrace.core.errors import HeadraceError, ShapeChanged, place_of
from headrace.core.history import history_schema
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.schema import TableSchema
from headrace.lake.format import layout
from headrace.lake.log.commit import StepFailed, UnfinishablePlan
from headrace.pipeline.state import choice, records
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.live_tables import folders_of
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.state.table_state import TableEvent
from headrace.pipeline.tasks import raw_values
from headrace.pipeline.tasks.table_task import Errors, Outcome
from headrace.sources.contract.values import TableDef


@dataclass(frozen=True, slots=True)
class Arrival:
    """A table that arrives: its record, and what becomes of a folder that it had before."""

    record: TableRecord
    emptying: Outcome | None  # takes the rows of an earlier interval out of the newest version
    other_columns: bool  # the folder's newest version gets these columns


def new_arrival(ledger: Ledger, arriving: TableDef, start: Position) -> Arrival:
    """Make the arrival of a table that the marks do not have."""
    record = replace(choice.new_record(arriving, start), late=True)
    name, table = arriving.name, ledger.live.table(layout.table_folder(ledger.name, arriving.name))
    other = table.version >= 0 and not _are_alike(table.schema(), record.schema.arrow())
    live = tuple(table.files())
    schema = replace(record.schema, version=history_version(ledger, name, record.schema))
    emptied = Outcome(name, remove=live) if live or other else None
    return Arrival(replace(record, schema=schema), emptied, other)


def take_up(ledger: Ledger, record: TableRecord, now: TableDef, start: Position) -> Arrival:
    """Make the arrival of a table as it is now, in the place of what it was."""
    ledger.live.forget(ledger.task_folder(record.name))  # another program may have changed its files
    new = new_arrival(ledger, record.with_definition(now).definition, start)
    altered = records.entry_of_copy(ledger.mark.epoch + 1, start, record.error, record.alteration)
    begun = replace(new.record, state=record.on(TableEvent.TAKEN_UP).state, alteration=altered)
    gone = without_errors(ledger, record, ledger.frontier.time)
    if gone.errors:
        gone = gone if new.emptying is None else replace(new.emptying, errors=gone.errors)
        return Arrival(begun, gone, new.other_columns)
    return Arrival(begun, new.emptying, new.other_columns)


def arrival_epoch(
    kind: str, ledger: Ledger, arrivals: Sequence[Arrival], others: Sequence[TableRecord] = ()
) -> Epoch:
    """Make the epoch in which tables arrive; other records change with it."""
    replaced = frozenset(each.record.name for each in arrivals if each.other_columns)
    return Epoch(
        kind,
        ledger.frontier,
        records=(*(each.record for each in arrivals), *others),
        outcomes=tuple(each.emptying for each in arrivals if each.emptying is not None),
        new_tables=tuple(replaced),
        replaced_tables=replaced,
        begun_anew=frozenset(each.record.name for each in arrivals),
    )


def without_errors(ledger: Ledger, record: TableRecord, time: int) -> Outcome:
    """Remove the rows of errors/ together with the rows that they are about."""
    standing: Errors = ()
    if record.raw_columns and record.state.has_rows:
        standing = raw_values.standing(ledger.store, ledger.outline(record), ledger.mark.epoch + 1, time)
    return Outcome(record.name, errors=standing)


# --- the folder of the history ------------------------------------------------------------------


def _are_alike(other: pa.Schema, new: pa.Schema) -> bool:
    """Tell whether rows of both can lie in one folder."""
    return list(zip(other.names, other.types, strict=True)) == list(zip(new.names, new.types, strict=True))


def history_version(ledger: Ledger, name: TableName, schema: TableSchema) -> int:
    """Find the history that goes on: the last one, or the next if its columns are others. No gaps between."""
    version = 1
    while (history := ledger.live.table(layout.history_folder(ledger.name, name, version))).version >= 0:
        following = ledger.live.table(layout.history_folder(ledger.name, name, version + 1))
        if following.version < 0 and _are_alike(history.schema(), history_schema(schema)):
            return version
        version += 1
    return version


# --- tables that stop -----------------------------------------------------------------------------


Failures = Mapping[TableName, HeadraceError]


def stop_tables(ledger: Ledger, failures: Failures) -> Epoch:
    """Stop tables where the newest mark stands."""
    records = [ledger.tables[name].with_error(error, ledger.frontier) for name, error in failures.items()]
    return Epoch("stop", ledger.frontier, records=tuple(records))


def stop_copies(ledger: Ledger, failures: Failures) -> Epoch:
    """Stop new copies of tables."""
    records = [ledger.staged[name].with_error(error, ledger.position) for name, error in failures.items()]
    return Epoch("stop", ledger.frontier, records=tuple(records))


def stop_blocked(ledger: Ledger) -> Iterator[Epoch]:
    """Stop the tables, one by one, at which plans failed by a bug of ours; all tables share errors/."""
    for blocked in ledger.blocked:
        if not isinstance(blocked.error, StepFailed):
            continue
        record = _at(ledger, blocked.step.path)
        if record is None:
            raise blocked.error
        stop = stop_tables if record.copy_id is None else stop_copies
        yield stop(ledger, {record.name: _reason(blocked, blocked.error, record)})


def _at(ledger: Ledger, path: str) -> TableRecord | None:
    """Find the table, or new copy, whose rows or history lie in this folder."""
    for record in (*ledger.tables.values(), *ledger.staged.values()):
        folders = folders_of(ledger.name, record)
        if path in (folders.rows, folders.history):
            return record
    return None


def _reason(blocked: UnfinishablePlan, error: StepFailed, record: TableRecord) -> HeadraceError:
    """Have the table copied if following its DDL failed; if the copy failed too, ask a person."""
    rewritten = record.state.awaits_copy and record.old_rows is not None
    follows = blocked.plan.kind in ("widen", "rewrite") or rewritten
    return not_followed(record.name, error) if follows else error


def not_followed(name: TableName, fault: Exception) -> ShapeChanged:
    """Make the error of a table whose DDL can't be followed because of a bug of ours."""
    where = fault.detail if isinstance(fault, StepFailed) else place_of(fault)
    return ShapeChanged(
        "TABLE_NOT_FOLLOWED",
        f"a change of the columns of {name} was not followed, by a fault of headrace",
        detail=where,
        hint=f"headrace tables resync {name} copies it from the source; a run does so by itself: "
        "please report it with the detail",
    )
