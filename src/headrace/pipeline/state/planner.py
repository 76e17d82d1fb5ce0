"""The planner of an epoch: makes the steps of its tables out of the tasks' outcomes, and its mark's versions.

    outcomes ─► rows, history       a step a folder, on its newest version
    errors   ─► one step            on the source's one folder of errors
    rewrites ─► steps of their own  files exchanged for others

A step builds on the newest version of its table. If another program's commit changed the contents, that is an
error (`moved_error`); if it only rewrote files, the epoch makes it durable (`rests_on`). The planner commits
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from headrace.core.errors import Definite, HeadraceError, Transient
from headrace.core.history import history_schema
from headrace.core.names import TableName
from headrace.lake.format import layout, schemas
from headrace.lake.format.plan import DataFile, TableStep
from headrace.lake.log import errors_table, foreign
from headrace.lake.log.commit import plan_base
from headrace.lake.log.syncing import Syncing
from headrace.lake.log.table import LakeTable
from headrace.lake.store.contract import Store
from headrace.pipeline.state.epoch import MAINTAIN, RECONCILE, Epoch, Records
from headrace.pipeline.state.live_tables import LiveTables, folders_of
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.tasks.table_task import Outcome, from_ipc


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
