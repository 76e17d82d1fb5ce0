"""An epoch as it comes to the ledger: what it changes, and the records after it. Values only.

    Epoch ─► `planner` makes its steps ─► `ledger` publishes them, and moves on to the `Records` after it

The mark in which a new copy replaces an old one stands between two transactions of the stream. So while there
is a new copy, the frontier stops `ROOM` short of what the stream has shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from headrace.core.names import TableName
from headrace.core.position import STEP, Position
from headrace.ingest.last_commits import LastCommits
from headrace.lake.format.plan import DataFile
from headrace.pipeline.state.records import LateFile, SourceRecord, TableRecord
from headrace.pipeline.state.table_state import TableEvent, after
from headrace.pipeline.tasks.table_task import Outcome

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
