"""The loop of one source: the work of a turn (`run` has the order), and all that an attempt holds open.

One thread runs all this. Long work goes on beside it: copies in threads of their own (`copy`), Spark jobs,
the receiver in a process of its own (`ingest`), acknowledgements (`state.ledger`). The loop asks each
of them for results, and this thread alone publishes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.core.durations import pace
from headrace.core.errors import is_fault
from headrace.core.failpoint import failpoint
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.ingest.supervisor import Receiver
from headrace.pipeline.commands.serve import CommandQueue
from headrace.pipeline.commands.upkeep import Upkeep
from headrace.pipeline.completion import Standstill, caught_up
from headrace.pipeline.copy.context import CopiedTable, CopyContext, CopyLost, CopyRefused, Portion
from headrace.pipeline.copy.copied_parts import CopiedParts, awaited_folders
from headrace.pipeline.copy.from_lake import Rewriting
from headrace.pipeline.copy.scheduler import CopyScheduler
from headrace.pipeline.copy.snapshot import Copying
from headrace.pipeline.following import NewTables, TableFollower
from headrace.pipeline.lake_size import LakeSize
from headrace.pipeline.receiving import Receiving
from headrace.pipeline.resync.new_copy import Renewal
from headrace.pipeline.state import schema_check
from headrace.pipeline.state.epoch import Epoch, with_room
from headrace.pipeline.state.ledger import Acknowledger, Ledger
from headrace.pipeline.state.owner import RunContext
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.state.table_epochs import not_followed, stop_blocked, stop_copies, stop_tables
from headrace.pipeline.state.table_state import State
from headrace.pipeline.status_report import Reporter
from headrace.pipeline.stream import batches
from headrace.pipeline.stream.cadence import Cadence, MarkCost, is_waited_for
from headrace.pipeline.stream.ddl import Statements, rewriting, widening, with_replaced
from headrace.pipeline.stream.epoch import EpochRunner, catch_up, stream_epoch
from headrace.pipeline.stream.source_clock import SourceClock
from headrace.pipeline.tasks.row_cache import forget_rows
from headrace.pipeline.withdrawal import Withdrawal
from headrace.sources.contract.mirror import Mirror
from headrace.spool.cut_places import CutPlaces
from headrace.spool.places import Places

WATCH_SECONDS = 5.0
CLOCK_SECONDS = 1.0
PROOF_SECONDS = 1.0
BUSY_SECONDS = 0.02  # between two turns while something is under way
QUIET_SECONDS = 0.25  # at most, before a stop is seen

Follows = Callable[[Ledger, Mapping[TableName, schema_check.AlteredTable]], Epoch]


@dataclass(slots=True)
class Run:
    """One attempt, with everything that it holds open."""

    place: RunContext
    once: bool
    stop: threading.Event
    reporter: Reporter
    mirror: Mirror
    ledger: Ledger
    receiving: Receiving
    acknowledger: Acknowledger
    target: Position
    receiver: Receiver = field(init=False)
    runner: EpochRunner = field(init=False)
    copies: CopyScheduler = field(init=False)
    cadence: Cadence = field(init=False)
    size: LakeSize = field(init=False)
    wanted_position: Position | None = None  # a mark is waited for here
    cursor: int = 0
    is_held_up: bool = False  # transactions are there, and their mark waits for the source
    copied_parts: CopiedParts = field(default_factory=CopiedParts)
    commands: CommandQueue = field(default_factory=CommandQueue)
    upkeep: Upkeep = field(default_factory=Upkeep)
    published_at: float = field(default_factory=time.monotonic)
    watched_at: float = 0.0
    renewal: Renewal = field(default_factory=Renewal)
    following: TableFollower = field(default_factory=TableFollower)
    new_tables: NewTables = field(default_factory=NewTables)
    withdrawal: Withdrawal = field(default_factory=Withdrawal)
    clock: SourceClock = field(default_factory=SourceClock)
    statements: Statements = field(default_factory=Statements)
    caught_up_at: float | None = None
    standstill: Standstill = field(default_factory=Standstill)
    proven_from: dict[str, Position] = field(default_factory=dict)  # where marks may begin to name a table
    proof_until: float | None = None  # a mark waits no longer for it

    def __post_init__(self) -> None:
        self.receiver, self.runner = self.receiving.receiver, self.receiving.runner
        self.copies = CopyScheduler(self.place.config.snapshot_connections)
        self.cadence = Cadence(pace(self.place.config.every, "every"))
        self.size = LakeSize(self.place.store, self.place.name)
        self.reporter.facts.copies = self.copies

    def is_done(self) -> bool:
        """Tell whether the run has caught up with where the source was at the start.

        It waits a while longer for a mark that reaches a reading of the source's clock.
        """
        if not caught_up(self):
            self.standstill.check(self)
            return False
        now = time.monotonic()
        self.caught_up_at = now if self.caught_up_at is None else self.caught_up_at
        heard = self.clock.began or not self.clock.readings
        return heard or now - self.caught_up_at >= CLOCK_SECONDS

    def pause(self) -> None:
        """Wait for the next turn: briefly while something is under way, else for news of the receiver."""
        if self.once or self.is_held_up or _is_busy(self):
            self.stop.wait(BUSY_SECONDS)
            return
        if due := self.cadence.due_in:
            self.stop.wait(min(due, QUIET_SECONDS))
        else:
            self.receiver.wait(QUIET_SECONDS)

    # --- copies ---------------------------------------------------------------------------------

    def begin_copying(self) -> None:
        """Begin to copy the tables that wait for it, except those that an earlier copy still brings."""
        self.copies.room.beside_marks = bool(self.ledger.followed_tables)
        busy = self.copies.names | self.copied_parts.names
        missing = [record for name, record in self.ledger.awaited_tables.items() if name not in busy]
        again = [record for record in missing if record.old_rows is not None]
        if again:
            ledger = self.ledger
            site = CopyContext(ledger.address, self.place.spark, self.copies.room, ledger.mark.epoch + 1)
            self.copies.begin(Rewriting(site, again, ledger.task, self.runner.fit))
        missing = [record for record in missing if record.old_rows is None]
        if not missing or self.copies.full:
            return
        assert self.ledger.source is not None
        self.copies.begin(
            Copying(
                self.mirror.connection.address,
                self.mirror.connection.identity,
                self.ledger.source,
                missing,
                self.ledger.task,
                self.ledger.address,
                self.place.spark,
                self.place.config,
                self.ledger.mark.epoch + 1,
                self.copies.room,
                self.ledger.frontier,
            )
        )

    def take_copies(self) -> bool:
        for event in self.copies.events():
            if isinstance(event, CopiedTable | Portion):
                self.copied_parts.add(event)
            elif isinstance(event, CopyRefused):
                if awaited_folders(self.ledger).get(event.name) == event.folder:
                    stop = stop_copies if event.name in self.ledger.staged else stop_tables
                    self.publish(stop(self.ledger, {event.name: event.error}))
            elif isinstance(event, CopyLost):
                self._commit_copies()
                raise event.error
            else:
                raise event.error
        if not self.copied_parts.ripe(over=self.copies.over):
            return False
        return self._commit_copies()

    def _commit_copies(self) -> bool:
        epoch = self.copied_parts.epoch(self.ledger)
        if epoch is None:
            return False
        self.publish(epoch)
        return True

    # --- the stream -----------------------------------------------------------------------------

    def advance(self) -> bool:
        self.is_held_up = False
        if self.cadence.rests(self):
            return False
        begun, files = time.process_time(), self.size.files_written
        attached, reader = self.ledger.followed_tables, self.runner.reader
        confirmed = self.receiver.progress.confirmed_until
        assert self.ledger.source is not None
        places = CutPlaces(Places(Path(self.runner.spool)), self.ledger.source.exactly_at)
        batch = batches.next_batch(reader, self.cursor, self.ledger.position, places, confirmed)
        if batch is None:
            return False
        if not len(batch.transactions):
            self.cursor = batch.next_address  # nothing for us lies before this, now or later
        if _awaits_proof(self, attached, batch):
            self.is_held_up = True
            return False
        check = self.cadence.check_for(self, batch, attached)
        if check is None or self.statements.wait(check, batch) or _awaits_proof(self, attached, batch):
            self.is_held_up = bool(len(batch.transactions))
            return False
        if check.wider_tables:
            failpoint("evolve.add.before")
            self._follow(widening, check.wider_tables)
            failpoint("evolve.add.after")
        if check.rewritten:
            self._follow(rewriting, check.rewritten)
        with self.reporter.watch.doing(_work_on(batch, self.runner)):
            with self.reporter.totals.timing("job"):
                epoch = stream_epoch(self.ledger, self.runner, batch, check)
            self.publish(with_replaced(self.ledger, self.runner, batch, epoch))
        self.cursor = batch.next_address
        cost = None
        if len(batch.transactions):
            cost = MarkCost(time.process_time() - begun, self.size.files_written - files)
        self.cadence.on_published(more=batch.more, cost=cost)
        reader.discard(self.cursor)
        return True

    def _follow(self, epoch: Follows, altered: Mapping[TableName, schema_check.AlteredTable]) -> None:
        """Follow the DDL of tables; if that fails by a bug of ours, the table stops, to be copied."""
        try:
            made = epoch(self.ledger, altered)
        except Exception as fault:
            if not is_fault(fault):
                raise
            if len(altered) > 1:
                for name, each in altered.items():
                    self._follow(epoch, {name: each})
                return
            made = stop_tables(self.ledger, {name: not_followed(name, fault) for name in altered})
        self.publish(made)

    def catch_up(self) -> bool:
        """Apply one portion of the stream kept for tables whose copy is in; then others have a turn."""
        behind = self.ledger.catching_up
        if not behind:
            return False
        failpoint("late.replay.before")
        with self.reporter.watch.doing(f"catches up {len(behind):,} tables with the stream"):
            self.publish(catch_up(self.ledger, self.runner, self.check_schema(behind)))
        failpoint("late.replay.after")
        return True

    def check_schema(
        self, records: Sequence[TableRecord], batch: batches.EpochBatch | None = None
    ) -> schema_check.RecordsCheck:
        """Look at the source's catalog, as every mark needs it, and compare it with the batch's statements.

        Raises an error of the whole source if objects upstream were made again.
        """
        statements = self.statements
        heard = None if batch is None else statements.statement_log(self.ledger, self.runner, batch, records)
        with self.reporter.watch.doing("asks the source whether its tables are what they were"):
            check = schema_check.check_records(
                self.mirror,
                records,
                self.ledger.position,
                widen=self.place.config.on_ddl == "follow",
                log=heard,
                pending=statements.awaited_tables,
            )
        self.reporter.watch.hears()
        if check.upstream_error is not None:
            raise check.upstream_error
        self._prove(records, check)
        unproven = frozenset() if batch is None else _unproven(self, records, batch.frontier)
        check = replace(check, proven_from=self.proven_from, locked_tables=check.locked_tables | unproven)
        others = self.ledger.tables.keys() - {record.name for record in records}
        self.reporter.facts.on_look(check, others)
        return check

    def _prove(self, records: Sequence[TableRecord], check: schema_check.RecordsCheck) -> None:
        """Note from where on marks may name tables that this look alone does not prove."""
        waited = {record.key for record in records if _has_waited(record)}
        new = {
            key: at
            for key, at in check.unproven.items()
            if (at is None and key in waited - self.proven_from.keys())
            or (at is not None and at > self.ledger.position and at != self.proven_from.get(key))
        }
        if new:
            # On an idle server the log must move on, or no frontier comes past the position.
            if self.mirror.captures is not None:
                self.mirror.captures.advance_log()
            end = self.mirror.end()
            self.proven_from |= {key: end if at is None else at for key, at in new.items()}

    def reach(self, frontier: Position) -> None:
        """Ask for a mark at this frontier as soon as the stream is there."""
        self.wanted_position = (
            frontier if self.wanted_position is None else max(self.wanted_position, frontier)
        )

    def room(self, time: int) -> int:
        """Return the time that a mark would reach if the stream is complete up to `time`."""
        return with_room(time) if self.ledger.staged else time

    def publish(self, epoch: Epoch) -> None:
        until = self.clock.until(epoch.frontier, epoch.earliest_commit_ts)
        with self.reporter.watch.doing(f"commits epoch {self.ledger.mark.epoch + 1:,} to the lake"):
            plan = self.ledger.publish(replace(epoch, complete_until=until))
        if epoch.source is not None:
            self.mirror = self.mirror.connection.mirror(epoch.source.upstream)
        self.receiving.on_published(epoch)
        for outcome in epoch.outcomes:
            folder = self.ledger.task_folder(outcome.table)
            forget_rows(self.place.store.url, folder, outcome.remove, self.place.config.row_cache)
        gone = {record.name for record in epoch.removed_tables if record.copy_id is None} | epoch.begun_anew
        self.copies.forget(gone)
        self.copied_parts.forget(gone)
        for step, seconds in self.ledger.log.durations.items():
            self.reporter.totals.took(step, seconds)
        self.proof_until = None
        waited = {record.key for record in self.ledger.present if _has_waited(record)}
        ahead = {key for key, at in self.proven_from.items() if at > self.ledger.position}
        self.proven_from = {key: at for key, at in self.proven_from.items() if key in waited | ahead}
        self.published_at = time.monotonic()
        self.acknowledger.on_published(plan, self.ledger.position)
        self.reporter.on_published(plan)
        self.size.on_published(plan)

    def read_clock(self) -> None:
        """Note what the source's clock says, for the marks that reach the present end of its log."""
        reading = self.mirror.clock()
        if reading is not None:
            self.clock.add(reading)

    # --- the slot -------------------------------------------------------------------------------

    def ask_health(self) -> None:
        now = time.monotonic()
        if now - self.watched_at < WATCH_SECONDS:
            return
        self.watched_at = now
        self.read_clock()
        health = self.mirror.health(self.place.config.max_wal)
        self.reporter.watch.hears()
        self.reporter.facts.on_health(health)
        if health.excess is not None and self.place.config.on_max_wal == "stop":
            raise health.excess


def _unproven(run: Run, records: Sequence[TableRecord], frontier: Position) -> frozenset[TableName]:
    """Find the tables that a mark at this frontier may not name, apart from those that waited."""
    ahead = {key for key, at in run.proven_from.items() if at > frontier}
    return frozenset(r.name for r in records if r.key in ahead and not _has_waited(r))


def _awaits_proof(run: Run, attached: Sequence[TableRecord], batch: batches.EpochBatch) -> bool:
    """Tell whether to wait a moment with a mark, because a later one need not leave out a table."""
    if batch.more or not _unproven(run, attached, batch.frontier):
        return False
    now = time.monotonic()
    run.proof_until = now + PROOF_SECONDS if run.proof_until is None else run.proof_until
    return now < run.proof_until


def _is_busy(run: Run) -> bool:
    """Tell whether anything is under way that the receiver says nothing about."""
    ledger = run.ledger
    unsettled = any(not record.state.is_settled for record in ledger.present) or bool(ledger.staged)
    return unsettled or run.commands.is_busy or is_waited_for(run)


def _has_waited(record: TableRecord) -> bool:
    """Tell whether its copy is in and no mark names it yet: no look has seen it since it was copied."""
    return record.state in (State.CATCHING_UP, State.JOINING)


def publish_stops(run: Run) -> None:
    """Stop the tables that cannot go on, and those that another program wrote to; before the first turn."""
    for epoch in stop_blocked(run.ledger):
        run.publish(epoch)
    foreign = run.ledger.foreign()
    if foreign:
        run.publish(stop_tables(run.ledger, foreign))


def _work_on(batch: batches.EpochBatch, runner: EpochRunner) -> str:
    """Describe the work of an epoch, and where it runs."""
    count, changes = len(batch.transactions), batch.changes
    where = "this process" if runner.is_done_here(changes, batch.size) else "a Spark job"
    return f"applies {count:,} transactions with {changes:,} changes, in {where}"
