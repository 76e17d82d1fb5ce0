"""The state of a source in the lake, as its one writer sees it, and how an epoch gets there.

    outcomes ─► plan ─► tables, histories, errors ─► mark        `lake.log.commit` does and redoes this
                                                      │
                                    in memory: records, files, versions are moved on only now

Everything here is rebuilt from the lake when a run begins; nothing is remembered anywhere else.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from headrace.core.errors import Definite, HeadraceError, Transient
from headrace.core.failpoint import failpoint
from headrace.core.history import history_schema
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.lake.format import datafile, formatfile, layout, schemas
from headrace.lake.format.plan import DataFile, Plan, TableStep
from headrace.lake.log import catalog, errors_table, foreign, unknown_moments
from headrace.lake.log.commit import Blocked, Claim, EpochLog, open_log, plan_base
from headrace.lake.log.marks import Mark
from headrace.lake.log.table import LakeTable, LiveFile
from headrace.lake.log.unknown_moments import Stretch
from headrace.lake.store.contract import Store
from headrace.lake.store.many import at_once
from headrace.pipeline.ingest.last_commits import COMMITS_KEY, LastCommits, last_commits_of
from headrace.pipeline.state import kept_files
from headrace.pipeline.state.kept_files import KEY, Kept, kept_of
from headrace.pipeline.state.records import (
    SOURCE_KEY,
    STAGED_PREFIX,
    SourceRecord,
    TableRecord,
    held_back,
    source_of,
    tables_of,
)
from headrace.pipeline.state.repair import mend
from headrace.pipeline.state.table_state import Event, State, after
from headrace.pipeline.tasks.routing import WIDTH, FileRange, Routes
from headrace.pipeline.tasks.table_task import LakeAddress, NewFile, Outcome, TableTask, from_ipc

RECONCILE = "reconcile"  # the kind of an epoch that compared what was there, whoever wrote it
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
MAINTAIN = "maintain"  # the kind of an epoch that changes files and no contents


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Files of a folder other than a current state's that are exchanged; `same`: their rows stay."""

    folder: str
    add: tuple[DataFile, ...] = ()
    remove: tuple[str, ...] = ()
    same: bool = True

    def plus(self, add: tuple[DataFile, ...], remove: tuple[str, ...]) -> Rewrite:
        return replace(self, add=self.add + add, remove=self.remove + remove)


@dataclass(frozen=True, slots=True)
class Epoch:
    """The outcome of an epoch's work: records that change, outcomes of tasks, and how far it reaches."""

    kind: str
    frontier: Position
    records: tuple[TableRecord, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    staged: tuple[Outcome, ...] = ()  # of new copies
    removed: tuple[TableRecord, ...] = ()  # tables and copies that go; what it still says of them is the last
    created: tuple[TableName, ...] = ()  # tables whose first files this epoch brings
    replaced: frozenset[TableName] = frozenset()  # tables whose folder gets other columns, all rows gone
    absent: frozenset[TableName] = frozenset()  # tables that sit this mark out
    rewrites: tuple[Rewrite, ...] = ()
    looked: bool = False  # all were looked at: those that sat out the mark before may be named again
    source: SourceRecord | None = None
    commits: LastCommits | None = None  # the newest of the stream, where that is news
    kept: Kept | None = None  # what the stream has for tables that are being copied
    transactions: int = 0
    changes: int = 0
    commit_ts: int | None = None  # the latest of the transactions, microseconds since 1970
    earliest_commit_ts: int | None = None
    complete_until: int | None = None  # of the source's clock; None: what the mark before says
    begun: int | None = None  # a stream begins with this epoch; the source's clock once its start was settled


class Ledger:
    """The state of one source in the lake; making one takes the source over.

    With the same `claim` as before it is taken over again only if nobody else did so in between.
    """

    def __init__(self, store: Store, name: str, *, strict: bool = False, claim: Claim | None = None) -> None:
        self.store = store
        self.name = name
        self._strict = strict
        self.address = LakeAddress(store.url)
        self._open: dict[str, LakeTable] = {}
        self._files: dict[str, dict[str, FileRange]] = {}  # by folder
        self._rows: dict[TableName, int] = {}
        if claim is None or not claim.held:
            mend(store, name)
            formatfile.upgrade(store)
        self.log = open_log(store, name, self.table, claim=claim)
        taken = self.log.takeover()
        self.mark: Mark = taken.mark
        self.blocked = taken.blocked
        self.torn = False  # an epoch was begun and has not ended: only a new ledger knows how it stands
        self._catalog = catalog.load(store, name, self.mark.epoch)
        self.tables = tables_of(self._catalog.records)
        self.staged = tables_of(self._catalog.records, STAGED_PREFIX)
        self.source = source_of(self._catalog.records)
        self.last_commits = last_commits_of(self._catalog.records)
        self.kept = kept_of(self._catalog.records)
        self.held_back = held_back(self._catalog.records)
        stray = {key.rpartition("/")[2] for key in store.list(layout.late_folder(name))} - self.kept.keys()
        self._stray = tuple(sorted(stray))  # of epochs that came to nothing
        self._inherited = tuple(self.kept)  # an earlier attempt may have met a disk that refused them

    @property
    def frontier(self) -> Position:
        return self.mark.position

    @property
    def position(self) -> Position:
        """The place of the stream: the mark's frontier, but while a lost position is recovered."""
        if self.source is None or self.source.recovering is None:
            return self.frontier
        return self.source.recovering

    @property
    def recovering(self) -> bool:
        """Tell whether the tables stay as they are until new copies of all of them replace them."""
        return self.source is not None and self.source.recovering is not None

    @property
    def present(self) -> list[TableRecord]:
        """The tables and their new copies; while a lost position is left the tables stay what they are."""
        return [*(() if self.recovering else self.tables.values()), *self.staged.values()]

    @property
    def followed(self) -> list[TableRecord]:
        """The tables to which the stream is applied, and their new copies."""
        return [record for record in self.present if record.state.follows]

    @property
    def catching_up(self) -> list[TableRecord]:
        """Those whose copy is in, and that have yet to take what was kept for them."""
        return [record for record in self.present if record.state is State.CATCHING_UP]

    @property
    def awaited(self) -> dict[TableName, TableRecord]:
        """The tables that wait for their copy, or for their new one."""
        return {record.name: record for record in self.present if record.state.awaits_copy}

    def rows(self, name: TableName) -> int:
        """The number of rows of a table in the lake."""
        folder = self.task_folder(name)
        if folder in self._files:
            return sum(file.rows for file in self._files[folder].values())
        if name not in self._rows:  # not touched in this run, so it stays what the log says
            live = self.table(folder).files().values()
            self._rows[name] = sum(file.rows for file in live)
        return self._rows[name]

    def table(self, folder: str) -> LakeTable:
        """A Delta table, opened once."""
        if folder not in self._open:
            self._open[folder] = foreign.opened(self.store, self.name, folder)
        return self._open[folder]

    def foreign(self) -> dict[TableName, Definite]:
        """The tables that another program changed since our last commit; a pure rewrite is absorbed."""
        plan_base(self.table(layout.errors_folder(self.name)))  # everybody's: true of the whole source
        found = {}
        for name, record in self.tables.items():
            if record.state is not State.STOPPED:
                history = layout.history_folder(self.name, name, record.schema.version)
                try:
                    for table in (self.table(self.task_folder(name)), self.table(history)):
                        plan_base(table)
                        _rests_on(self.log, table)
                except Definite as error:
                    found[name] = error
        return found

    def forget_folder(self, folder: str) -> None:
        """Forget what lay there: it is gone."""
        for known in (self._open, self._files):
            for path in [path for path in known if f"{path}/".startswith(f"{folder}/")]:
                known.pop(path)

    def task_folder(self, name: TableName) -> str:
        return layout.table_folder(self.name, name)

    def task(self, record: TableRecord) -> TableTask:
        """A table as the tasks of the next epoch need it."""
        outline = self.outline(record)
        return replace(outline, routes=Routes.over(list(self._ranges(outline.folder).values())))

    def outline(self, record: TableRecord) -> TableTask:
        """A table without its files: all that decoding needs. Any thread may ask."""
        held = record.handoff is not None and record.state.asks_handoff
        folders = _folders(self.name, record)
        return TableTask(
            name=record.name,
            schema=record.schema,
            folder=folders.rows,
            history_folder=folders.history,
            errors_folder=folders.errors,
            routes=Routes.over(()),
            applied=(record.applied or self.position).time,
            handoff=record.handoff if held else None,
            raw_columns=() if record.schema.full else record.raw_columns,
            strict=self._strict,
            met=bool(record.raw_columns),
            untold=(record.since or 0) - 1 if record.late and held else 0,
            details=record.details,
        )

    # --- an epoch -----------------------------------------------------------------------------

    def publish(self, epoch: Epoch) -> Plan:
        """Write the plan, carry it out, publish its mark; then move on in memory."""
        self.torn = True
        after = _Records.of(self.tables, self.staged, epoch)
        steps = tuple(self._steps(epoch, after))
        source = epoch.source or self.source
        kept = _kept(self.kept, epoch.kept, after.present(source))
        unseen = frozenset() if epoch.looked else _unseen(self.tables, self.mark)
        plan = Plan(
            source=self.name,
            epoch=self.mark.epoch + 1,
            plan_id=uuid.uuid4().hex,
            kind=epoch.kind,
            incarnation=1 if source is None else source.incarnation,
            frontier=epoch.frontier.text,
            time=epoch.frontier.last,
            upstream_commit_ts=_iso(epoch.commit_ts),
            transactions=epoch.transactions,
            changes=epoch.changes,
            steps=steps,
            versions=self._versions(after.tables, steps, epoch.absent | unseen),
            state={key: self._catalog.records[key] for key in self._catalog.old}
            | _state(epoch, source if source != self.source else None)
            | _unseen_before(epoch, self.mark, self._catalog.records)
            | kept_files.moves(self.kept, kept),
            complete_until=_complete_until(self.mark, epoch),
            upstream_earliest_commit_ts=_iso(epoch.earliest_commit_ts),
        )
        self.log.put_plan(plan)
        outcome = self.log.finish(plan)
        if isinstance(outcome, Blocked):
            self.log.withdraw(outcome)
            raise _moved(outcome.step.path, outcome.error)
        self.mark = outcome
        self.kept = kept
        self.last_commits = epoch.commits or self.last_commits
        self._move_on(epoch, after, source)
        self._catalog = self._catalog.after(plan)
        catalog.save(self.store, self._catalog)
        self.torn = False
        return plan

    @property
    def durable(self) -> bool:
        """Tell whether no power cut can take the newest mark back."""
        return self.log.syncing.durable >= self.mark.epoch

    def sync(self, plan: Plan | None = None) -> None:
        """Make all that the plan's mark rests on durable; what no later epoch needs goes only then.

        Without a plan: what was there when the source was taken over.
        """
        state = {} if plan is None else plan.state
        names = {key[len(KEY) :]: record for key, record in state.items() if key.startswith(KEY)}
        places = {name: layout.late_key(self.name, name) for name in (*names, *self._stray)}
        came = [name for name, record in names.items() if record is not None]
        came += self._inherited if plan is None else ()
        late = [layout.late_key(self.name, name) for name in came]
        there = at_once(self.store.exists, late)
        self.store.sync([key for key, is_there in zip(late, there, strict=True) if is_there])
        self.log.syncing.sync(plan)
        gone = [place for name, place in places.items() if names.get(name) is None]
        if gone:
            failpoint("late.remove.before")
        for _ in at_once(self.store.delete, gone):
            pass
        self._stray = ()

    def _move_on(self, epoch: Epoch, after: _Records, source: SourceRecord | None) -> None:
        for record, outcome in after.of_outcomes(epoch):
            known = self._ranges(_folders(self.name, record).rows)
            for path in outcome.remove:
                known.pop(path, None)
            known.update({new.file.path: _range(new) for new in outcome.add})
        self.tables, self.staged = after.tables, after.staged
        self.source = source
        for record in epoch.removed:
            self._files.pop(_folders(self.name, record).rows, None)
            self._rows.pop(record.name, None)

    def _steps(self, epoch: Epoch, after: _Records) -> Iterable[TableStep]:
        errors: dict[str, list[bytes | DataFile]] = {}
        for record, outcome in after.of_outcomes(epoch):
            folders = _folders(self.name, record)
            if outcome.add or outcome.remove or outcome.table in epoch.created:
                added = tuple(new.file for new in outcome.add)
                schema = schemas.encode(record.schema.arrow())
                compared = epoch.kind == RECONCILE
                step = self._step(folders.rows, schema, added, outcome.remove, compared=compared)
                if outcome.table in epoch.replaced:
                    step = replace(step, schema=schema)
                yield replace(step, rewrite=epoch.kind == MAINTAIN)
            # What was told of a time that turned out to be before the table's `since`.
            # Of a table that was here before, the folder holds the history of another interval too.
            forgets = outcome.forgets and not record.late and record.copy_id is None
            forgotten = tuple(self.table(folders.history).files()) if forgets else ()
            if record.copy_id is None and (outcome.history or forgotten):
                schema = schemas.encode(history_schema(record.schema))
                yield self._step(folders.history, schema, outcome.history, forgotten)
            if outcome.errors:
                errors.setdefault(folders.errors, []).extend(outcome.errors)
        for folder, pieces in errors.items():
            if files := _errors(self.store, folder, self.mark.epoch + 1, pieces):
                yield self._step(folder, schemas.encode(errors_table.ERRORS), files)
        for each in epoch.rewrites:
            yield replace(self._step(each.folder, "", each.add, each.remove), rewrite=each.same)

    def _step(
        self,
        folder: str,
        schema: str,
        add: tuple[DataFile, ...],
        remove: tuple[str, ...] = (),
        *,
        compared: bool = False,
    ) -> TableStep:
        """`compared`: what is there was read just now, whoever wrote it."""
        table = self.table(folder)
        try:
            base = table.refresh() if compared else plan_base(table)
        except Definite as error:
            raise _moved(folder, error) from error
        _rests_on(self.log, table)
        return TableStep(folder, base, add, remove, schema if base < 0 else None)

    def _versions(
        self,
        after: Mapping[TableName, TableRecord],
        steps: tuple[TableStep, ...],
        absent: frozenset[TableName],
    ) -> dict[str, int]:
        stepped = {step.path: step.base + 1 for step in steps}
        versions = {}
        for name, record in after.items():
            if record.state.is_named and name not in absent:
                folder = layout.table_folder(self.name, name)
                versions[str(name)] = stepped.get(folder, self.table(folder).version)
        return versions

    # --- files ----------------------------------------------------------------------------------

    def _ranges(self, folder: str) -> dict[str, FileRange]:
        if folder not in self._files:
            live = self.table(folder).files()
            self._files[folder] = {path: self._ranged(folder, file) for path, file in live.items()}
        return self._files[folder]

    def _ranged(self, folder: str, file: LiveFile) -> FileRange:
        # A file that another program rewrote carries no range: any key may lie in it.
        low, high = datafile.read_range(self.store, folder, file.path) or (b"", b"\xff" * WIDTH)
        return FileRange(file.path, file.size, file.rows, low, high)


def _errors(
    store: Store, folder: str, epoch: int, pieces: Iterable[bytes | DataFile]
) -> tuple[DataFile, ...]:
    """The files of errors that an epoch brings: one of what came along, and those that are there."""
    pieces = list(pieces)
    files = [piece for piece in pieces if isinstance(piece, DataFile)]
    few = [from_ipc(piece) for piece in pieces if isinstance(piece, bytes)]
    if few and (rows := errors_table.netted(pa.concat_tables(few))).num_rows:
        files.append(errors_table.write(store, folder, layout.file_name(epoch), rows))
    return tuple(files)


@dataclass(frozen=True, slots=True)
class _Folders:
    """The folders of a table's rows, history and errors."""

    rows: str
    history: str
    errors: str


def _folders(source: str, record: TableRecord) -> _Folders:
    if record.copy_id is not None:
        folder = layout.staged_folder(source, record.copy_id)
        return _Folders(f"{folder}/rows", f"{folder}/history", f"{folder}/errors")
    return _Folders(
        layout.table_folder(source, record.name),
        layout.history_folder(source, record.name, record.schema.version),
        layout.errors_folder(source),
    )


@dataclass(frozen=True, slots=True)
class _Records:
    """All records as they are after an epoch."""

    tables: dict[TableName, TableRecord]
    staged: dict[TableName, TableRecord]

    @classmethod
    def of(
        cls, tables: Mapping[TableName, TableRecord], staged: Mapping[TableName, TableRecord], epoch: Epoch
    ) -> _Records:
        known = {record.key: record for record in (*tables.values(), *staged.values())}
        known |= {record.key: record for record in epoch.records}
        for record in epoch.removed:
            after(record.state, Event.DROPPED)
            known.pop(record.key, None)
        return cls(
            {record.name: record for record in known.values() if record.copy_id is None},
            {record.name: record for record in known.values() if record.copy_id is not None},
        )

    def present(self, source: SourceRecord | None) -> list[TableRecord]:
        """As the ledger's own."""
        recovering = source is not None and source.recovering is not None
        return [*(() if recovering else self.tables.values()), *self.staged.values()]

    def of_outcomes(self, epoch: Epoch) -> Iterable[tuple[TableRecord, Outcome]]:
        """The epoch's outcomes with the tables, or new copies, that they are of."""
        gone = {record.name: record for record in epoch.removed if record.copy_id is None}
        for outcome in epoch.outcomes:
            yield gone.get(outcome.table) or self.tables[outcome.table], outcome
        for outcome in epoch.staged:
            yield self.staged[outcome.table], outcome


def _kept(known: Mapping[str, Kept], new: Kept | None, after: Iterable[TableRecord]) -> dict[str, Kept]:
    """The files that are needed after an epoch."""
    both = [*known.values(), *(() if new is None else (new,))]
    behind = {r.name: r.applied for r in after if r.state.keeps_stream and r.applied is not None}
    return {file.name: file for file in both if kept_files.needed(file, behind)}


def _unseen(tables: Mapping[TableName, TableRecord], mark: Mark) -> frozenset[TableName]:
    """Tables that sat out the mark before and were not looked at since."""
    live = (name for name, record in tables.items() if record.state.is_named)
    return frozenset(name for name in live if str(name) not in mark.versions)


def _moved(folder: str, error: HeadraceError) -> Transient:
    """Leave it to the next attempt to judge what another program did to the table (`foreign`)."""
    return Transient(
        "LAKE_TABLE_MOVED",
        "another program committed to a table of the lake in between",
        detail=f'"{folder}": {error.code}',
        hint="nothing to do if it only rewrote files; a table whose rows it changed is stopped",
    )


def _range(new: NewFile) -> FileRange:
    return FileRange(new.file.path, new.file.size, new.file.rows, new.low, new.high)


def _state(epoch: Epoch, source: SourceRecord | None) -> dict[str, Any]:
    state: dict[str, Any] = {record.key: None for record in epoch.removed}
    state |= {record.key: record.as_record() for record in epoch.records}
    if source is not None:
        state[SOURCE_KEY] = source.as_record()
    if epoch.commits is not None:
        state[COMMITS_KEY] = epoch.commits.as_record()
    return state


def _unseen_before(epoch: Epoch, mark: Mark, records: Mapping[str, Any]) -> dict[str, Any]:
    """Tell the catalog of the moments before a stream that begins."""
    begun, known = _moment(epoch.begun), unknown_moments.of(records)
    if begun is None or (known is None and SOURCE_KEY in records):
        return {}
    return {
        unknown_moments.KEY: unknown_moments.record((*(known or ()), Stretch(mark.complete_until, begun)))
    }


def _rests_on(log: EpochLog, table: LakeTable) -> None:
    """An epoch or a mark builds on the table as it is; nobody synced what another program wrote."""
    if foreign.is_newest(table):
        log.syncing.forget()


def _complete_until(before: Mark, epoch: Epoch) -> str | None:
    """Keep to what was once said of a moment, whatever a clock does."""
    both = (before.complete_until, _moment(epoch.complete_until))
    return max((moment.isoformat() for moment in both if moment is not None), default=None)


def _iso(commit_ts: int | None) -> str | None:
    moment = _moment(commit_ts)
    return None if moment is None else moment.isoformat()


def _moment(microseconds: int | None) -> datetime | None:
    if microseconds is None:
        return None
    return _BEGINNING + timedelta(microseconds=microseconds)  # a float would not hold every one
