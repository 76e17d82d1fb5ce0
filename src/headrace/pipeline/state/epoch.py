"""An epoch as it comes to the ledger: what it changes, the records after it, and the steps of its plan.

    Epoch ─► `Planner` makes its steps ─► `ledger` publishes them, and moves on to the `Records` after it

    outcomes ─► rows, history       a step a folder, on its newest version
    errors   ─► one step            on the source's one folder of errors
    rewrites ─► steps of their own  files exchanged for others

A step builds on the newest version of its table. If another program's commit changed the contents, that is an
error (`moved_error`); if it only rewrote files, the epoch makes it durable (`rests_on`). Nothing is committed
here.

The mark in which a new copy replaces an old one stands between two transactions of the stream. So while there
is a new copy, the frontier stops `ROOM` short of what the stream has shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from headrace.core.errors import Definite, HeadraceError, Transient
from headrace.core.history import history_schema
from headrace.core.names import TableName
from headrace.core.position import STEP, Position
from headrace.ingest.last_commits import LastCommits
from headrace.lake.format import layout, schemas
from headrace.lake.format.plan import DataFile, TableStep
from headrace.lake.log import errors_table, foreign
from headrace.lake.log.commit import plan_base
from headrace.lake.log.durable import Syncing
from headrace.lake.log.table import LakeTable
from headrace.lake.store.contract import Store
from headrace.pipeline.state.live_tables import LiveTables, folders_of
from headrace.pipeline.state.records import LateFile, SourceRecord, TableRecord
from headrace.pipeline.state.table_state import TableEvent, after
from headrace.pipeline.tasks.table_task import Outcome, from_ipc

RECONCILE = "reconcile"  # the kind of an epoch that compared what was there, whoever wrote it
MAINTAIN = "maintain"  # the kind of an epoch that changes files and no contents


@dataclass(frozen=True, slots=True)
class Rewrite:
    """An exchange of files in a folder that is not a current state's; `same`: the rows stay equal."""

    folder: str
    add: tuple[DataFile, ...] = ()
    remove: tuple[str, ...] = ()
    same: bool = True

    def plus(self, add: tuple[DataFile, ...], remove: tuple[str, ...]) -> Rewrite:
        return replace(self, add=self.add + add, remove=self.remove + remove)


@dataclass(frozen=True, slots=True)
class Epoch:
    """The result of an epoch's work: changed records, outcomes of tasks, and the frontier."""

    kind: str
    frontier: Position
    records: tuple[TableRecord, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    staged_outcomes: tuple[Outcome, ...] = ()  # of new copies
    removed_tables: tuple[
        TableRecord, ...
    ] = ()  # tables and copies that go; this epoch is the last that changes them
    new_tables: tuple[TableName, ...] = ()  # tables whose first files this epoch brings
    replaced_tables: frozenset[TableName] = (
        frozenset()
    )  # tables whose folder gets other columns, all rows gone
    begun_anew: frozenset[TableName] = frozenset()  # tables whose running copies are to be dropped
    absent: frozenset[TableName] = frozenset()  # tables that this mark omits
    rewrites: tuple[Rewrite, ...] = ()
    all_seen: bool = False  # all were looked at: those that the mark before omits may be named again
    source: SourceRecord | None = None
    commits: LastCommits | None = None  # the newest of the stream, if there is a newer one
    late_file: LateFile | None = None  # what the stream has for tables that are being copied
    transactions: int = 0
    changes: int = 0
    commit_ts: int | None = None  # the latest of the transactions, microseconds since 1970
    earliest_commit_ts: int | None = None
    complete_until: int | None = None  # of the source's clock; None: what the mark before says
    begun_at: int | None = (
        None  # a stream begins with this epoch; the source's clock once its start was settled
    )


@dataclass(frozen=True, slots=True)
class Records:
    """All records as they are after an epoch."""

    tables: dict[TableName, TableRecord]
    staged_copies: dict[TableName, TableRecord]

    @classmethod
    def of(
        cls,
        tables: Mapping[TableName, TableRecord],
        staged_copies: Mapping[TableName, TableRecord],
        epoch: Epoch,
    ) -> Records:
        known = {record.key: record for record in (*tables.values(), *staged_copies.values())}
        known |= {record.key: record for record in epoch.records}
        for record in epoch.removed_tables:
            after(record.state, TableEvent.DROPPED)
            known.pop(record.key, None)
        return cls(
            {record.name: record for record in known.values() if record.copy_id is None},
            {record.name: record for record in known.values() if record.copy_id is not None},
        )

    def present(self, source: SourceRecord | None) -> list[TableRecord]:
        """Return the tables and copies that this source still follows."""
        recovering = source is not None and source.recovering is not None
        return [*(() if recovering else self.tables.values()), *self.staged_copies.values()]

    def of_outcomes(self, epoch: Epoch) -> Iterable[tuple[TableRecord, Outcome]]:
        """Pair the epoch's outcomes with their tables or new copies."""
        gone = {record.name: record for record in epoch.removed_tables if record.copy_id is None}
        for outcome in epoch.outcomes:
            yield gone.get(outcome.table) or self.tables[outcome.table], outcome
        for outcome in epoch.staged_outcomes:
            yield self.staged_copies[outcome.table], outcome


# --- room behind a mark ------------------------------------------------------------------------


ROOM = 2


def with_room(time: int) -> int:
    """Return a time that has the same transactions before it and `ROOM` behind it."""
    return min(time, last_with_room(time))


def last_with_room(time: int) -> int:
    """Return the last time with room, if the stream has come up to `time` and no further.

    The times of transactions are multiples of `STEP`: the next one is at `time`, or at the next multiple.
    """
    return -(-time // STEP) * STEP - ROOM


def has_room(time: int) -> bool:
    """Tell whether a new copy can replace its table behind a mark at this time, before any transaction."""
    return last_with_room(time) >= time


# --- the steps of its plan, and the versions of its mark ------------------------------------------


@dataclass(frozen=True, slots=True)
class Planner:
    """The plan of one epoch over the tables as they are now."""

    live: LiveTables
    syncing: Syncing
    number: int  # of the epoch

    def steps(self, epoch: Epoch, after: Records) -> Iterable[TableStep]:
        """Make the steps of an epoch: current states, histories, errors, and files that are exchanged."""
        errors: dict[str, list[bytes | DataFile]] = {}
        for record, outcome in after.of_outcomes(epoch):
            folders = folders_of(self.live.source, record)
            if outcome.add or outcome.remove or outcome.vectors or outcome.table in epoch.new_tables:
                added = tuple(new.file for new in outcome.add)
                schema = schemas.encode(record.schema.arrow())
                compared = epoch.kind == RECONCILE
                step = self._step(folders.rows, schema, added, outcome.remove, compared=compared)
                if outcome.table in epoch.replaced_tables:
                    step = replace(step, schema=schema)
                yield replace(self._with_vectors(step, outcome), rewrite=epoch.kind == MAINTAIN)
            # Remove history that turned out to be from before the table's `since`. A table that came late, or
            # came back, keeps it: the folder may hold the history of another interval too.
            is_truncated = outcome.last_truncation and not record.late and record.copy_id is None
            forgotten = tuple(self.live.table(folders.history).files()) if is_truncated else ()
            if record.copy_id is None and (outcome.history or forgotten):
                schema = schemas.encode(history_schema(record.schema))
                yield self._step(folders.history, schema, outcome.history, forgotten)
            if outcome.errors:
                errors.setdefault(folders.errors, []).extend(outcome.errors)
        for folder, pieces in errors.items():
            if files := _errors(self.live.store, folder, self.number, pieces):
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
        """Make the step of a folder; `compared`: the epoch has just read the table, whoever wrote it."""
        table = self.live.table(folder)
        try:
            base = table.refresh() if compared else plan_base(table)
        except Definite as error:
            raise moved_error(folder, error) from error
        rests_on(self.syncing, table)
        return TableStep(folder, base, add, remove, schema if base < 0 else None)

    def _with_vectors(self, step: TableStep, outcome: Outcome) -> TableStep:
        """Add the files whose vectors change: the step removes each as it is and adds it as it will be."""
        table = self.live.table(step.path)
        marked = tuple(table.with_vector(path, vector) for path, vector in outcome.vectors)
        return replace(step, add=step.add + marked, remove=step.remove + tuple(file.path for file in marked))

    def versions(
        self,
        after: Mapping[TableName, TableRecord],
        steps: tuple[TableStep, ...],
        absent: frozenset[TableName],
    ) -> dict[str, int]:
        """Return the versions that the mark names: of every table that is exact at it."""
        stepped = {step.path: step.base + 1 for step in steps}
        versions = {}
        for name, record in after.items():
            if record.state.is_named and name not in absent:
                folder = layout.table_folder(self.live.source, name)
                versions[str(name)] = stepped.get(folder, self.live.table(folder).version)
        return versions


def _errors(
    store: Store, folder: str, epoch: int, pieces: Iterable[bytes | DataFile]
) -> tuple[DataFile, ...]:
    """Collect an epoch's files of errors: one written now from loose rows, and those that tasks wrote."""
    pieces = list(pieces)
    files = [piece for piece in pieces if isinstance(piece, DataFile)]
    few = [from_ipc(piece) for piece in pieces if isinstance(piece, bytes)]
    if few and (rows := errors_table.net(pa.concat_tables(few))).num_rows:
        files.append(errors_table.write(store, folder, layout.file_name(epoch), rows))
    return tuple(files)


def moved_error(folder: str, error: HeadraceError) -> Transient:
    """Make the error that lets the next attempt judge what another program did to the table (`foreign`)."""
    return Transient(
        "LAKE_TABLE_MOVED",
        "another program committed to a table of the lake in between",
        detail=f'"{folder}": {error.code}',
        hint="nothing to do if it only rewrote files; a table whose rows it changed is stopped",
    )


def rests_on(syncing: Syncing, table: LakeTable) -> None:
    """Note that an epoch or a mark builds on the table: another program's newest commit must be synced."""
    if foreign.is_newest(table):
        syncing.forget()
