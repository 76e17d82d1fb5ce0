"""The public entry: mirror one or several sources into a lake, in one process, on one Spark.

    headrace.mirror("headrace.toml")                       until it is told to stop
    headrace.mirror(config, spark=spark, once=True)        in a session that exists; until caught up

Each source is kept by a thread of its own. Errors become reactions here, by `policy`: a source begins
again after a transient one, and stops for good after any other. This is one of the named supervisors.

Spark takes seconds to start, and the rooms that do the work (Polars, the compiled kernels) another to load.
So this module imports them late, once Spark was told to start: the two go on side by side.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.core.errors import Definite, HeadraceError, Transient
from headrace.lake import formatfile, layout
from headrace.lake.store import LocalStore, Store, open_store
from headrace.pipeline import config as configuration
from headrace.pipeline import owning, policy
from headrace.pipeline.config import Config
from headrace.pipeline.policy import Patience
from headrace.pipeline.reporting import Listener, Reporter
from headrace.pipeline.states import State
from headrace.spark.awaited import Awaited, Opened
from headrace.spark.depot import Depot
from headrace.spark.jobs import DriverRunner, Runner
from headrace.spark.paths import local_probe, prove_shared
from headrace.spark.session import SparkConfig, borrow_session, has_executors, open_session
from headrace.spark.warmth import Heartbeat, warm
from headrace.spool.layout import erase
from headrace.spool.private import private_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipeline.lifecycle import Place

ATTEMPTS_ONCE = 8
STEADY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Control:
    """How a run is told to end, and who listens to it."""

    once: bool
    stop: threading.Event
    listener: Listener | None = None
    reconcile: bool = False


def mirror(
    config: Config | Mapping[str, Any] | str | Path,
    spark: SparkSession | None = None,
    *,
    once: bool = False,
    stop: threading.Event | None = None,
    listener: Listener | None = None,
    reconcile: bool = False,
) -> None:
    """Mirror what `config` says; with `once` until every table holds what its source held at the start.

    With `reconcile` a place in the stream that was lost is left: all tables are copied anew, once.
    `config` is the path of a `headrace.toml`, or its contents as a mapping. Raises the error that ended
    a source; returns when `stop` is set, or when all is done with `once`.
    """
    control = Control(once, stop or threading.Event(), listener, reconcile)
    wanted = settled(config)
    if formatfile.is_new(open_store(wanted.lake.path)):
        _refuse_first(wanted)
    with placed(wanted, spark, soon=not once, brief=once) as places:
        _keep_all(places, control)


def _refuse_first(config: Config) -> None:
    """Find what stands against a first run before there is a lake: a refused run leaves none behind."""
    from headrace.pipeline import choosing

    for source in config.sources.values():
        try:
            choosing.preflight(source)
        except Transient as error:
            if not policy.retries(error, met=False):
                raise


@contextmanager
def placed(
    config: Config, spark: SparkSession | None = None, *, soon: bool = False, brief: bool = False
) -> Iterator[list[Place]]:
    """Where the sources are run; Spark is started when it is first needed, or at once if `soon`."""
    store = open_store(config.lake.path)
    lake_id = formatfile.create_lake(store).lake_id
    local = spark is None and not config.spark.remote and not has_executors(config.spark.master or "local")
    engine = Awaited(partial(_start, store, config, spark, brief))
    with closing(engine):
        if soon:
            engine.begin()
        from headrace.pipeline.lifecycle import Place

        yield [
            Place(
                name=name,
                config=source,
                store=store,
                spool=_spool(store, name, lake_id),
                driver=DriverRunner(),
                spark=engine,
                lake_id=lake_id,
                ships_bytes=not local and not isinstance(store, LocalStore),
                lake=config.lake,
            )
            for name, source in config.sources.items()
        ]


def settled(config: Config | Mapping[str, Any] | str | Path) -> Config:
    """A configuration, from whatever says it."""
    if isinstance(config, Config):
        return config
    if isinstance(config, Mapping):
        return configuration.parse(config)
    return configuration.read(config)


def _start(store: Store, config: Config, spark: SparkSession | None, brief: bool) -> Opened:
    """Spark, its workers warm, the lake proved to be shared with them; and how to end it all."""
    with ExitStack() as stack:
        if spark is not None:
            session = borrow_session(spark)
        else:
            wanted = SparkConfig(config.spark.master, config.spark.remote, config.spark.conf)
            session = open_session(wanted, brief=brief)
        if session.owned:
            stack.callback(session.spark.stop)
        depot = Depot(store.url)
        depot.tidy()
        runner = Runner(session, depot)
        if isinstance(store, LocalStore):
            prove_shared(runner, runner.slots, local_probe(Path(store.path)))
        warm(runner)
        stack.enter_context(Heartbeat(runner))
        return runner, stack.pop_all().close


def _spool(store: Store, name: str, lake_id: str) -> Path:
    """In the lake's own directory, which executors share; beside a bucket, on this machine's disk."""
    if isinstance(store, LocalStore):
        return Path(store.path) / "_headrace" / "spool" / layout.quote(name)
    return private_folder(Path(tempfile.gettempdir()) / f"headrace-spool-{lake_id}") / layout.quote(name)


def _keep_all(places: list[Place], control: Control) -> None:
    """One thread a source; the first error that ends one ends the others, and is raised."""
    if len(places) == 1:
        keep(places[0], control)
        return
    errors: list[HeadraceError] = []

    def kept(place: Place) -> None:
        try:
            keep(place, control)
        except HeadraceError as error:
            errors.append(error)
            control.stop.set()

    threads = [
        threading.Thread(target=kept, args=(place,), name=f"headrace-{place.name}") for place in places
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def keep(place: Place, control: Control) -> None:
    """Run a source, attempt after attempt, until it is done, stopped, or ended by an error."""
    from headrace.lake.commit import Claim
    from headrace.pipeline.healing import Remedy
    from headrace.pipeline.opening import opened

    reporter = Reporter(place.store, place.name, control.listener)
    # Before the first word of ours: the status record is how a living owner is told.
    owning.claim(place.store, place.name, reporter.owner)
    reporter.start()
    patience = Patience(ATTEMPTS_ONCE if control.once else None)
    pauses = patience.pauses()
    remedy = Remedy(control.reconcile, place.config.reconcile == "auto")
    claim = Claim()
    while True:
        begun = time.monotonic()
        try:
            with opened(
                place,
                once=control.once,
                stop=control.stop,
                reporter=reporter,
                remedy=remedy,
                claim=claim,
            ) as run:
                run.go()
                reporter.ends(run)
                stopped = {n: r for n, r in run.ledger.tables.items() if r.state is State.STOPPED}
            reporter.settle("stopped")
            break
        except HeadraceError as error:
            if policy.disowns(error):
                reporter.leave()
                raise
            if time.monotonic() - begun > STEADY_SECONDS:
                pauses = patience.pauses()
            if remedy.fits(error):
                reporter.warn(error.code, f"{error.primary}; all tables are copied anew")
                continue
            again = policy.retries(error, met=reporter.met)
            pause = next(pauses, None) if again else None
            if pause is None:
                ended = _placed(error, reporter.reached)
                reporter.settle("failed", ended)
                raise ended from error.__cause__
            if policy.spoils_the_spool(error):
                erase(place.spool)
            reporter.settle("waiting", error)
        if control.stop.wait(pause):
            return
    if control.once and stopped and not control.stop.is_set():
        name, record = next(iter(stopped.items()))
        raise record.stop or Definite("TABLE_STOPPED", f"{name} is stopped", hint="headrace status shows why")


def _placed(error: HeadraceError, reached: str | None) -> HeadraceError:
    """The error that ends a source, with the position that the lake holds."""
    return error if reached is None else error.adding(f'the lake is complete up to "{reached}"')
