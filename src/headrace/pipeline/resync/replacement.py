"""Reconcile: copy a table anew beside the old one, and write the difference as updates in one mark.

    asked for ─► a new copy, PENDING ─► JOINING ─► READY     its files are staged, and in no mark
    the table    as it was: live and in the marks, or stopped        │  both stand at one place, and go on
                                                                     ▼
                 compared file by file (`comparison`), beside the loop, until little is left
                                                                     ▼
                 what differs (`tasks.compare.differences`) ─► one epoch: the difference, at a time of its own

Readers have the old contents until that epoch's mark, and history has the difference as ordinary updates of
no transaction (`_xid` 0). If the table was exact until then, its interval goes on; else a new interval begins
there. The new copy joins the stream by the handoffs and states of a first copy (`copy.copied_parts`,
`stream.epoch`); it only lies in another folder.

The mark before the difference leaves room for it (`state.epoch.with_room`), since no two marks with
different contents may have one time. If the source is so idle that its position does not move, a slot is made
and dropped for a moment: that moves it.

A comparison writes its own files into the copy's folder, which is removed with the copy.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from headrace.core.difference import DifferenceMoment
from headrace.core.errors import Definite, ShapeChanged
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.schema import Column, TableSchema
from headrace.lake.format import layout
from headrace.lake.store.contract import Store
from headrace.pipeline.resync.comparison import KnownChecksums
from headrace.pipeline.state.epoch import RECONCILE, ROOM, Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.state.table_state import State, TableEvent, after
from headrace.pipeline.tasks.compare import differences
from headrace.pipeline.tasks.compare.differences import Applying, ComparisonTerms, LotResult, SideFile
from headrace.pipeline.tasks.files import verdict
from headrace.pipeline.tasks.merge import merge
from headrace.pipeline.tasks.routing import Routes
from headrace.pipeline.tasks.table_task import Outcome, Outcomes, TableTask, pack, unpack
from headrace.spark.jobs import Jobs
from headrace.spool.reader import SpoolReader


class Workers(Protocol):
    """The jobs that do an epoch's work, and the position of the stream."""

    @property
    def reader(self) -> SpoolReader: ...
    def jobs(self, rows: int) -> Jobs: ...
    def fit(self, rows: int) -> Jobs: ...


def staged_record(record: TableRecord, copy_id: str, position: Position) -> TableRecord:
    """The record of a new copy of a table, from this position of the stream on."""
    return replace(
        record,
        state=after(State.ABSENT, TableEvent.CHOSEN),
        frontier=position,
        handoff=None,
        since=None,
        held_transactions=0,
        raw_columns=(),
        error=None,
        stopped_at=None,
        stopped_since=None,
        copy_id=copy_id,
        old_rows=None,
    )


def stage_of(copy: TableRecord) -> str:
    """The name by which a new copy is known."""
    assert copy.copy_id is not None
    return copy.copy_id


def refuse_other_columns(name: TableName, old: TableSchema, new: TableSchema) -> None:
    """Refuse a new copy with other columns: one history can't hold the difference."""
    if not alike(old, new):
        raise ShapeChanged(
            "RECONCILE_COLUMNS_CHANGED",
            f"{name} has other columns than its history in the lake",
            detail=f"now {_name_files(new)}; in the lake {_name_files(old)}",
            hint=f"headrace tables resync {name}; older marks keep what it was",
        )


def alike(old: TableSchema, new: TableSchema) -> bool:
    """Tell whether the contents of two tables can be compared."""
    return _forms(old) == _forms(new)


def _forms(schema: TableSchema) -> list[Column]:
    """Return the columns as the lake has them; the source's own names of types are only for people."""
    return [replace(column, source_type="") for column in schema.columns]


def _name_files(schema: TableSchema) -> str:
    return ", ".join(f"{column.name} {column.source_type}" for column in schema.columns)


def ready(ledger: Ledger) -> list[TableRecord]:
    """Return the new copies that can replace their tables now; in a recovery none until all can."""
    exact = [record for record in ledger.staged.values() if record.state is State.READY]
    others = [r for r in ledger.staged.values() if r.state not in (State.READY, State.STOPPED)]
    return [] if ledger.recovering and others else exact


def failed_copies(ledger: Ledger) -> list[TableRecord]:
    """The new copies that failed."""
    return [record for record in ledger.staged.values() if record.state is State.STOPPED]


def is_over(ledger: Ledger) -> bool:
    """Tell whether a recovery ends without any new copy: all of them failed."""
    return ledger.recovering and all(r.state is State.STOPPED for r in ledger.staged.values())


def near(ledger: Ledger, runner: Workers, copy: TableRecord, checksums: KnownChecksums) -> bool:
    """Tell whether the new copy can replace its table without delay; if not, continue the comparison."""
    if checksums.busy:
        return False
    try:
        pair = _pair(ledger, ledger.tables[copy.name], copy, ledger.position)
    except Definite:  # told where it takes the place of its table
        return True
    return checksums.near(pair.side_files, runner.fit)


def epoch(
    ledger: Ledger,
    runner: Workers,
    copies: Sequence[TableRecord],
    checksums_by_copy: Mapping[str, KnownChecksums],
) -> Epoch:
    """Make the epoch that puts new copies in place of their tables, and ends those that failed."""
    source = ledger.source
    assert source is not None
    frontier = source.at(ledger.position.time + ROOM, ledger.position)
    records, outcomes, created = [], [], []
    for copy in copies:
        old = ledger.tables[copy.name]
        try:
            outcome = _replace(runner, _pair(ledger, old, copy, frontier), checksums_by_copy[stage_of(copy)])
        except Definite as error:
            records.append(old.with_error(error, ledger.frontier))
            continue
        continues = old.state is State.LIVE and not ledger.recovering
        if not continues:  # what it was before is not exact up to here, and history tells nothing of that
            outcome = outcome if old.since is not None else replace(outcome, history=())
        outcomes.append(outcome)
        if old.state is not State.LIVE:  # a commit of ours, also where nothing differs
            created.append(copy.name)
        records.append(
            replace(
                copy,
                state=old.on(TableEvent.RECONCILED).state,
                frontier=None,
                handoff=None,
                since=old.since if continues else frontier.time,
                raw_columns=tuple(sorted({*old.raw_columns, *copy.raw_columns})),
                copy_id=None,
            )
        )
    gone = [*copies, *failed_copies(ledger)]
    records += [_given_up(ledger, copy) for copy in failed_copies(ledger)]
    return Epoch(
        kind=RECONCILE,
        frontier=frontier,
        records=tuple(records),
        outcomes=tuple(outcomes),
        removed_tables=tuple(gone),
        new_tables=tuple(created),
        source=replace(source, recovering=None),
        changes=sum(outcome.changes for outcome in outcomes),
    )


def giving_up(ledger: Ledger, copies: Sequence[TableRecord]) -> Epoch:
    """Make the epoch that ends failed new copies: their tables stay as they are."""
    return Epoch(
        kind="stop",
        frontier=ledger.frontier,
        records=tuple(_given_up(ledger, copy) for copy in copies),
        removed_tables=tuple(copies),
    )


def _given_up(ledger: Ledger, copy: TableRecord) -> TableRecord:
    """Return the record of a table whose new copy failed; after a lost position it stops."""
    old = ledger.tables[copy.name]
    if old.state is State.STOPPED or ledger.recovering:
        return old.with_error(copy.error, ledger.frontier)
    return old


def clean_up(ledger: Ledger) -> None:
    """Remove the files of copies that the catalog on the disk does not name any more."""
    folder = layout.staged_tables_folder(ledger.name)
    known = {record.copy_id for record in ledger.staged.values()}
    spent = set(ledger.store.folders(folder)) - known
    # Another writer's mark means that the source is theirs, and so may be files that we don't know.
    if not spent or not ledger.durable or ledger.log.newest_mark() != ledger.mark:
        return
    for copy_id in spent:
        _remove(ledger.store, layout.staged_folder(ledger.name, copy_id))
        ledger.live.forget(layout.staged_folder(ledger.name, copy_id))


def _remove(store: Store, folder: str) -> None:
    for key in store.list(folder):
        store.delete(key)


# --- one table ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pair:
    """The two contents of a table, ready to be compared."""

    terms: ComparisonTerms
    old: TableTask
    copy: TableTask
    side_files: tuple[SideFile, ...]
    is_resorted: bool  # the files of the old one are sorted by another identity

    @property
    def rows(self) -> int:
        return sum(side_file.file.alive for side_file in self.side_files)


def _pair(ledger: Ledger, old: TableRecord, copy: TableRecord, frontier: Position) -> _Pair:
    refuse_other_columns(copy.name, old.schema, copy.schema)
    if old.state is State.STOPPED:  # another program may have changed its files
        ledger.live.forget(ledger.task_folder(old.name))
    old_task, new_task = ledger.task(replace(old, schema=copy.schema)), ledger.task(copy)
    both = tuple(sorted({*old.raw_columns, *copy.raw_columns}))
    given = ComparisonTerms(
        epoch=ledger.mark.epoch + 1,
        lake=ledger.address,
        table=replace(
            old_task, routes=Routes.over(()), raw_columns=both, handoff=None, from_sorted_runs=True
        ),
        moment=DifferenceMoment(frontier.last, time.time_ns() // 1000),
        folder=f"{layout.staged_folder(ledger.name, stage_of(copy))}/difference",
    )
    side_files = (
        *differences.side_files(given, old_task, new=False),
        *differences.side_files(given, new_task, new=True),
    )
    return _Pair(given, old_task, new_task, side_files, old.schema.identity != copy.schema.identity)


def _replace(runner: Workers, pair: _Pair, checksums: KnownChecksums) -> Outcome:
    jobs = runner.jobs(pair.rows)
    checksums.complete(pair.side_files, jobs)
    different = checksums.different(pair.side_files)
    answers = jobs.run_grouped(
        differences.apart, differences.compare, [pack(side_file) for side_file in different]
    )
    outcomes = [unpack(answer, LotResult) for answer in answers]
    # Each change of the difference is counted where it is found.
    found = Outcome(
        pair.copy.name,
        changes=sum(each.changes for each in outcomes),
        unfit_columns=pair.terms.table.raw_columns,
    )
    if not found.changes and not pair.is_resorted:
        return found
    if pair.copy.schema.is_multiset or pair.is_resorted or any(each.has_double_keys for each in outcomes):
        return _rewritten(jobs, pair, checksums).combine(found)
    events = [each.events for each in outcomes if each.events is not None]
    applied = _apply(jobs, pair, events, checksums)
    if (failure := verdict(applied)) is not None:
        raise failure
    return replace(applied, changes=0).combine(found)


def _apply(jobs: Jobs, pair: _Pair, events: Iterable[str], checksums: KnownChecksums) -> Outcome:
    """Merge the difference into the files that it concerns."""
    task = replace(pair.terms.table, routes=pair.old.routes)
    rows = {
        new: sum(side_file.file.alive for side_file in pair.side_files if side_file.new == new)
        for new in (False, True)
    }
    if 2 * rows[False] < rows[True] and (cuts := checksums.cuts(pair.side_files)):
        task = replace(task, routes=replace(task.routes, births=cuts))
    items = [pack(Applying(pair.terms, task, each)) for each in events]
    return _sum_rows(pair, jobs.run_grouped(differences.route, merge, items))


def _rewritten(jobs: Jobs, pair: _Pair, checksums: KnownChecksums) -> Outcome:
    """Write all rows anew."""
    items = [pack(side_file) for side_file in checksums.everything(pair.side_files)]
    outcome = _sum_rows(pair, jobs.run_grouped(differences.apart, differences.rewrite, items))
    errors = differences.standing_errors(pair.terms, pair.old, pair.copy)
    gone = tuple(side_file.file.path for side_file in pair.side_files if not side_file.new)
    return replace(outcome, remove=gone, errors=errors)


def _sum_rows(pair: _Pair, answers: Iterable[bytes]) -> Outcome:
    outcomes = Outcomes()
    outcomes.take(Outcome(pair.copy.name))
    for answer in answers:
        outcomes.take(unpack(answer, Outcome))
    return outcomes.tables[pair.copy.name]
