"""The ledger: the state of a source in the lake as its one writer sees it, and the way of an epoch into it.

    outcomes ─► plan ─► tables, histories, errors ─► mark        `lake.log.commit` does and redoes this
                                                      │
                                    in memory: records, files, versions are moved on only now
                                                      │
                                    `Acknowledger`: makes the mark durable, and acknowledges it upstream

An attempt rebuilds the ledger from the lake alone.

A mark is public as soon as it is appended. It may be acknowledged only when everything that it rests on
would survive the machine losing power: data files, plan, logs, mark, and the folders above them. That
costs milliseconds of `fsync`, so a thread of its own does it, newest mark last, while the next epoch is
under way. The source sends unacknowledged transactions again; after an early acknowledgement they are lost
for ever.
"""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.core.errors import Definite, HeadraceError, Transient
from headrace.core.failpoint import failpoint
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.ingest.last_commits import COMMITS_KEY, last_commits_of
from headrace.lake.format import layout
from headrace.lake.format.plan import Plan
from headrace.lake.log import catalog, unknown_moments
from headrace.lake.log.commit import Claim, StepFailed, UnfinishablePlan, open_log, plan_base
from headrace.lake.log.marks import Mark
from headrace.lake.log.unknown_moments import TimeGap
from headrace.lake.store.contract import Store
from headrace.lake.store.many import at_once
from headrace.pipeline.state.epoch import Epoch, Planner, Records, has_room, moved_error, rests_on
from headrace.pipeline.state.live_tables import LiveTables, folders_of
from headrace.pipeline.state.ownership import mend
from headrace.pipeline.state.records import (
    LATE_PREFIX,
    SOURCE_KEY,
    STAGED_PREFIX,
    LateFile,
    SourceRecord,
    TableRecord,
    frontiers_behind,
    is_file_needed,
    late_file_changes,
    late_files_of,
    source_of,
    tables_of,
)
from headrace.pipeline.state.table_state import State
from headrace.pipeline.tasks.routing import Routes
from headrace.pipeline.tasks.table_task import LakeAddress, TableTask

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class Ledger:
    """The state of one source in the lake; making one takes the source over.

    With the `claim` of an earlier attempt this succeeds only if nobody else took the source over since.
    """

    def __init__(self, store: Store, name: str, *, strict: bool = False, claim: Claim | None = None) -> None:
        self.store = store
        self.name = name
        self._strict = strict
        self.address = LakeAddress(store.url)
        self.live = LiveTables(store, name)
        if claim is None or not claim.is_held:
            mend(store, name)
        self.log = open_log(store, name, self.live.table, claim=claim)
        taken = self.log.takeover()
        self.mark: Mark = taken.mark
        self.blocked = taken.unfinishable
        self.is_incomplete = False  # an epoch was begun and has not ended: make a new ledger
        self._catalog = catalog.load(store, name, self.mark.epoch)
        self.tables = tables_of(self._catalog.records)
        self.staged = tables_of(self._catalog.records, STAGED_PREFIX)
        self.source = source_of(self._catalog.records)
        self.last_commits = last_commits_of(self._catalog.records)
        self.kept = late_files_of(self._catalog.records)
        self._behind: Mapping[TableName, Position] | None = None  # where the tables stood at the last epoch
        stray = {key.rpartition("/")[2] for key in store.list(layout.late_folder(name))} - self.kept.keys()
        self._stray = tuple(sorted(stray))  # files of failed epochs
        # An earlier attempt may have failed to sync them.
        self._inherited: tuple[str, ...] = tuple(self.kept)

    @property
    def frontier(self) -> Position:
        return self.mark.position

    @property
    def position(self) -> Position:
        """The position of the stream: the mark's frontier, except during a recovery of a lost position."""
        if self.source is None or self.source.recovering is None:
            return self.frontier
        return self.source.recovering

    @property
    def recovering(self) -> bool:
        """Tell whether the tables stay as they are until new copies of all of them replace them."""
        return self.source is not None and self.source.recovering is not None

    @property
    def present(self) -> list[TableRecord]:
        """The tables and their new copies; during a recovery of a lost position the new copies alone."""
        return [*(() if self.recovering else self.tables.values()), *self.staged.values()]

    @property
    def followed_tables(self) -> list[TableRecord]:
        """The tables to which the stream is applied, and their new copies."""
        return [record for record in self.present if record.state.follows]

    @property
    def catching_up(self) -> list[TableRecord]:
        """The tables whose copy is in and that have yet to take the late files kept for them.

        A table that begins at a later position is not among them until the stream is there.
        """
        behind = (record for record in self.present if record.state is State.CATCHING_UP)
        return [record for record in behind if (record.frontier or self.position) <= self.position]

    @property
    def awaited_tables(self) -> dict[TableName, TableRecord]:
        """The tables that wait for their copy, or for their new one."""
        return {record.name: record for record in self.present if record.state.awaits_copy}

    def foreign(self) -> dict[TableName, Definite]:
        """Find the tables that another program changed since our last commit; accept a pure rewrite."""
        plan_base(self.live.table(layout.errors_folder(self.name)))  # shared: raises for all tables
        found = {}
        for name, record in self.tables.items():
            if record.state is not State.STOPPED:
                history = layout.history_folder(self.name, name, record.schema.version)
                try:
                    for table in (self.live.table(self.task_folder(name)), self.live.table(history)):
                        plan_base(table)
                        rests_on(self.log.syncing, table)
                except Definite as error:
                    found[name] = error
        return found

    def task_folder(self, name: TableName) -> str:
        return layout.table_folder(self.name, name)

    def task(self, record: TableRecord) -> TableTask:
        """Describe a table as the tasks of the next epoch need it."""
        outline = self.outline(record)
        return replace(outline, routes=Routes.over(list(self.live.ranges(outline.folder).values())))

    def outline(self, record: TableRecord) -> TableTask:
        """Describe a table without its files: all that decoding needs. Any thread may call this."""
        held = record.handoff is not None and record.state.asks_handoff
        folders = folders_of(self.name, record)
        return TableTask(
            name=record.name,
            schema=record.schema,
            folder=folders.rows,
            history_folder=folders.history,
            errors_folder=folders.errors,
            routes=Routes.over(()),
            applied_until=(record.frontier or self.position).time,
            handoff=record.handoff if held else None,
            raw_columns=() if record.schema.full else record.raw_columns,
            strict=self._strict,
            has_errors=bool(record.raw_columns),
            complete_from=(record.since or 0) - 1 if record.late and held else 0,
            history_start=record.complete_from,
            details=record.details,
        )

    # --- an epoch -----------------------------------------------------------------------------

    def publish(self, epoch: Epoch) -> Plan:
        """Write the plan, carry it out, publish its mark; then update the state in memory."""
        self.is_incomplete = True
        after = Records.of(self.tables, self.staged, epoch)
        planner = Planner(self.live, self.log.syncing, self.mark.epoch + 1)
        steps = tuple(planner.steps(epoch, after))
        source = epoch.source or self.source
        behind = frontiers_behind(after.present(source))
        kept = _late_files(self.kept, epoch.late_file, behind, same=behind == self._behind)
        unseen = frozenset() if epoch.all_seen else _unseen_tables(self.tables, self.mark)
        plan = Plan(
            source=self.name,
            epoch=planner.number,
            plan_id=uuid.uuid4().hex,
            kind=epoch.kind,
            incarnation=1 if source is None else source.incarnation,
            frontier=epoch.frontier.text,
            time=epoch.frontier.last,
            upstream_commit_ts=_iso(epoch.commit_ts),
            transactions=epoch.transactions,
            changes=epoch.changes,
            steps=steps,
            versions=planner.versions(after.tables, steps, epoch.absent | unseen),
            state=_state(epoch, source if source != self.source else None)
            | _unseen_before(epoch, self.mark, self._catalog.records)
            | late_file_changes(self.kept, kept),
            complete_until=_complete_until(self.mark, epoch),
            upstream_earliest_commit_ts=_iso(epoch.earliest_commit_ts),
        )
        self.log.put_plan(plan)
        outcome = self.log.finish(plan)
        if isinstance(outcome, UnfinishablePlan):
            if isinstance(outcome.error, StepFailed):
                raise _begin_again(outcome.error)  # the next takeover tries again, or withdraws it
            self.log.withdraw(outcome)
            raise moved_error(outcome.step.path, outcome.error)
        self.mark = outcome
        self.kept, self._behind = kept, behind
        self.last_commits = epoch.commits or self.last_commits
        self._move_on(epoch, after, source)
        self._catalog = self._catalog.after(plan)
        catalog.save(self.store, self._catalog)
        self.is_incomplete = False
        return plan

    @property
    def durable(self) -> bool:
        """Tell whether no power cut can take the newest mark back."""
        return self.log.syncing.durable >= self.mark.epoch

    def sync(self, plan: Plan | None = None) -> None:
        """Make all that the plan's mark rests on durable; only then delete late files that nobody needs.

        Without a plan, sync what the lake held when the source was taken over.
        """
        state = {} if plan is None else plan.state
        names = {
            key[len(LATE_PREFIX) :]: record for key, record in state.items() if key.startswith(LATE_PREFIX)
        }
        places = {name: layout.late_key(self.name, name) for name in (*names, *self._stray)}
        came = [name for name, record in names.items() if record is not None]
        came += self._inherited  # before files are deleted that the last owner's epoch took into them
        late = [layout.late_key(self.name, name) for name in came]
        there = at_once(self.store.exists, late)
        self.store.sync([key for key, is_there in zip(late, there, strict=True) if is_there])
        self.log.syncing.sync(plan)
        gone = [place for name, place in places.items() if names.get(name) is None]
        if gone:
            failpoint("late.remove.before")
        for _ in at_once(self.store.delete, gone):
            pass
        self._stray = self._inherited = ()

    def _move_on(self, epoch: Epoch, after: Records, source: SourceRecord | None) -> None:
        for record, outcome in after.of_outcomes(epoch):
            self.live.move_on(folders_of(self.name, record).rows, outcome)
        self.tables, self.staged = after.tables, after.staged_copies
        self.source = source
        for record in epoch.removed_tables:
            self.live.leave(folders_of(self.name, record).rows)


def _begin_again(error: StepFailed) -> Transient:
    return Transient(
        "LAKE_PLAN_WITHDRAWN",
        "an epoch could not be carried out",
        detail=f"{error.primary}: {error.detail}",
        hint="nothing to do: it is taken back, and the table at fault stops",
    )


def _late_files(
    known: Mapping[str, LateFile], new: LateFile | None, behind: Mapping[TableName, Position], *, same: bool
) -> dict[str, LateFile]:
    """Find the late files that are needed after an epoch; `same`: no table has moved, so known files stay.

    A large copy collects many files, so it would be slow to check each of them after each epoch.
    """
    if new is not None and new.replaces:
        known = {name: file for name, file in known.items() if name not in new.replaces}
    files = [*(() if same else known.values()), *(() if new is None else (new,))]
    needed = {file.name: file for file in files if is_file_needed(file, behind)}
    return {**known, **needed} if same else needed


def _unseen_tables(tables: Mapping[TableName, TableRecord], mark: Mark) -> frozenset[TableName]:
    """Find live tables that the last mark omits and that no look has seen since."""
    live = (name for name, record in tables.items() if record.state.is_named)
    return frozenset(name for name in live if str(name) not in mark.versions)


def _state(epoch: Epoch, source: SourceRecord | None) -> dict[str, Any]:
    state: dict[str, Any] = {record.key: None for record in epoch.removed_tables}
    state |= {record.key: to_record(record) for record in epoch.records}
    if source is not None:
        state[SOURCE_KEY] = to_record(source)
    if epoch.commits is not None:
        state[COMMITS_KEY] = to_record(epoch.commits)
    return state


def _unseen_before(epoch: Epoch, mark: Mark, records: Mapping[str, Any]) -> dict[str, Any]:
    """Record in the catalog the unknown moments before a stream that begins."""
    begun, known = _moment(epoch.begun_at), unknown_moments.of(records)
    if begun is None or (known is None and SOURCE_KEY in records):
        return {}
    return {
        unknown_moments.KEY: unknown_moments.record((*(known or ()), TimeGap(mark.complete_until, begun)))
    }


def lacks_room(ledger: Ledger) -> bool:
    """Tell whether a new copy that is ready waits for a later position, where its mark has room."""
    ready = any(record.state is State.READY for record in ledger.staged.values())
    return ready and not has_room(ledger.position.time)


def _complete_until(before: Mark, epoch: Epoch) -> str | None:
    """Keep the latest `complete until`: it never moves back, whatever a clock does."""
    both = (before.complete_until, _moment(epoch.complete_until))
    return max((moment.isoformat() for moment in both if moment is not None), default=None)


def _iso(commit_ts: int | None) -> str | None:
    moment = _moment(commit_ts)
    return None if moment is None else moment.isoformat()


def _moment(microseconds: int | None) -> datetime | None:
    if microseconds is None:
        return None
    return _BEGINNING + timedelta(microseconds=microseconds)  # a float cannot hold each of them


# --- the acknowledgement of a mark ----------------------------------------------------------------


Published = tuple[Plan | None, Position]


class Acknowledger:
    """Makes published epochs durable and then acknowledges them, in order."""

    def __init__(self, sync: Callable[[Plan | None], None], acknowledge: Callable[[Position], None]) -> None:
        self._sync = sync
        self._acknowledge = acknowledge
        self._queue: queue.SimpleQueue[Published | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self.acknowledged: Position | None = None
        self._thread = threading.Thread(target=self._work, name="headrace-acknowledger", daemon=True)
        self._thread.start()

    def on_published(self, plan: Plan | None, frontier: Position) -> None:
        """Queue a plan whose mark is public; acknowledge `frontier` once the mark is durable.

        Without a plan, make durable what the lake held when the source was taken over.
        """
        self._queue.put((plan, frontier))

    def check(self) -> None:
        """Raise the error that the thread has met, if any."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Acknowledge all published marks, then end."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            plan, frontier = item
            try:
                self._sync(plan)
                failpoint("acknowledge.before")
                self._acknowledge(frontier)
                failpoint("acknowledge.after")
            except HeadraceError as error:
                self._error = error
                return
            except BaseException as error:
                # A bug must not end acknowledgement in silence: the main thread raises it.
                self._error = error
                raise
            self.acknowledged = frontier
