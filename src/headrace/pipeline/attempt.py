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
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial

from headrace.core.durations import duration
from headrace.core.errors import Transient
from headrace.lake.log.commit import Claim
from headrace.lake.log.marks import Marks
from headrace.pipeline import first_run
from headrace.pipeline.carried_over import carry_over
from headrace.pipeline.copy.scheduler import CopyScheduler
from headrace.pipeline.first_run import Met
from headrace.pipeline.ingest.supervisor import Feed, Receiver
from headrace.pipeline.loop import Run
from headrace.pipeline.recovery import Remedy
from headrace.pipeline.resync import replacement
from headrace.pipeline.state import last_config
from headrace.pipeline.state.acknowledger import Acknowledger
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.place import Place
from headrace.pipeline.state.repair import mend
from headrace.pipeline.status_report import Reporter
from headrace.pipeline.stream.cadence import Cadence
from headrace.pipeline.stream.eager import EagerDecoding, Site
from headrace.pipeline.stream.epoch import EpochRunner
from headrace.pipeline.tasks.table_task import TableTask
from headrace.sources import registry
from headrace.sources.contract.decoder import Decoder
from headrace.sources.contract.session import Session
from headrace.sources.contract.waiting import Waiting
from headrace.spool.reader import SpoolReader

STREAMING_WITHIN = 30.0


@contextmanager
def opened(
    place: Place,
    *,
    once: bool,
    stop: threading.Event,
    reporter: Reporter,
    remedy: Remedy,
    claim: Claim | None = None,
) -> Iterator[Run]:
    """One attempt, open; `claim` goes from attempt to attempt of one process."""
    with ExitStack() as stack:
        if claim is None or not claim.held:
            mend(place.store, place.name)
        reporter.resumes(Marks(place.store, place.name).newest())
        kind = registry.by_address(place.config.url)
        session = stack.enter_context(closing(kind.connect(kind.address(place.config.url), role="run")))
        reporter.met = True
        ledger = Ledger(place.store, place.name, strict=place.config.strict, claim=claim)
        met = Met(ledger, place, session, _waiting(stop, reporter))
        _begin_or_agree(met)
        source = remedy.applied(met)
        if (unkept := carry_over(ledger)) is not None:
            ledger.publish(unkept)
        session.prove(source.identity)
        session.confirm(source.upstream)
        reporter.beside.refresh(session, place.config, ledger)
        if ledger.awaited:
            place.spark.begin()  # to copy them, once the stream is there
        target = session.end(source.upstream)
        receiver = _receiving(stack, place, ledger, session, stop)
        acknowledger = Acknowledger(ledger.sync, receiver.acknowledge)
        stack.callback(acknowledger.close)
        # What is there already was perhaps never synced: only after that is it acknowledged.
        acknowledger.published(None, ledger.position)
        run = Run(
            place=place,
            once=once,
            stop=stop,
            reporter=reporter,
            session=session,
            ledger=ledger,
            receiver=receiver,
            acknowledger=acknowledger,
            runner=_runner(stack, place, ledger),
            target=target,
            copies=CopyScheduler(place.config.snapshot_connections),
            cadence=Cadence(duration(place.config.every, "every").total_seconds()),
        )
        stack.callback(run.copies.stop)
        run.read_clock()
        yield run
    # All that was published is durable by now.
    replacement.clean_up(ledger)


def _waiting(stop: threading.Event, reporter: Reporter) -> Waiting:
    """Wait for other transactions before the loop begins: until the user stops us, and audibly."""

    def check() -> None:
        if stop.is_set():
            raise Transient("RUN_STOPPED", "the run was stopped", hint="run again to go on")

    return Waiting(check, partial(reporter.settle, "waiting"))


def _begin_or_agree(met: Met) -> None:
    """The first run chooses; a later one may ask for nothing that the lake does not do."""
    ledger, place = met.ledger, met.place
    if ledger.source is None:
        first_run.begin(met)
        return
    first_run.agree(place.config, ledger.source, ledger.tables)
    last_config.remember(place.store, place.name, place.config, place.lake)


def _receiving(
    stack: ExitStack,
    place: Place,
    ledger: Ledger,
    session: Session,
    stop: threading.Event,
) -> Receiver:
    """The receiver, streaming: the checks of its stream are behind us."""
    assert ledger.source is not None
    feed = Feed(
        ledger.source.kind,
        session.address,
        session.identity,
        ledger.source.upstream,
        place.spool,
        streaming=place.config.streaming == "auto",
        last=ledger.last_commits,
    )
    receiver = Receiver(feed)
    receiver.start(ledger.position)
    stack.callback(receiver.stop)
    deadline = time.monotonic() + STREAMING_WITHIN
    while not receiver.poll().streaming and not stop.is_set() and time.monotonic() < deadline:
        time.sleep(0.01)
    return receiver


def _runner(stack: ExitStack, place: Place, ledger: Ledger) -> EpochRunner:
    assert ledger.source is not None
    source = registry.by_kind(ledger.source.kind)
    decoder = source.decoder()
    return EpochRunner(
        spool=str(place.spool),
        reader=SpoolReader(place.spool),
        driver=place.driver,
        spark=place.spark,
        source=source,
        driver_epochs=place.config.driver_epochs,
        ships_bytes=place.ships_bytes,
        eager=_eager(stack, place, ledger, decoder) if place.config.streaming == "auto" else None,
    )


def _eager(stack: ExitStack, place: Place, ledger: Ledger, decoder: Decoder) -> EagerDecoding:
    """Work ahead on transactions that still run, for as long as the attempt lasts."""

    def tables() -> dict[int, TableTask]:
        attached = [] if ledger.recovering else [r for r in ledger.tables.values() if r.state.follows]
        return {record.number: ledger.outline(record) for record in attached}

    site = Site(place.store, ledger.address, place.name, place.spool, place.spark, place.ships_bytes, decoder)
    eager = EagerDecoding(site, tables)
    eager.start()
    stack.callback(eager.close)
    return eager
