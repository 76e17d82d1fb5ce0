"""One epoch of the stream: from a batch of transactions to what each table becomes.

    batch ─► slices ─► job (Spark, or the driver itself when the batch is tiny) ─► outcomes
                                                                                         │
    look at the catalog, begun after the batch was received ──────────────► judged: live, failed

Spark and the driver run the same functions. A table that fails leaves the marks after its last exact one; its
outcome is dropped, and the other tables are published.

If a table has a new copy beside it (`resync.replacement`), the stream is applied to both. The frontier then
stops a little short of what the stream has shown. That leaves room behind this mark, before the next
transaction, for the mark in which the new copy replaces the old.

The driver looks for TRUNCATEs ahead, and reads no rows for that. Every task needs them, whichever slice holds
them: all files of a truncated table have to go, and changes before and after a truncation must not meet. A
truncation that the copy holds changes no state. But the copy lacks the rows that were gone when it was made,
so rewinding cannot restore the contents before the truncation: the table's history begins at its time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from headrace.core import origins
from headrace.core.chunks import ByChunk, exact_from
from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.truncation import Truncation
from headrace.ingest.last_commits import LastCommits
from headrace.lake.format import exportfile
from headrace.pipeline.state.epoch import Epoch, last_with_room, with_room
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import LateFile, TableRecord, is_file_needed
from headrace.pipeline.state.schema_check import RecordsCheck
from headrace.pipeline.state.table_state import State, TableEvent
from headrace.pipeline.stream import batches, late_stream
from headrace.pipeline.stream.batches import EpochBatch
from headrace.pipeline.stream.eager import EagerDecoding, ended_as
from headrace.pipeline.stream.late_stream import Portion
from headrace.pipeline.stream.recopy import retake
from headrace.pipeline.stream.splits import with_births
from headrace.pipeline.tasks import decode
from headrace.pipeline.tasks.files import verdict
from headrace.pipeline.tasks.merge import merge
from headrace.pipeline.tasks.slices import KeptDamaged, Slice
from headrace.pipeline.tasks.table_task import (
    REWRITE,
    Outcome,
    Outcomes,
    TableTask,
    from_ipc,
    pack,
    to_ipc,
    unpack,
)
from headrace.sources.contract.decoder import Decoder
from headrace.sources.contract.source import Source
from headrace.spark.jobs import Jobs
from headrace.spool.reader import SpoolReader

MOST_WITH_VECTORS = 250_000  # changes of an epoch: beyond, a table in one task would take too long
LARGE, LARGE_BYTES = 1_000_000, 64 << 20  # changes or bytes of a large epoch
TIMES_HERE, BYTES_HERE = 50, 128 << 20  # times `driver_epochs`, and bytes, where Spark is not quicker


@dataclass(slots=True)
class Counts:
    """The numbers of epochs by where they ran."""

    driver: int = 0
    spark: int = 0
    from_sorted_runs: int = 0  # of those, out of layers made ahead
    file_ways: Counter[str] = field(default_factory=Counter)  # files by the way that `merge_choice` chose


@dataclass(frozen=True, slots=True)
class EpochRunner:
    """The runner of an epoch's work."""

    spool: str
    reader: SpoolReader
    driver: Jobs
    spark: Jobs
    source: Source
    driver_epochs: int
    ships_bytes: bool = False
    merge_rule: str = REWRITE
    row_cache: int = 0
    eager: EagerDecoding | None = None
    is_quicker_here: Callable[[], bool] = lambda: False
    wake_spark: Callable[[], None] = lambda: None
    counts: Counts = field(default_factory=Counts)

    def decoder(self, check: RecordsCheck) -> Decoder:
        """Return the decoder of the source's stream, as of this look."""
        return self.source.decoder(check.reference)

    def jobs(self, rows: int, size: int | None = None) -> Jobs:
        """Choose where to run an epoch of so many rows and bytes, and count it."""
        if self.is_done_here(rows, size):
            if rows > self.driver_epochs:
                self.wake_spark()
            self.counts.driver += 1
            return self.driver
        self.counts.spark += 1
        return self.spark

    def is_done_here(self, rows: int, size: int | None) -> bool:
        """Tell whether an epoch runs in the driver; a larger one does so where Spark is not quicker."""
        larger = size is not None and size <= BYTES_HERE and self.is_quicker_here()
        return (-(-rows // TIMES_HERE) if larger else rows) <= self.driver_epochs

    def fit(self, rows: int) -> Jobs:
        """Choose where to run so much work: a tiny epoch is quicker in the driver than Spark starts a job."""
        return self.driver if rows <= self.driver_epochs else self.spark


def stream_epoch(ledger: Ledger, runner: EpochRunner, batch: EpochBatch, check: RecordsCheck) -> Epoch:
    """Make an epoch of these transactions; the caller publishes it."""
    source = ledger.source
    assert source is not None
    reached = source.at(with_room(batch.frontier.time), batch.frontier) if ledger.staged else batch.frontier
    frontier = max(ledger.position, reached)
    if ledger.recovering:
        tables, source = _Side(), replace(source, recovering=frontier)
    else:
        tables = _apply(ledger, runner, batch, check, frontier, ledger.tables, _run)
    staged = _apply(ledger, runner, batch, check, frontier, ledger.staged, _decode)
    return Epoch(
        kind="stream" if len(batch.transactions) else "empty",
        frontier=ledger.frontier if ledger.recovering else frontier,
        records=(*tables.records, *staged.records),
        outcomes=tables.outcomes,
        staged_outcomes=staged.outcomes,
        absent=frozenset() if ledger.recovering else check.locked_tables,
        all_seen=True,
        source=source,
        commits=_commits(ledger, batch, runner.decoder(check)),
        late_file=_keep_for_waiting(
            ledger, runner, batch, check, frontier, (*tables.records, *staged.records)
        ),
        transactions=0 if ledger.recovering else len(batch.transactions),
        changes=sum(outcome.changes for outcome in tables.outcomes),
        commit_ts=None if ledger.recovering else batch.commit_ts,
        earliest_commit_ts=None if ledger.recovering else batch.earliest_commit_ts,
    )


def _commits(ledger: Ledger, batch: EpochBatch, decoder: Decoder) -> LastCommits | None:
    """Return the newest commits of the stream, if the batch brings any that the lake does not have."""
    new = batch.transactions
    known = ledger.last_commits or LastCommits(ledger.position.time)
    now = known.followed_by(new, decoder.transaction_id or _nobody)
    return None if now is known else now


def _nobody(number: int) -> int:
    """Return the id of a transaction whose source knows it by another name."""
    return 0


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a batch's work: the tables, or the new copies."""

    records: tuple[TableRecord, ...] = ()
    outcomes: tuple[Outcome, ...] = ()


_Way = Callable[
    [Ledger, EpochRunner, EpochBatch, RecordsCheck, Mapping[int, TableTask]], dict[TableName, Outcome]
]


def _apply(
    ledger: Ledger,
    runner: EpochRunner,
    batch: EpochBatch,
    check: RecordsCheck,
    frontier: Position,
    known: Mapping[TableName, TableRecord],
    way: _Way,
) -> _Side:
    changed = check.changed_tables(known.values())
    attached = [r for r in known.values() if r.state.follows and r.name not in changed]
    if not attached:
        outcomes = {}
    else:
        outcomes = way(ledger, runner, batch, check, {r.number: _task(ledger, r, check) for r in attached})
    good, missing, failures = _judge(outcomes, changed, (ledger.position, frontier))
    moved = list(_changed_records(ledger, known, batch.frontier, frontier, good, failures, check))
    return _build_side(ledger, runner, known, moved, good, missing)


def _task(ledger: Ledger, record: TableRecord, check: RecordsCheck) -> TableTask:
    """Make the task of a table as recorded, with the news of its definition at the source."""
    return ledger.task(check.renew(record))


_Found = dict[TableName, Outcome]


def _judge(
    outcomes: Mapping[TableName, Outcome],
    changed: Mapping[TableName, HeadraceError],
    span: tuple[Position, Position],
) -> tuple[_Found, _Found, dict[TableName, HeadraceError]]:
    """Sort the outcomes: those to publish, those with a part to copy again, and failures."""
    failures = dict(changed)
    where = f'in the stream between "{span[0]}" and "{span[1]}"'
    for name, outcome in outcomes.items():
        if (error := verdict(outcome)) is not None:
            failures[name] = error.adding(where)
    missing = {n: o for n, o in outcomes.items() if (o.missing_values or o.incomplete) and n not in failures}
    good = {n: outcome for n, outcome in outcomes.items() if n not in failures and n not in missing}
    return good, missing, failures


def _build_side(
    ledger: Ledger,
    runner: EpochRunner,
    known: Mapping[TableName, TableRecord],
    moved: Iterable[TableRecord],
    good: _Found,
    missing: _Found,
) -> _Side:
    records = [record for record in moved if record.name not in missing]
    for name, outcome in missing.items():
        record, good[name] = _retaken(ledger, runner, known[name], outcome)
        records.append(record)
    return _Side(tuple(records), tuple(good.values()))


def catch_up(ledger: Ledger, runner: EpochRunner, check: RecordsCheck) -> Epoch:
    """Apply a portion of the kept stream, at most an epoch's, to tables whose copy is in."""
    behind = {record.name: record for record in ledger.catching_up}
    stand = {name: record.frontier or ledger.position for name, record in behind.items()}
    taken = late_stream.portion(ledger.kept.values(), stand, ledger.position, batches.EPOCH_BYTES)
    changed = check.changed_tables(behind.values())
    tasks = {r.number: _task(ledger, r, check) for r in behind.values() if r.name not in changed}
    try:
        slices = list(late_stream.slices_of(ledger.address, ledger.name, taken.files, runner.decoder(check)))
        work = _Work(slices, taken.changes, taken.truncates)
        outcomes = _run_jobs(ledger, runner, work, tasks) if slices and tasks else {}
    except KeptDamaged as error:
        return _without(ledger, taken, stand, error)
    good, missing, failures = _judge(outcomes, changed, (min(stand.values()), taken.frontier))
    moved = [_caught_up(ledger, record, taken, good, failures, check) for record in behind.values()]
    side = _build_side(ledger, runner, behind, moved, good, missing)
    return Epoch(
        "late",
        ledger.frontier,
        records=side.records,
        outcomes=tuple(o for o in side.outcomes if behind[o.table].copy_id is None),
        staged_outcomes=tuple(o for o in side.outcomes if behind[o.table].copy_id is not None),
        absent=frozenset() if ledger.recovering else check.locked_tables,
    )


def _without(
    ledger: Ledger, taken: Portion, stand: Mapping[TableName, Position], error: KeptDamaged
) -> Epoch:
    """Stop the tables that need a damaged file; the others go on without it."""
    gone = [file for file in taken.files if file.name in (error.detail or "")] or taken.files
    records = [r for r in ledger.catching_up if any(is_file_needed(f, {r.name: stand[r.name]}) for f in gone)]
    stopped = tuple(record.with_error(error, ledger.position) for record in records)
    return Epoch("stop", ledger.frontier, records=stopped)


def _caught_up(
    ledger: Ledger,
    record: TableRecord,
    taken: Portion,
    good: _Found,
    failures: Mapping[TableName, HeadraceError],
    check: RecordsCheck,
) -> TableRecord:
    if record.name in failures:
        return record.with_error(failures[record.name], ledger.position)
    after = _with_counts(check.renew(record), good)
    if not taken.all:
        return replace(after, frontier=max(after.frontier or taken.frontier, taken.frontier))
    position = ledger.position
    return _joining(after.on(TableEvent.CAUGHT_UP, frontier=None), position, position, ledger, check)


def _keep_for_waiting(
    ledger: Ledger,
    runner: EpochRunner,
    batch: EpochBatch,
    check: RecordsCheck,
    frontier: Position,
    changed: Iterable[TableRecord],
) -> LateFile | None:
    """Keep the batch's part for tables that wait for their copy, or begin to in this epoch (`changed`)."""
    after = {record.key: record for record in (*ledger.present, *changed)}
    keeping = [record for record in after.values() if record.state.keeps_stream]
    waiting = [r for r in keeping if (r.frontier or frontier) < frontier]
    if not waiting or not len(batch.transactions):
        return None
    tables = {record.name: record.number for record in waiting}
    slices = batches.slices(runner.reader, batch.transactions, runner.decoder(check))
    place = (ledger.store, ledger.name, ledger.mark.epoch + 1, frontier)
    return late_stream.keep(*place, tables, slices, runner.reader, tuple(ledger.kept.values()))


def _retaken(
    ledger: Ledger, runner: EpochRunner, record: TableRecord, outcome: Outcome
) -> tuple[TableRecord, Outcome]:
    site = (ledger.position, ledger.mark.epoch + 1, ledger.address, runner.spark, runner.source)
    return retake(record, ledger.task(record), outcome, *site)


def _run(
    ledger: Ledger,
    runner: EpochRunner,
    batch: EpochBatch,
    check: RecordsCheck,
    tasks: Mapping[int, TableTask],
) -> dict[TableName, Outcome]:
    """Merge into the tables: from layers if there are any, else in one job over the bytes."""
    if not len(batch.transactions):
        return {}
    if runner.eager is None or (transaction := batch.alone) is None:
        return _decode(ledger, runner, batch, check, tasks)
    ended = ended_as(runner.reader, transaction, runner.decoder(check), ledger.mark.epoch + 1)
    runner.counts.spark += 1
    runner.counts.from_sorted_runs += 1
    laid, cold = runner.eager.finish(ended, tasks)
    return {**laid.tables, **(_decode(ledger, runner, batch, check, cold) if cold else {})}


def _decode(
    ledger: Ledger,
    runner: EpochRunner,
    batch: EpochBatch,
    check: RecordsCheck,
    tasks: Mapping[int, TableTask],
) -> dict[TableName, Outcome]:
    """Run the job; repeat it, which is rare, with the needs of tables that it found out (see `decode`)."""
    if not len(batch.transactions):
        return {}
    slices = list(batches.slices(runner.reader, batch.transactions, runner.decoder(check)))
    return _run_jobs(ledger, runner, _Work(slices, batch.changes, batch.truncates), tasks)


@dataclass(frozen=True, slots=True)
class _Work:
    """A batch to be decoded."""

    slices: Sequence[Slice]
    changes: int
    truncates: bool

    @property
    def size(self) -> int:
        return sum(each.stop - each.start for each in self.slices)

    @property
    def is_large(self) -> bool:
        """Tell whether a look ahead pays."""
        return self.changes > LARGE or self.size > LARGE_BYTES


def _run_jobs(
    ledger: Ledger, runner: EpochRunner, work: _Work, tasks: Mapping[int, TableTask]
) -> dict[TableName, Outcome]:
    slices = work.slices
    if work.truncates:
        tasks = with_truncations(runner.reader, slices, tasks)
    torn = {
        task.name: Outcome(task.name, incomplete=task.incomplete)
        for task in tasks.values()
        if task.incomplete
    }
    tasks = {number: task for number, task in tasks.items() if not task.incomplete}
    jobs = runner.jobs(work.changes + rows_to_go(tasks), work.size)
    tasks = _with_vectors(ledger, runner, work, tasks)
    if work.is_large:
        tasks = with_births(runner.reader, slices, tasks)
    with ExitStack() as stack:
        while True:
            tables = stack.enter_context(jobs.share(pack(tuple(tasks.items()))))
            items = list(_items(ledger, runner, slices, tables))
            outcomes = Outcomes()
            for answer in jobs.run_grouped(decode.split, merge, items):
                outcomes.take(unpack(answer, Outcome))
            better = {n: _add_requirements(task, outcomes.tables.get(task.name)) for n, task in tasks.items()}
            scattered = {o: t for o, t in better.items() if t.origins is None and _is_scattered(t, outcomes)}
            if scattered:
                moved = _origins(ledger, runner, jobs, slices, scattered)
                named = {
                    number: stack.enter_context(jobs.share(to_ipc(each))) for number, each in moved.items()
                }
                better |= {number: replace(better[number], origins=data) for number, data in named.items()}
            if better == tasks:
                for outcome in outcomes.tables.values():
                    runner.counts.file_ways.update(dict(outcome.file_ways))
                return outcomes.tables | torn
            tasks = better


def _with_vectors(
    ledger: Ledger, runner: EpochRunner, work: _Work, tasks: Mapping[int, TableTask]
) -> Mapping[int, TableTask]:
    """Let the files of tables have deletion vectors, where that is wanted and Delta's readers allow it.

    A large epoch goes file by file, in many tasks. A table that is exported to Iceberg gets no vectors, nor
    does one with settings of another program, or a new copy.
    """
    if runner.merge_rule == REWRITE or work.changes > MOST_WITH_VECTORS or work.is_large:
        return tasks
    if exportfile.read(ledger.store, ledger.name) is not None:
        return tasks
    return {
        number: replace(task, merge_rule=runner.merge_rule, row_cache=runner.row_cache)
        if task.folder == ledger.task_folder(task.name) and ledger.live.table(task.folder).takes_vectors
        else task
        for number, task in tasks.items()
    }


def _add_requirements(task: TableTask, outcome: Outcome | None) -> TableTask:
    """Return the table's task with the needs that its first try found out.

    They count before a failure of the first try: events that it left out can make others fail.
    """
    columns = () if outcome is None else outcome.unforeseen
    return replace(task, raw_columns=tuple(sorted({*task.raw_columns, *columns})))


def _is_scattered(task: TableTask, outcomes: Outcomes) -> bool:
    outcome = outcomes.tables.get(task.name)
    return outcome is not None and outcome.is_scattered


def _origins(
    ledger: Ledger,
    runner: EpochRunner,
    jobs: Jobs,
    slices: Sequence[Slice],
    tasks: Mapping[int, TableTask],
) -> dict[int, pa.Table]:
    """Find the old keys of rows that change their key and leave values out."""
    traces: dict[int, list[pa.Table]] = {}
    with jobs.share(pack(tuple(tasks.items()))) as tables:
        for answer in jobs.run(decode.trace_origins, list(_items(ledger, runner, slices, tables))):
            for number, found in unpack(answer, dict).items():
                traces.setdefault(number, []).append(from_ipc(found))
    return {
        number: origins.origins(pa.concat_tables(found), tasks[number].truncations)
        for number, found in traces.items()
    }


def _items(ledger: Ledger, runner: EpochRunner, slices: Sequence[Slice], tables: bytes) -> Iterable[bytes]:
    for number, each in enumerate(slices):
        yield pack(
            decode.DecodeTask(
                slice=each.carrying(runner.reader) if runner.ships_bytes else each,
                number=number,
                epoch=ledger.mark.epoch + 1,
                lake=ledger.address,
                spool=runner.spool,
                tables=tables,
            )
        )


def _changed_records(
    ledger: Ledger,
    known: Mapping[TableName, TableRecord],
    reached: Position,
    frontier: Position,
    outcomes: Mapping[TableName, Outcome],
    failures: Mapping[TableName, HeadraceError],
    check: RecordsCheck,
) -> Iterable[TableRecord]:
    """Make the records that the epoch changes."""
    for record in known.values():
        if record.name in failures and record.state is not State.STOPPED:
            yield record.with_error(failures[record.name], ledger.position)
            continue
        if not record.state.follows:
            continue
        after = _with_counts(check.renew(record), outcomes)
        if record.state is State.JOINING:
            after = _joining(after, reached, frontier, ledger, check)
        if after != record:
            yield after


def _with_counts(record: TableRecord, outcomes: Mapping[TableName, Outcome]) -> TableRecord:
    outcome = outcomes.get(record.name)
    if outcome is None:
        return record
    raw_columns = tuple(sorted({*record.raw_columns, *outcome.unfit_columns}))
    # A frontier, as `since` always is: the table is exact at the truncation's own time.
    since = max(record.since or 0, outcome.last_truncation + 1) if outcome.last_truncation else record.since
    return replace(
        record,
        held_transactions=record.held_transactions + outcome.held_count,
        raw_columns=raw_columns,
        since=since,
    )


def _joining(
    record: TableRecord, reached: Position, frontier: Position, ledger: Ledger, check: RecordsCheck
) -> TableRecord:
    """Make a copied table exact once the stream has passed its snapshot and the look that proves it."""
    assert record.handoff is not None
    assert ledger.source is not None
    if record.copy_id is not None and last_with_room(reached.time) < frontier.time:
        return record  # the mark would leave no room behind it
    exact = exact_from(record.handoff)
    if frontier < max(exact, check.proven_from.get(record.key, exact)):
        return record
    # Nobody knows the contents before a truncation that the copy shows: `truncations`.
    since = max(ledger.source.start.time, record.since or 0) if record.schema.full else exact.time
    # The handoff of a copy in chunks is long, and from here on nothing is held.
    handoff = None if isinstance(record.handoff, ByChunk) else record.handoff
    event = TableEvent.EXACT if record.copy_id is None else TableEvent.COMPARABLE
    return record.on(event, since=since, handoff=handoff)


# --- truncations --------------------------------------------------------------------------------


def with_truncations(
    reader: SpoolReader, slices: Sequence[Slice], tasks: Mapping[int, TableTask]
) -> dict[int, TableTask]:
    """Add to the tasks the truncations of their tables in these slices."""
    wanted = {table: task.applied_until for table, task in tasks.items()}
    found: dict[int, list[Truncation]] = {}
    for each in slices:
        new = each.decoder.truncations(each.read(reader), each.context, wanted)
        for table, some in new.items():
            found.setdefault(table, []).extend(some)
    # Slices of one transaction may hold its truncations in any order (`TableSchema.is_ordered`).
    return {table: _with(task, sorted(found.get(table, []))) for table, task in tasks.items()}


def rows_to_go(tasks: Mapping[int, TableTask]) -> int:
    """Count the rows of files that the truncations remove: work that the number of changes does not show."""
    return sum(f.alive for task in tasks.values() if task.truncations for f in task.routes.files)


def _with(task: TableTask, found: Sequence[Truncation]) -> TableTask:
    if not found:
        return task
    held = np.zeros(len(found), np.bool_)
    if task.handoff is not None:
        times = pa.array([each.time for each in found], pa.int64())
        names = pa.array([each.transaction for each in found], task.schema.transaction.type)
        handoff = task.handoff
        if isinstance(handoff, ByChunk):
            if torn := handoff.incomplete(times, names):
                return replace(task, incomplete=torn)
            handoff = handoff.chunks[0].handoff  # as good as any other
        held = np.asarray(handoff.holds(times, names).to_numpy(zero_copy_only=False), np.bool_)
    live = tuple(t for t, known in zip(found, held, strict=True) if not known)
    last = max((t.time for t, known in zip(found, held, strict=True) if known), default=0)
    # A table that is not rewound begins after all that its copy holds anyway.
    return replace(task, truncations=live, last_truncation=last if task.schema.full else 0)
