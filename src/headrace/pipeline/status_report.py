"""The status report: a run writes its status record to the lake about once a second.

`headrace status` reads the record from the lake and needs no password and no connection. `state.ownership`
reads it to find whether a source has an owner. It holds names, positions, counts and codes: never a value of
a row, never a secret.

A run goes on if the store does not take a record: it counts the failure, shows the count once it can write
again, and writes the next second's record instead. One silent second costs no owner its source.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from headrace.core.errors import HeadraceError, Transient
from headrace.core.names import TableName
from headrace.core.position import plain
from headrace.core.records import from_record, to_record
from headrace.lake.format import statusfile
from headrace.lake.format.plan import Plan
from headrace.lake.format.status import (
    AlterationStatus,
    CopyStatus,
    EpochStatus,
    IcebergStatus,
    PositionStatus,
    SourceStatus,
    TableStatus,
    UpstreamStatus,
    WorkStatus,
    moment_text,
)
from headrace.lake.log.marks import Mark
from headrace.lake.read.positions import show_position
from headrace.lake.store.contract import Store
from headrace.pipeline.loop_watch import LoopWatch, WatchedRun, source_of
from headrace.pipeline.processes import Processes
from headrace.pipeline.state.ownership import ENDED
from headrace.pipeline.state.records import Alteration, TableRecord
from headrace.pipeline.totals import Totals
from headrace.sources import registry
from headrace.sources.contract.errors import TableBusy
from headrace.sources.contract.mirror import Health
from headrace.spool.process import this_process

if TYPE_CHECKING:
    from headrace.pipeline.copy.context import CopyProgress
    from headrace.pipeline.copy.scheduler import CopyScheduler
    from headrace.pipeline.following import Prospect, TablesRun
    from headrace.pipeline.lake_size import LakeSize
    from headrace.pipeline.state.config import SourceConfig
    from headrace.pipeline.state.ledger import Ledger
    from headrace.pipeline.state.owner import RunContext
    from headrace.pipeline.state.schema_check import RecordsCheck
    from headrace.pipeline.stream.cadence import Cadence
    from headrace.sources.contract.mirror import Mirror

EVERY_SECONDS = statusfile.EVERY_SECONDS
LAST_WORD_SECONDS = 10.0
BESIDE_SECONDS = 60.0
BESIDE_PAUSE = 200  # the pause between two looks at unmirrored tables, in times that one look took
TOLD_ALTERATIONS = 100

Listener = Callable[[SourceStatus], None]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(slots=True)
class Beside:
    """The unmirrored tables that the configuration's patterns match."""

    unmirrored_tables: dict[str, str] = field(default_factory=dict)  # the code that says why, by name
    # The tables that the run is about to add by itself; None: it has not looked at them yet.
    coming: frozenset[str] | None = frozenset()
    at: str | None = None
    _due_at: float = 0.0

    @property
    def told_tables(self) -> dict[str, str]:
        """Return the tables that stay unmirrored until somebody acts."""
        from headrace.pipeline.state.choice import NOT_ADDED

        found, coming = self.unmirrored_tables, self.coming
        if coming is None:
            return {name: code for name, code in found.items() if code != NOT_ADDED}
        return {name: code for name, code in found.items() if name not in coming}

    @property
    def due(self) -> bool:
        """Tell whether it is time to look again; each attempt also looks when it begins."""
        return time.monotonic() >= self._due_at

    def refresh(self, mirror: Mirror, config: SourceConfig, ledger: Ledger) -> None:
        """Ask the source which tables the patterns match by now."""
        # Imported late: this module is loaded before Spark is told to start, and that one takes a second.
        from headrace.pipeline.state.choice import find_unmirrored

        assert ledger.source is not None
        begun = time.monotonic()
        self.unmirrored_tables = find_unmirrored(mirror, config, ledger.tables)
        self.coming = None if config.new_tables == "add" else frozenset()
        # Marks wait meanwhile: the longer a look takes, the more seldom it is made.
        now = time.monotonic()
        self.at, self._due_at = _now(), now + max(BESIDE_SECONDS, BESIDE_PAUSE * (now - begun))


@dataclass(frozen=True, slots=True)
class UnseenTable:
    """A table that marks omit because a session may be altering it: since which look, and which session."""

    since: str
    clock: float  # the time of that look by the monotonic clock
    busy: TableBusy | None = None


@dataclass(slots=True)
class Facts:
    """The newest facts that the parts of a run report for its status."""

    health: Health | None = None
    health_at: str | None = None
    copies: CopyScheduler | None = None
    # Tables in no mark, for want of a privilege.
    denials: Mapping[TableName, HeadraceError] = field(default_factory=dict)
    # Tables that the stream follows, and that a copy could not read.
    unreadable: Mapping[TableName, HeadraceError] = field(default_factory=dict)
    late_columns: Mapping[TableName, HeadraceError] = field(default_factory=dict)
    # Tables in no mark that somebody may be altering.
    unseen_tables: Mapping[TableName, UnseenTable] = field(default_factory=dict)
    alterations: tuple[AlterationStatus, ...] = ()  # the newest; the reporter's thread reads them
    healing: HeadraceError | None = None  # the loss of a position, while all tables are copied anew for it
    # Live tables whose new copies were given up, until somebody asks for one again.
    not_renewed: dict[TableName, HeadraceError] = field(default_factory=dict)
    _last_change: dict[str, str] = field(default_factory=dict)
    _left_out: dict[str, tuple[Any, tuple[str, ...]]] = field(default_factory=dict)  # and for which details

    def prune(self, ledger: Ledger) -> None:
        """Forget a reconcile that is over, and failed new copies that were asked for again."""
        if not ledger.recovering:
            self.healing = None
        named = {name for name, record in ledger.tables.items() if record.state.is_named}
        wanted = named - ledger.staged.keys()
        self.not_renewed = {name: error for name, error in self.not_renewed.items() if name in wanted}

    def on_health(self, health: Health) -> None:
        """Note what the source said that it holds for us."""
        self.health, self.health_at = health, _now()

    def on_published(self, plan: Plan) -> None:
        """Note, once an epoch has its mark, when its tables changed and which were altered."""
        for step in plan.steps:
            if step.path.startswith("tables/"):
                self._last_change[step.path] = plan.upstream_commit_ts or _now()
        for record in filter(None, plan.state.values()):
            altered = record.get("alteration") if "alteration" in record else None
            if altered is not None and altered["epoch"] == plan.epoch:
                newest = _alteration(record["name"], altered)
                self.alterations = (*self.alterations, newest)[-TOLD_ALTERATIONS:]

    def on_look(self, check: RecordsCheck, others: Collection[TableName]) -> None:
        """Note the result of a look; it did not ask about `others`."""
        kept = {name: error for name, error in self.denials.items() if name in others}
        self.denials = {**kept, **check.denials}
        kept = {name: error for name, error in self.unreadable.items() if name in others}
        self.unreadable = {**kept, **check.unreadable}
        kept = {name: error for name, error in self.late_columns.items() if name in others}
        self.late_columns = {**kept, **check.late_columns}
        before, now = self.unseen_tables, UnseenTable(_now(), time.monotonic())
        self.unseen_tables = {name: seen for name, seen in before.items() if name in others} | {
            name: replace(before.get(name, now), busy=check.busy.get(name))
            for name in check.locked_tables - check.denials.keys()
        }

    def waits(self) -> dict[str, str]:
        """Return the reasons for which copies and tables wait, by code."""
        waits: dict[str, str] = {}
        copies = [] if self.copies is None else self.copies.waits_for
        excess = () if self.health is None or self.health.excess is None else (self.health.excess,)
        reasons = [(error.code, f"{error.primary}: {error.detail}") for error in self.denials.values()]
        reasons += [
            (error.code, f"{error.primary}: {error.detail}: {error.hint}")
            for error in (*self.unreadable.values(), *self.late_columns.values())
        ]
        reasons += [(error.code, f"{error.primary}: {error.detail}") for error in (*copies, *excess)]
        reasons += [
            (error.code, f"{name} was not copied anew: {error.primary}")
            for name, error in self.not_renewed.items()
        ]
        if (lost := self.healing) is not None:
            reasons.append((lost.code, f"{lost.primary}; all tables are copied anew"))
        for code, reason in reasons:
            waits[code] = f"{waits[code]}; {reason}" if code in waits else reason
        return waits

    @property
    def progress(self) -> Mapping[Any, CopyProgress]:
        return {} if self.copies is None else self.copies.progress

    @property
    def upstream(self) -> UpstreamStatus | None:
        """Ask the source to describe the objects that it has for us."""
        health = self.health
        if health is None or health.figures is None:
            return None
        return UpstreamStatus(
            health.figures, health.lines, self.health_at, health.retained_bytes, health.limit_bytes
        )

    def columns_left_out(self, run: ReportedRun, record: TableRecord) -> tuple[str, ...]:
        """Name the columns that the source does not send of a table."""
        details, names = self._left_out.get(record.key, (None, ()))
        if details is not record.details and run.ledger.source is not None:
            captures = run.mirror.captures
            names = () if captures is None else captures.columns_left_out(record.details)
            self._left_out[record.key] = (record.details, names)
        return names

    def last_change(self, folder: str) -> str | None:
        return self._last_change.get(folder)


class Reasons(Protocol):
    """The reasons for which tables are in no mark."""

    def reason(self, record: TableRecord) -> HeadraceError | None: ...
    def prospect(self, run: TablesRun, record: TableRecord) -> Prospect: ...


class ReportedRun(WatchedRun, Protocol):
    """A run, as far as its status shows it."""

    @property
    def place(self) -> RunContext: ...
    @property
    def mirror(self) -> Mirror: ...
    @property
    def following(self) -> Reasons: ...
    @property
    def size(self) -> LakeSize: ...
    @property
    def cadence(self) -> Cadence: ...


class Engine(Protocol):
    """Spark, as far as a status shows what it waits for."""

    @property
    def waits(self) -> tuple[str, float] | None: ...
    @property
    def failure(self) -> BaseException | None: ...


class Alerts(Protocol):
    """The alerts of a run: they get each status, and the next one shows their troubles."""

    @property
    def warnings(self) -> dict[str, str]: ...
    def on_status(self, status: SourceStatus, /) -> None: ...


class MarkExport(Protocol):
    """The export of a run's marks: the status shows how far it is, and its troubles."""

    @property
    def warnings(self) -> dict[str, str]: ...
    @property
    def status(self) -> IcebergStatus | None: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class Reporter:
    """Collects the facts of a run and writes them into its status record."""

    store: Store
    source: str
    listener: Listener | None = None
    alerts: Alerts | None = None
    export: MarkExport | None = None
    started_at: str = field(default_factory=_now)
    state: str = "starting"
    has_answered: bool = False  # the server has answered in this run, or in an earlier one of the lake
    was_admitted: bool = False  # the server has let this run do all that an attempt begins with
    error: HeadraceError | None = None
    frontier: str | None = None  # the frontier of the newest mark
    warnings: dict[str, str] = field(default_factory=dict)
    unwritten: int = 0  # records in a row that the store did not take
    beside: Beside = field(default_factory=Beside)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)
    facts: Facts = field(default_factory=Facts)
    totals: Totals = field(default_factory=Totals)
    processes: Processes = field(default_factory=Processes)
    receiver: int | None = None  # the process that takes the stream
    engine: Engine | None = None
    watch: LoopWatch = field(default_factory=LoopWatch)
    _state_since: str = field(default_factory=_now)
    _warned_since: dict[str, str] = field(default_factory=dict)  # since when, by code
    _written_at: float = 0.0
    _seen_at: float = 0.0
    _last: SourceStatus | None = None
    _last_news: SourceStatus | None = None  # the news that the store has
    _news_at: float = 0.0

    def start(self) -> None:
        """Begin to write about once a second, also while the run is busy with an epoch.

        Replace the earlier run's last record at once: it would let a command take the source from this run.
        """
        if (before := statusfile.read(self.store, self.source)) is not None:
            self.watch.resume(before.record)
            self.totals.resume(before.record)
            self.tell()
        threading.Thread(target=self._repeat, name="headrace-reporter", daemon=True).start()

    def _repeat(self) -> None:
        while not self._over.wait(EVERY_SECONDS):
            with self._lock:
                if time.monotonic() - self._written_at >= EVERY_SECONDS and not self._over.is_set():
                    # If it is more than a hiccup of the store, the run meets it in its next turn.
                    with suppress(HeadraceError):
                        self._tell()

    def resumes(self, mark: Mark | None) -> None:
        """Begin an attempt; if the lake has a mark of the source, its server has answered before.

        Drop the warnings of the attempt before: this one warns of the troubles that it meets itself.
        """
        self.warnings = {}
        if mark is not None:
            self.has_answered = True
            self.frontier = (
                plain(mark.frontier) if mark.time >= 0 else None
            )  # nothing is before the first position

    def turn(self, run: ReportedRun) -> None:
        """Gather the facts and write them, at most once a second; called in each turn of the loop."""
        self.watch.turns(run)
        if time.monotonic() - self._seen_at >= EVERY_SECONDS:
            self._seen_at = time.monotonic()
            self._enter("running", None)
            self.facts.prune(run.ledger)
            if self.beside.due:
                self.beside.refresh(run.mirror, run.place.config, run.ledger)
            self.receiver = run.receiver.pid
            self._last = _picture(run, self)
            self.tell()

    def ends(self, run: ReportedRun) -> None:
        """Gather the facts once more at the end of the run, for its last record."""
        self.watch.turns(run)
        self.facts.prune(run.ledger)
        self._last = _picture(run, self)
        with self._lock:
            self.watch.look()

    def on_published(self, plan: Plan) -> None:
        """Note that an epoch got its mark."""
        self.frontier = plain(plan.frontier)
        self.facts.on_published(plan)
        self.totals.on_published(plan)

    def warn(self, code: str, primary: str) -> None:
        """Show this warning until `clear` takes it back."""
        self.warnings[code] = primary

    def clear(self, code: str) -> None:
        """Take a warning back; do nothing if nobody gave it."""
        self.warnings.pop(code, None)

    def gave_up(self, name: TableName, error: HeadraceError) -> None:
        """Note that the new copy of a live table failed; shown until somebody asks for it again."""
        self.facts.not_renewed = {**self.facts.not_renewed, name: error}

    def _enter(self, state: str, error: HeadraceError | None) -> None:
        if state != self.state:
            self._state_since = _now()
        self.state, self.error = state, error

    def settle(self, state: str, error: HeadraceError | None = None) -> None:
        """Set the state of a run that waits or is over: the loop does nothing, and no copy waits."""
        if state in ENDED and self.export is not None:
            self.export.close()  # while the source is still ours
        with self._lock:
            self._enter(state, error)
            self.watch.leave()
            self.facts.copies = None
        if state in ENDED:
            self._over.set()
        deadline = time.monotonic() + LAST_WORD_SECONDS
        while not self.tell() and state in ENDED and time.monotonic() < deadline:
            time.sleep(EVERY_SECONDS / 2)

    def leave(self) -> None:
        """Write nothing more: the source belongs to another process."""
        with self._lock:
            self._over.set()

    def tell(self) -> bool:
        """Write the record now; return False if the store did not take it."""
        with self._lock:
            return self._tell()

    def _tell(self) -> bool:
        self._written_at = time.monotonic()
        said = _record(self)
        self.totals.on_report(said)
        said = replace(said, totals=self.totals.status, processes=self.processes.look(self.receiver))
        if self.listener is not None:
            self.listener(said)
        if self.alerts is not None:
            self.alerts.on_status(said)
        news, now = _news(said), time.monotonic()
        if news == self._last_news and now - self._news_at < statusfile.silence(self.store) - EVERY_SECONDS:
            return True
        try:
            statusfile.write(self.store, self.source, said)
            self._last_news, self._news_at = news, now
        except Transient as error:
            self.unwritten += 1
            self.warnings["STATUS_UNWRITTEN"] = f"{error.primary}; {self.unwritten} records in a row"
            return False
        if self.unwritten:
            self.unwritten = 0
            self.warnings.pop("STATUS_UNWRITTEN", None)
        return True

    @property
    def owner(self) -> dict[str, Any]:
        return this_process(self.started_at)


def _news(said: SourceStatus) -> SourceStatus:
    """Leave out what goes on while nothing happens: times, sums, and how far the stream was received."""
    at = said.position or PositionStatus()
    position = PositionStatus(frontier=at.frontier, waiting_since="some" if at.waiting_since else None)
    tables = {
        name: replace(table, retry_at=None) if table.retry_at else table
        for name, table in (said.tables or {}).items()
    }
    return replace(
        said,
        updated_at="",
        position=position,
        tables=tables,
        totals=None,
        processes={},
        turned_at=None,
        contact_at=None,
        work=None,
        upstream=None,
        storage=None,
        unmirrored_at=None,
    )


def _record(reporter: Reporter) -> SourceStatus:
    """Make the record: the loop's last facts, and those that need no loop."""
    now, watch = datetime.now(UTC), reporter.watch
    watch.look()
    warnings = {**reporter.warnings, **reporter.facts.waits()}
    if reporter.alerts is not None:
        warnings |= reporter.alerts.warnings
    if reporter.export is not None:
        warnings |= reporter.export.warnings
    engine = None if reporter.state in ENDED else reporter.engine
    spark = None if engine is None else engine.waits
    if engine is not None and isinstance(failed := engine.failure, Transient):
        warnings[failed.code] = f"{failed.primary}: {failed.detail}; the next work for Spark tries again"
    reporter._warned_since = {code: reporter._warned_since.get(code, _now()) for code in warnings}
    said = replace(
        reporter._last or SourceStatus(reporter.source, reporter.state),
        state=reporter.state,
        state_since=reporter._state_since,
        owner=reporter.owner,
        updated_at=_now(),
        error=to_record(reporter.error),
        warnings=warnings,
        warned_since=reporter._warned_since,
        unmirrored_tables=reporter.beside.told_tables,
        unmirrored_at=reporter.beside.at,
        alterations=reporter.facts.alterations,
        position=watch.position,
        running=watch.running,
        turned_at=watch.turned_at,
        contact_at=watch.contact_at,
        work=watch.work,
        spark=None if spark is None else WorkStatus(spark[0], moment_text(spark[1])),
        iceberg=None if reporter.export is None else reporter.export.status,
    )
    if said.position is None:
        return said
    lag = round(said.lag_seconds(now) or 0.0, 3)
    return replace(said, position=replace(said.position, lag_seconds=lag))


def _alteration(table: str, record: Mapping[str, Any]) -> AlterationStatus:
    altered = from_record(Alteration, record)
    return AlterationStatus(table, altered.epoch, str(altered.at), altered.way.value, altered.what, _now())


def _picture(run: ReportedRun, reporter: Reporter) -> SourceStatus:
    progress, counts = reporter.facts.progress, run.runner.counts
    return SourceStatus(
        source=reporter.source,
        state=reporter.state,
        upstream=reporter.facts.upstream,
        epochs=EpochStatus(
            counts.driver,
            counts.spark,
            counts.from_sorted_runs,
            run.ledger.mark.epoch,
            dict(counts.file_ways),
        ),
        copy=_total(progress),
        storage=run.size.status,
        mark_interval=round(run.cadence.interval, 1),
        chooses_interval=run.cadence.every is None,
        marked_at=run.ledger.mark.published_at.isoformat(),
        tables={
            str(name): _table(run, reporter, record, progress.get(name))
            for name, record in sorted(run.ledger.tables.items())
        },
    )


def _since(run: ReportedRun, record: TableRecord, since: int) -> str:
    """Print a table's `since` as its server spelled it then: the server may have been set back later."""
    near = record.stopped_at or run.ledger.frontier
    return show_position(registry.spelling(source_of(run).kind), since, near)


def _total(progress: Mapping[Any, CopyProgress]) -> CopyStatus:
    copies = [_copy(each) for each in progress.values()]
    return CopyStatus(
        rows_known=sum(copy.rows_known for copy in copies),
        rows_done=sum(copy.rows_done for copy in copies),
        bytes_known=sum(copy.bytes_known for copy in copies),
        bytes_done=sum(copy.bytes_done for copy in copies),
    )


def _copy(progress: CopyProgress) -> CopyStatus:
    return CopyStatus(progress.rows_known, progress.rows_done, progress.bytes_known, progress.bytes_done)


def _copying(record: TableRecord) -> str:
    return "copying" if record.old_rows is None else "rewriting"


def _table(
    run: ReportedRun, reporter: Reporter, record: TableRecord, progress: CopyProgress | None
) -> TableStatus:
    copying = record.state.awaits_copy and progress is not None
    anew = run.ledger.staged.get(record.name)
    # A new copy ends the refusal of an earlier one.
    reason = run.following.reason(record) if anew is None else record.error
    prospect = run.following.prospect(run, record)
    retry = None if prospect.retry_in is None else time.time() + max(0.0, prospect.retry_in)
    unseen = reporter.facts.unseen_tables.get(record.name)
    holder = None if unseen is None or unseen.busy is None else unseen.busy.detail
    folder = run.ledger.task_folder(record.name)
    extent = run.ledger.live.extent(folder) if record.state.has_rows else None
    return TableStatus(
        state=_copying(record) if copying else record.state.value,
        join=record.join,
        held_transactions=record.held_transactions,
        copied_anew=None if anew is None else anew.state.value,
        since=None if record.since is None else _since(run, record, record.since),
        rows=None if extent is None else extent.rows,
        files=None if extent is None else extent.files,
        size_bytes=None if extent is None else extent.size,
        last_change=reporter.facts.last_change(folder),
        error=to_record(reason),
        stopped_at=None if record.stopped_at is None else str(record.stopped_at),
        stopped_since=None if record.stopped_since is None else record.stopped_since.isoformat(),
        schema_version=record.schema.version,
        schema_since=None if record.alteration is None else str(record.alteration.at),
        copy=None if progress is None else _copy(progress),
        unseen_since=None if unseen is None else unseen.since,
        holder=holder,
        follows=prospect.follows,
        retry_at=None if retry is None else moment_text(retry),
        is_missing=prospect.is_gone,
        columns_left_out=reporter.facts.columns_left_out(run, record),
    )
