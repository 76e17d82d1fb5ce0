"""The beginning of an attempt: from a configuration to everything that the loop of `loop` holds open.

In this order, since each step stands on the one before:

    connection, identity, same server as ever · take the source over in the lake (the fence; again only if
    nobody else did) · on the
    first run: preflight, publication, slot, the source's first records · receiver at the newest mark's
    frontier · acknowledger

Whatever fails closes what was opened. Nothing is made upstream before preflight found nothing against it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial

from headrace.core.durations import duration
from headrace.core.errors import Transient
from headrace.lake.log.commit import Claim
from headrace.lake.log.marks import Marks
from headrace.pipeline import first_run, switch
from headrace.pipeline.copy.scheduler import CopyScheduler
from headrace.pipeline.first_run import Attempt
from headrace.pipeline.loop import Run
from headrace.pipeline.receiving import Receiving
from headrace.pipeline.recovery import RecoveryPolicy
from headrace.pipeline.resync import replacement
from headrace.pipeline.state import lake_copy, last_config
from headrace.pipeline.state.acknowledger import Acknowledger
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.place import RunContext
from headrace.pipeline.state.repair import mend
from headrace.pipeline.status_report import Reporter
from headrace.pipeline.stream.cadence import Cadence
from headrace.sources import registry
from headrace.sources.contract.values import Waiting


@contextmanager
def open_attempt(
    place: RunContext,
    *,
    once: bool,
    stop: threading.Event,
    reporter: Reporter,
    remedy: RecoveryPolicy,
    claim: Claim | None = None,
) -> Iterator[Run]:
    """One attempt, open; `claim` goes from attempt to attempt of one process."""
    with ExitStack() as stack:
        if claim is None or not claim.is_held:
            mend(place.store, place.name)
        reporter.resumes(Marks(place.store, place.name).newest())
        kind = registry.by_address(place.config.url)
        connection = stack.enter_context(closing(kind.connect(kind.address(place.config.url), role="run")))
        reporter.has_answered = True
        reporter.watch.hears()
        ledger = Ledger(place.store, place.name, strict=place.config.strict, claim=claim)
        met = Attempt(ledger, place, connection, _waiting(stop, reporter))
        _begin_or_agree(met, dropped_knowingly=remedy.now is not None)
        remedy.apply(met)
        mirror = switch.follow(met)
        reporter.beside.refresh(mirror, place.config, ledger)
        if ledger.awaited_tables:
            place.spark.begin()  # to copy them, once the stream is there
        target = mirror.end()
        receiving = Receiving(place, ledger, connection)
        stack.callback(receiving.close)
        receiving.start(stop)
        acknowledger = Acknowledger(ledger.sync, receiving.receiver.acknowledge)
        stack.callback(acknowledger.close)
        # What is there already was perhaps never synced: only after that is it acknowledged.
        acknowledger.on_published(None, ledger.position)
        run = Run(
            place=place,
            once=once,
            stop=stop,
            reporter=reporter,
            mirror=mirror,
            ledger=ledger,
            receiving=receiving,
            receiver=receiving.receiver,
            runner=receiving.runner,
            acknowledger=acknowledger,
            target=target,
            copies=CopyScheduler(place.config.snapshot_connections),
            cadence=Cadence(duration(place.config.every, "every").total_seconds()),
        )
        stack.callback(run.copies.stop)
        run.read_clock()
        # The takeover and what began the source have marks, too, and no loop to report them.
        if reporter.totals.status.epoch != ledger.mark.epoch:
            reporter.totals.catch_up(Marks(place.store, place.name).index())
        yield run
    # All that was published is durable by now.
    replacement.clean_up(ledger)


def _waiting(stop: threading.Event, reporter: Reporter) -> Waiting:
    """Wait for other transactions before the loop begins: until the user stops us, and audibly."""

    def check() -> None:
        if stop.is_set():
            raise Transient("RUN_STOPPED", "the run was stopped", hint="run again to go on")

    return Waiting(check, partial(reporter.settle, "waiting"))


def _begin_or_agree(met: Attempt, *, dropped_knowingly: bool) -> None:
    """The first run chooses; a later one may ask for nothing that the lake does not do."""
    ledger, place = met.ledger, met.place
    if ledger.source is None:
        first_run.begin(met)
        return
    if not dropped_knowingly:
        last_config.refuse_dropped(place.store, place.name)
    if place.copy_of is not None:
        own = lake_copy.with_own_objects(ledger.source, place.name, place.lake_id, place.copy_of)
        if own is not None:
            ledger.publish(Epoch("open", ledger.frontier, source=own))
    met.mirror()  # an upstream that is not to be trusted is refused first
    first_run.agree(place.config, ledger.source, ledger.tables)
    last_config.remember(place.store, place.name, place.config, place.lake)
