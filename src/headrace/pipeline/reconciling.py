"""Reconcile: a table is copied anew beside the old one, and the difference becomes updates in one mark.

    asked for ─► a new copy, CHOSEN ─► JOINING ─► LIVE       its files are staged, and in no mark
    the table    as it was: live and in the marks, or stopped        │  both stand at the same place
                                                                     ▼
                 compared by ranges of keys (`differing`) ─► one epoch: the difference, at a time of its own

The old contents stay what every reader has until that epoch's mark, and history tells the difference as
ordinary updates of no transaction (`_xid` 0). A table that was exact until then stays exact at all times of
its interval; of one that was not, a new one begins there. The new copy is joined to the stream by the same
handoffs and states as a first one (`harvest`, `streaming`); it only lies elsewhere.

The mark before the difference leaves room for it (`streaming.with_room`), since no two marks with different
contents may have one time. Where the source is so idle that its position does not move, a slot is made and
dropped for a moment: that moves it.

Called by the loop of `lifecycle`. What a comparison writes for itself lies in the copy's own folder, which is
removed with it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.core.difference import Moment
from headrace.core.errors import Definite
from headrace.core.names import TableName
from headrace.core.position import Lsn
from headrace.core.schema import TableSchema
from headrace.lake import layout
from headrace.lake.store import Store
from headrace.pipeline import differing
from headrace.pipeline.differing import Applying, Compared, Comparison, Half
from headrace.pipeline.ledger import RECONCILE, Epoch, Ledger
from headrace.pipeline.merging import merge
from headrace.pipeline.records import TableRecord
from headrace.pipeline.routing import Routes
from headrace.pipeline.states import Event, State
from headrace.pipeline.streaming import ROOM, verdict
from headrace.pipeline.tasks import Outcome, Outcomes, join_ipc, pack, unpack
from headrace.spark.jobs import Jobs

if TYPE_CHECKING:
    from headrace.pipeline.streaming import Workshop


def staged(record: TableRecord, stage: str, applied: Lsn) -> TableRecord:
    """The record of a new copy of a table, from this position of the stream on."""
    return replace(
        record,
        state=State.CHOSEN,
        applied=applied,
        handoff=None,
        since=None,
        held=0,
        shadows=(),
        error=None,
        stopped_at=None,
        kept=False,
        stage=stage,
    )


def refuse_other_columns(name: TableName, old: TableSchema, new: TableSchema) -> None:
    """The difference between contents of other columns can't be told in their history."""
    if old.columns != new.columns:
        raise Definite(
            "RECONCILE_COLUMNS_CHANGED",
            f"{name} has other columns than its history in the lake",
            detail=f"now {_named(new)}; in the lake {_named(old)}",
            hint="give it the old columns again, or mirror it into a new lake",
        )


def _named(schema: TableSchema) -> str:
    return ", ".join(f"{column.name} {column.source_type}" for column in schema.columns)


def ready(ledger: Ledger) -> list[TableRecord]:
    """The new copies that can replace their tables now; none before all can, where all have to."""
    exact = [record for record in ledger.staged.values() if record.state is State.LIVE]
    others = [r for r in ledger.staged.values() if r.state not in (State.LIVE, State.STOPPED)]
    return [] if ledger.healing and others else exact


def refused(ledger: Ledger) -> list[TableRecord]:
    """The new copies that failed."""
    return [record for record in ledger.staged.values() if record.state is State.STOPPED]


def is_over(ledger: Ledger) -> bool:
    """Whether a healing has nothing left to wait for."""
    return ledger.healing and all(r.state in (State.LIVE, State.STOPPED) for r in ledger.staged.values())


def epoch(ledger: Ledger, workshop: Workshop, copies: Sequence[TableRecord]) -> Epoch:
    """The new copies in the place of their tables, and the end of those that failed."""
    frontier = Lsn(int(ledger.position) + ROOM)
    records, outcomes, created = [], [], []
    for copy in copies:
        old = ledger.tables[copy.name]
        try:
            outcome = _replaced(ledger, workshop, old, copy, frontier)
        except Definite as error:
            records.append(old.failed(error, ledger.frontier))
            continue
        continues = old.state is State.LIVE and not ledger.healing
        if not continues:  # what it was before is not exact up to here, and history tells nothing of that
            outcome = outcome if old.since is not None else replace(outcome, history=())
        outcomes.append(outcome)
        if old.state is not State.LIVE:  # a commit of ours, also where nothing differs
            created.append(copy.name)
        records.append(
            replace(
                copy,
                state=old.on(Event.RECONCILED).state,
                applied=None,
                handoff=None,
                since=old.since if continues else int(frontier),
                shadows=tuple(sorted({*old.shadows, *copy.shadows})),
                stage=None,
            )
        )
    gone = [*copies, *refused(ledger)]
    records += [_given_up(ledger, copy) for copy in refused(ledger)]
    source = ledger.source
    assert source is not None
    return Epoch(
        kind=RECONCILE,
        frontier=frontier,
        records=tuple(records),
        outcomes=tuple(outcomes),
        removed=tuple(gone),
        created=tuple(created),
        source=replace(source, healing=None),
        changes=sum(outcome.changes for outcome in outcomes),
    )


def giving_up(ledger: Ledger, copies: Sequence[TableRecord]) -> Epoch:
    """The end of new copies that failed: their tables stay what they are."""
    return Epoch(
        kind="stop",
        frontier=ledger.frontier,
        records=tuple(_given_up(ledger, copy) for copy in copies),
        removed=tuple(copies),
    )


def _given_up(ledger: Ledger, copy: TableRecord) -> TableRecord:
    """A table whose new copy failed: of a lost position there is nothing to fall back to."""
    old = ledger.tables[copy.name]
    if old.state is State.STOPPED or ledger.healing:
        return old.failed(copy.error, ledger.frontier)
    return old


def clean_up(ledger: Ledger) -> None:
    """Remove the files of copies that the catalog does not know any more."""
    folder = layout.staged_tables_folder(ledger.name)
    known = {record.stage for record in ledger.staged.values()}
    for stage in set(ledger.store.folders(folder)) - known:
        _remove(ledger.store, layout.staged_folder(ledger.name, stage))
        ledger.forget_folder(layout.staged_folder(ledger.name, stage))


def _remove(store: Store, folder: str) -> None:
    for key in store.list(folder):
        store.delete(key)


# --- one table ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pair:
    """The two contents of a table, ready to be compared."""

    given: Comparison
    old: TableRecord
    copy: TableRecord
    jobs: Jobs
    halves: tuple[Half, ...]


def _replaced(
    ledger: Ledger, workshop: Workshop, old: TableRecord, copy: TableRecord, frontier: Lsn
) -> Outcome:
    refuse_other_columns(copy.name, old.schema, copy.schema)
    pair = _pair(ledger, workshop, old, copy, frontier)
    outcomes = [
        unpack(a, Compared) for a in pair.jobs.run_grouped(differing.apart, differing.compare, _items(pair))
    ]
    changes = sum(found.changes for found in outcomes)
    found = Outcome(copy.name, changes=changes, met=copy.shadows)
    if not changes and old.schema.identity == copy.schema.identity:
        return found
    resorted = old.schema.identity != copy.schema.identity
    if copy.schema.is_multiset or resorted or any(each.doubled for each in outcomes):
        return _rewritten(ledger, pair).combine(found)
    applied = _applied(ledger, pair, [each.events for each in outcomes if each.events is not None])
    if (failure := verdict(applied)) is not None:
        raise failure
    # Each change of the difference was counted when it was found.
    return replace(applied, changes=0).combine(found)


def _pair(ledger: Ledger, workshop: Workshop, old: TableRecord, copy: TableRecord, frontier: Lsn) -> _Pair:
    if old.state is State.STOPPED:  # another program may have changed its files
        ledger.forget_folder(ledger.task_folder(old.name))
    tasks = {False: ledger.task(replace(old, schema=copy.schema)), True: ledger.task(copy)}
    both = tuple(sorted({*old.shadows, *copy.shadows}))
    assert copy.stage is not None
    given = Comparison(
        epoch=ledger.mark.epoch + 1,
        lake=ledger.address,
        table=replace(tasks[False], routes=Routes.over(()), shadows=both, handoff=None, layered=True),
        moment=Moment(int(frontier) - 1, time.time_ns() // 1000),
        folder=f"{layout.staged_folder(ledger.name, copy.stage)}/difference",
    )
    halves = [h for new, task in tasks.items() for h in differing.halves(given, task, new=new)]
    rows = sum(half.file.rows for half in halves)
    jobs = workshop.jobs(rows)
    bounds: tuple[bytes, ...] = ()
    if rows > differing.ROWS_PER_RANGE:
        bounds = differing.bounds(jobs.run(differing.sample, [pack(half) for half in halves]), rows)
    return _Pair(given, old, copy, jobs, tuple(replace(half, bounds=bounds) for half in halves))


def _items(pair: _Pair) -> list[bytes]:
    return [pack(half) for half in pair.halves]


def _applied(ledger: Ledger, pair: _Pair, events: Iterable[str]) -> Outcome:
    """The difference, merged into the files that it concerns."""
    task = replace(pair.given.table, routes=ledger.task(pair.old).routes)
    bounds = pair.halves[0].bounds
    if len(bounds) > 1 and 2 * ledger.rows(pair.old.name) < sum(h.file.rows for h in pair.halves if h.new):
        task = replace(task, routes=replace(task.routes, births=bounds))
    items = [pack(Applying(pair.given, task, each)) for each in events]
    return _summed(pair, pair.jobs.run_grouped(differing.route, merge, items))


def _rewritten(ledger: Ledger, pair: _Pair) -> Outcome:
    """All rows anew."""
    outcome = _summed(pair, pair.jobs.run_grouped(differing.apart, differing.rewrite, _items(pair)))
    old = ledger.task(pair.old)
    errors = None
    for part in differing.standing_errors(pair.given, old, ledger.task(pair.copy)):
        errors = join_ipc(errors, part)
    return replace(outcome, remove=tuple(file.path for file in old.routes.files), errors=errors)


def _summed(pair: _Pair, answers: Iterable[bytes]) -> Outcome:
    outcomes = Outcomes()
    outcomes.take(Outcome(pair.copy.name))
    for answer in answers:
        outcomes.take(unpack(answer, Outcome))
    return outcomes.tables[pair.copy.name]
