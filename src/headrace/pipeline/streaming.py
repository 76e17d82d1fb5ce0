"""One epoch of the stream: from a batch of transactions to what each table becomes.

    batch ─► stretches ─► job (Spark, or the driver itself when the batch is tiny) ─► outcomes
                                                                                         │
    look at the catalog, begun after the batch was received ──────────────► judged: live, failed

The same functions run in both places. A table that fails leaves the marks at its last exact one; its
part of the outcome is dropped, and the others are published.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.core.errors import HeadraceError
from headrace.core.handoff import ByPosition, Handoff
from headrace.core.names import TableName
from headrace.core.position import Lsn
from headrace.pipeline import epochs, stretch
from headrace.pipeline.epochs import Batch, Cut
from headrace.pipeline.ledger import Epoch, Ledger
from headrace.pipeline.looking import Look
from headrace.pipeline.merging import merge
from headrace.pipeline.records import TableRecord
from headrace.pipeline.sampling import with_births
from headrace.pipeline.states import Event, State
from headrace.pipeline.tasks import Outcome, Outcomes, Stretch, TableTask, pack, unpack
from headrace.pipeline.writing import row_missing
from headrace.spark.jobs import Jobs
from headrace.spool.reader import SpoolReader

ATTACHED = (State.JOINING, State.LIVE)
LARGE = 1_000_000  # changes, from which on it pays to look ahead


@dataclass(slots=True)
class Counts:
    """How many epochs ran where."""

    driver: int = 0
    spark: int = 0


@dataclass(frozen=True, slots=True)
class Workshop:
    """Where an epoch's work is done."""

    spool: str
    reader: SpoolReader
    driver: Jobs
    spark: Jobs
    driver_epochs: int
    ships_bytes: bool = False
    counts: Counts = field(default_factory=Counts)

    def jobs(self, batch: Batch) -> Jobs:
        """A tiny epoch is quicker in the driver than Spark can say hello."""
        if batch.changes <= self.driver_epochs:
            self.counts.driver += 1
            return self.driver
        self.counts.spark += 1
        return self.spark


def stream_epoch(ledger: Ledger, workshop: Workshop, batch: Batch, look: Look) -> Epoch:
    """What the lake becomes by these transactions; publishing it is the caller's."""
    attached = [r for r in ledger.tables.values() if r.state in ATTACHED and r.name not in look.changed]
    outcomes = _run(ledger, workshop, batch, look, {r.oid: ledger.task(r) for r in attached})
    failures: dict[TableName, HeadraceError] = dict(look.changed)
    failures |= {name: error for name, o in outcomes.items() if (error := _verdict(o)) is not None}
    good = {name: outcome for name, outcome in outcomes.items() if name not in failures}
    frontier = max(ledger.frontier, batch.frontier)
    records = list(_moved(ledger, batch.frontier, frontier, good, failures))
    return Epoch(
        kind="stream" if len(batch.transactions) else "empty",
        frontier=frontier,
        records=tuple(records),
        outcomes=tuple(good.values()),
        absent=look.locked,
        transactions=len(batch.transactions),
        changes=sum(outcome.changes for outcome in good.values()),
        commit_ts=batch.commit_ts,
    )


def _run(
    ledger: Ledger, workshop: Workshop, batch: Batch, look: Look, tasks: Mapping[int, TableTask]
) -> dict[TableName, Outcome]:
    """Run the job; again where it turned out what a table needs (see `stretch`): rare, and never twice."""
    if not len(batch.transactions) or not tasks:
        return {}
    jobs = workshop.jobs(batch)
    cuts = list(epochs.cuts(workshop.reader, batch.transactions))
    if batch.changes > LARGE:
        tasks = with_births(workshop.reader, cuts, tasks, look.xid_reference)
    while True:
        items = list(_items(ledger, workshop, cuts, look, tasks))
        outcomes = Outcomes()
        for answer in jobs.run_grouped(stretch.split, merge, items):
            outcomes.take(unpack(answer, Outcome))
        wiser = {oid: _wiser(task, outcomes.tables.get(task.name)) for oid, task in tasks.items()}
        if wiser == tasks:
            return outcomes.tables
        tasks = wiser


def _wiser(task: TableTask, outcome: Outcome | None) -> TableTask:
    """The table's task, with what its first try found out that it needs."""
    if outcome is None or outcome.failure is not None:
        return task
    columns = tuple(sorted({*task.shadows, *outcome.unforeseen}))
    return replace(task, shadows=columns, whole=task.whole or outcome.scattered)


def _items(
    ledger: Ledger, workshop: Workshop, cuts: Sequence[Cut], look: Look, tasks: Mapping[int, TableTask]
) -> Iterable[bytes]:
    reader = workshop.reader
    for number, cut in enumerate(cuts):
        yield pack(
            Stretch(
                number=number,
                epoch=ledger.mark.epoch + 1,
                lake=ledger.address,
                spool=workshop.spool,
                start=cut.start,
                stop=cut.stop,
                xid_reference=look.xid_reference,
                relations=cut.relations,
                tables=tuple(tasks.items()),
                inside=cut.inside,
                data=reader.read(cut.start, cut.stop).tobytes() if workshop.ships_bytes else None,
            )
        )


def _verdict(outcome: Outcome) -> HeadraceError | None:
    """Why the table can't be published, if it can't."""
    if outcome.failure is not None:
        return outcome.failure
    if outcome.vouched != outcome.found:
        return row_missing(outcome.table, abs(outcome.vouched[0] - outcome.found[0]))
    return None


def _moved(
    ledger: Ledger,
    reached: Lsn,
    frontier: Lsn,
    outcomes: Mapping[TableName, Outcome],
    failures: Mapping[TableName, HeadraceError],
) -> Iterable[TableRecord]:
    """The records that the epoch changes."""
    for record in ledger.tables.values():
        if record.name in failures and record.state is not State.STOPPED:
            yield record.on(Event.FAILED, error=failures[record.name])
            continue
        if record.state not in ATTACHED:
            continue
        after = _counted(record, outcomes.get(record.name))
        if record.state is State.JOINING:
            after = _joining(after, reached, frontier, ledger)
        if after != record:
            yield after


def _counted(record: TableRecord, outcome: Outcome | None) -> TableRecord:
    if outcome is None:
        return record
    shadows = tuple(sorted({*record.shadows, *outcome.met}))
    return replace(record, held=record.held + outcome.held, shadows=shadows)


def _joining(record: TableRecord, reached: Lsn, frontier: Lsn, ledger: Ledger) -> TableRecord:
    """A table that was copied: exact once the stream has passed its snapshot and caught up."""
    assert record.handoff is not None
    assert ledger.source is not None
    own = max(record.applied or ledger.frontier, reached)
    if own < frontier:
        return replace(record, applied=own)
    exact = exact_from(record.handoff)
    if frontier < exact:
        return replace(record, applied=None)
    since = ledger.source.start if record.schema.full else exact
    return record.on(Event.EXACT, applied=None, since=int(since))


def exact_from(handoff: Handoff) -> Lsn:
    """The frontier from which on a copy, joined by this handoff, is exact."""
    if isinstance(handoff, ByPosition):
        return Lsn.parse(handoff.frontier.text())
    raise AssertionError("a handoff by xid comes with its own issue")
