"""A run, in the order in which it happens: one process, one or several sources, one Spark.

    headrace.mirror("headrace.toml")                       until it is told to stop
    headrace.mirror(config, spark=spark, once=True)        in a session that exists; until caught up

    mirror     reads the configuration; refuses a first run before it makes a lake; starts Spark
    keep       runs one source in a thread of its own: checks that no other process owns it; makes attempts
    _attempt   connects, proves the identity · takes the source over in the lake, which fences an older owner
               out · on a first run makes objects upstream · starts the receiver at the newest mark's frontier
    _turn      the loop: commands, copies, the stream, marks (`loop`)

An attempt ends when the user stops it, when its work is done (`once`), or with an error; `policy` decides
whether another attempt follows. An attempt rebuilds all it knows from the lake, so a crash and a retry take
one and the same path. After a failure, everything that was opened is closed. This is one of the named
supervisors.

Spark takes seconds to start, and the rooms that do the work (Polars, the compiled kernels) take another to
load. So this module imports them late, after it has begun to start Spark: the two load side by side.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headrace.alerts import hooks
from headrace.alerts.hooks import Hook
from headrace.alerts.watch import alerting
from headrace.core.errors import Definite, HeadraceError, Misconfigured, Transient, place_of
from headrace.iceberg import catalog
from headrace.iceberg.watch import exporting
from headrace.lake.format import formatfile
from headrace.lake.format.placefile import Elsewhere
from headrace.lake.retain.thinning import Keeping
from headrace.lake.store.open import open_store
from headrace.pipeline.state import last_config, ownership, policy
from headrace.pipeline.state.config import Config, config_of
from headrace.pipeline.state.owner import RunContext, open_contexts
from headrace.pipeline.state.policy import Patience
from headrace.pipeline.state.table_state import State
from headrace.pipeline.status_report import Listener, Reporter
from headrace.sources import registry
from headrace.sources.contract.values import Waiting
from headrace.spool.layout import erase

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.lake.log.commit import Claim
    from headrace.pipeline.loop import Run
    from headrace.pipeline.recovery import RecoveryPolicy


ATTEMPTS_ONCE = 8
STEADY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Control:
    """The way to end a run, and who listens to it."""

    once: bool
    stop: threading.Event
    listener: Listener | None = None
    reconcile: bool = False
    hooks: tuple[Hook, ...] = ()


def mirror(
    config: Config | Mapping[str, Any] | str | Path,
    spark: SparkSession | None = None,
    *,
    once: bool = False,
    stop: threading.Event | None = None,
    listener: Listener | None = None,
    reconcile: bool = False,
    elsewhere: Literal["moved", "copy"] | None = None,
    free_spark: bool = False,
) -> None:
    """Mirror what `config` says; with `once` until every table holds what its source held at the start.

    `reconcile` allows one recovery from a lost place in the stream: it copies all tables anew.
    `elsewhere` tells whether a lake that has a new address was moved or is a copy.
    `free_spark` ends a Spark of our own when nothing has needed it for five minutes, for a process that does
    nothing else with it.
    `config` is the path of a `headrace.toml`, or its contents as a mapping. Returns when `stop` is set, or
    when all is done with `once`. Raises the error that ended a source, once the other sources have ended.
    """
    wanted = config_of(config)
    told = hooks.hooks_of(wanted.alerts, os.environ)
    control = Control(once, stop or threading.Event(), listener, reconcile, told)
    why = None if elsewhere is None else Elsewhere(elsewhere)
    if wanted.iceberg is not None:
        catalog.require()
        catalog.refuse_afar(open_store(wanted.lake.path))
    if formatfile.is_new(open_store(wanted.lake.path)):
        _refuse_first(wanted, spark)
    elif why is Elsewhere.COPY:
        last_config.refuse_shared(wanted.lake.path)
    with open_contexts(
        wanted, spark, soon=not once, brief=once, free_spark=free_spark, elsewhere=why
    ) as places:
        _keep_all(places, control)


def _refuse_first(config: Config, spark: SparkSession | None) -> None:
    """Run the preflight of a first run before there is a lake: a refused run leaves none behind."""
    from headrace.pipeline import first_run
    from headrace.spark.session import knock_at

    for source in config.sources.values():
        try:
            first_run.preflight(source)
        except Transient as error:
            if not policy.retries(error, has_answered=False):
                raise
    if spark is None:
        knock_at(config.spark.master)


def _keep_all(places: list[RunContext], control: Control) -> None:
    """Run a thread for each source. An error ends its source alone; raise it once all sources have ended."""
    if len(places) == 1:
        keep(places[0], control)
        return
    ends: dict[str, BaseException] = {}

    def run_one(place: RunContext) -> None:
        try:
            keep(place, control)
        except BaseException as error:  # noqa: BLE001 - nobody else would learn why the thread ended
            ends[place.name] = error

    threads = [
        threading.Thread(target=run_one, args=(place,), name=f"headrace-{place.name}") for place in places
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if ends:
        raise _of_all(ends)


def keep(place: RunContext, control: Control) -> None:
    """Run a source until it is done, stopped, or ended by an error, and tell its hooks what happens."""
    reporter = Reporter(place.store, place.name, control.listener, engine=place.spark)
    # Before our first status record, which would replace that of a living owner, and before the events that
    # its hooks wait for are opened.
    ownership.claim(place.store, place.name, reporter.owner)
    ours = (place.store, place.name, place.lake_id)
    keeping = Keeping.of(marks=place.lake.marks, grace=place.lake.grace)
    with (
        alerting(*ours, control.hooks, place.spool) as reporter.alerts,
        exporting(*ours, keeping.dense, place.iceberg) as reporter.export,
    ):
        _keep(place, control, reporter)


def _keep(place: RunContext, control: Control, reporter: Reporter) -> None:
    """Run a source, attempt after attempt."""
    from headrace.lake.log.commit import Claim
    from headrace.pipeline.recovery import RecoveryPolicy

    reporter.start()
    patience = Patience(ATTEMPTS_ONCE if control.once else None)
    pauses = patience.pauses()
    recovery = RecoveryPolicy(control.reconcile, place.config.reconcile == "auto")
    claim = Claim()
    while True:
        begun = time.monotonic()
        try:
            stopped = _attempt(place, control, reporter, recovery, claim)
            reporter.settle("stopped")
            break
        except HeadraceError as error:
            if policy.disowns(error):
                reporter.leave()
                if not reporter.was_admitted:  # two began at once: name the other one, if it is alive
                    ownership.claim(place.store, place.name, reporter.owner)
                raise
            if time.monotonic() - begun > STEADY_SECONDS:
                pauses = patience.pauses()
            if recovery.fits(error):
                reporter.facts.healing = error
                continue
            pause = _pause_after(error, reporter, pauses)
            if pause is None:
                ended = _placed_error(error, reporter.frontier)
                reporter.settle("failed", ended)
                raise ended from error.__cause__
            if policy.spoils_the_spool(error):
                erase(place.spool)
            reporter.settle("waiting", error)
        except BaseException as error:
            _end(reporter, error)
            raise
        if control.stop.wait(pause):
            reporter.settle("stopped")
            return
    if control.once and stopped and not control.stop.is_set():
        raise stopped[0]


def _attempt(
    place: RunContext, control: Control, reporter: Reporter, recovery: RecoveryPolicy, claim: Claim
) -> list[HeadraceError]:
    """Run one attempt to its end, and return the errors of tables that stopped; `claim` goes to the next one.

    It makes nothing upstream until preflight has passed.
    """
    from headrace.lake.log.marks import Marks
    from headrace.pipeline import first_run
    from headrace.pipeline.loop import Run, publish_stops
    from headrace.pipeline.receiving import Receiving
    from headrace.pipeline.recovery import follow_server
    from headrace.pipeline.resync import replacement
    from headrace.pipeline.state.ledger import Acknowledger, Ledger
    from headrace.pipeline.state.ownership import mend

    with ExitStack() as stack:
        if not claim.is_held:
            mend(place.store, place.name)
        reporter.resumes(Marks(place.store, place.name).newest())
        kind = registry.by_address(place.config.url)
        connection = stack.enter_context(closing(kind.connect(place.config.address(), role="run")))
        reporter.has_answered = True
        reporter.watch.hears()
        ledger = Ledger(place.store, place.name, strict=place.config.strict, claim=claim)
        attempt = first_run.Attempt(ledger, place, connection, _waiting(control.stop, reporter))
        first_run.begin_or_agree(attempt, dropped_knowingly=recovery.now is not None)
        recovery.apply(attempt)
        mirror = follow_server(attempt)
        reporter.beside.refresh(mirror, place.config, ledger)
        if ledger.awaited_tables:
            place.spark.begin()  # to copy them, once the stream is there
        target = mirror.end()
        receiving = Receiving(place, ledger, connection)
        stack.callback(receiving.close)
        receiving.start(control.stop)
        acknowledger = Acknowledger(ledger.sync, receiving.receiver.acknowledge)
        stack.callback(acknowledger.close)
        # An earlier process perhaps never synced what the lake holds: sync it before it is acknowledged.
        acknowledger.on_published(None, ledger.position)
        ends = (control.once, control.stop)
        run = Run(place, *ends, reporter, mirror, ledger, receiving, acknowledger, target)
        stack.callback(run.copies.stop)
        run.read_clock()
        # No loop has reported the marks of the takeover and of the source's first epochs: report them here.
        if reporter.totals.status.epoch != ledger.mark.epoch:
            reporter.totals.catch_up(Marks(place.store, place.name).index())
        reporter.was_admitted = True
        publish_stops(run)
        _go(run)
        reporter.ends(run)
        stopped = [run.following.stop(r) for r in ledger.tables.values() if r.state is State.STOPPED]
    # All that was published is durable by now.
    replacement.clean_up(ledger)
    return stopped


def _go(run: Run) -> None:
    """Turn until the user stops us, or all is done with `once`."""
    while not run.stop.is_set() and not (run.once and run.is_done()):
        if not _turn(run):
            run.pause()
    if run.once and not run.stop.is_set():
        run.upkeep.finish(run)


def _turn(run: Run) -> bool:
    """Do a turn of the loop, in the order of its work; tell whether anything was done.

    ┌─► what did the receiver say?       a lost stream ends the attempt
    │   is a table's copy complete?      ──► epoch "copy":   its files; it catches up, or joins
    │   must it catch up with the others? ──► epoch "late":  the stream that the lake kept for it
    │   is there something in the spool? ──► epoch "stream": tables, history, a mark, at its `stream.cadence`
    │   has it been quiet for long?      ──► epoch "empty":  the same versions, a later frontier
    │   does a command ask for something? ──► `serve`; is maintenance due? ──► `upkeep` asks for it
    │   did a table stop because its shape changed? ──► `following` mirrors it again in its new shape
    └── write the status, watch the slot
    """
    doing = run.reporter.watch.doing
    run.receiver.poll()
    run.acknowledger.check()
    _check_spark(run)
    if run.runner.eager is not None:
        run.runner.eager.check()
    worked = run.take_copies() | run.catch_up() | run.advance()
    with doing("carries out what a command asked for"):
        worked |= run.commands.turn(run)
    with doing("begins the stream anew"):
        run.receiving.turn(run)
    with doing("compares new copies"):
        run.renewal.turn(run)
    run.following.turn(run)
    run.new_tables.turn(run)
    run.withdrawal.turn(run)
    run.begin_copying()
    run.upkeep.turn(run)
    run.size.turn(run.upkeep.since)
    with doing("asks the source how it is"):
        run.ask_health()
    run.reporter.turn(run)
    return worked


def _check_spark(run: Run) -> None:
    """Raise why Spark did not start if a person must act: the next work for it may be days away."""
    if isinstance(error := run.place.spark.failure, Misconfigured):
        raise error


# --- the end of an attempt, or of the run -------------------------------------------------------


def _waiting(stop: threading.Event, reporter: Reporter) -> Waiting:
    """Wait for other transactions before the loop begins: until the user stops us, and the status says so."""

    def check() -> None:
        if stop.is_set():
            raise Transient("RUN_STOPPED", "the run was stopped", hint="run again to go on")

    return Waiting(check, partial(reporter.settle, "waiting"))


def _pause_after(error: HeadraceError, reporter: Reporter, pauses: Iterator[float]) -> float | None:
    """Return the seconds until the next attempt; None if there is none."""
    answered, admitted = reporter.has_answered, reporter.was_admitted
    again = policy.retries(error, has_answered=answered, was_admitted=admitted)
    return next(pauses, None) if again else None


def _end(reporter: Reporter, error: BaseException) -> None:
    """Report that an error without a code ended the run: its process may live on and repeat its status."""
    if not isinstance(error, Exception):
        reporter.settle("stopped")  # by hand
        return
    ended = Definite(
        "RUN_ENDED",
        f"the run was ended by {type(error).__name__}",
        detail=place_of(error),
        hint="headrace run goes on; if it ends so again, report the traceback that it prints",
    )
    reporter.settle("failed", ended)


def _placed_error(error: HeadraceError, reached: str | None) -> HeadraceError:
    """Return the error that ends a source, with the position that the lake holds."""
    return error if reached is None else error.adding(f'the lake is complete up to "{reached}"')


def _of_all(ends: Mapping[str, BaseException]) -> BaseException:
    """Make one error of those that ended sources: a bug of ours goes first, the others are named."""
    name, error = min(ends.items(), key=lambda each: isinstance(each[1], HeadraceError))
    if not isinstance(error, HeadraceError):
        return error
    others = [
        f'source "{n}": {e.code}' for n, e in ends.items() if n != name and isinstance(e, HeadraceError)
    ]
    named = error.adding("; ".join([f'of source "{name}"', *others]))
    named.__cause__ = error.__cause__
    return named
