"""The owner of a source's fence, and the context of its run: configuration, lake, spool, who does the work.

    RunContext   made once for a process (`open_contexts`), for all of its sources: they share one Spark,
                 which is started when it is first needed. It has no connection and no record of the lake
    Owner        whoever has the fence, as the code that works for it sees it: the loop of a run, which keeps
                 the fence while it streams, or a command that found no run, and holds it while it works

The work of a command needs only an `Owner`, so one function serves both. It runs on the owner's thread. Work
that has to wait is an `Errand`, one step of `Steps` each, which runs in a thread of its own and changes
nothing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.iceberg.settings import IcebergConfig
from headrace.lake.format import formatfile, layout, mark_log, placefile, statusfile
from headrace.lake.format.placefile import Elsewhere
from headrace.lake.log import catalog
from headrace.lake.store.contract import Store
from headrace.lake.store.local import LocalStore
from headrace.lake.store.open import open_store, prove_atomic
from headrace.pipeline.state.config import Config, LakeConfig, SourceConfig
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import SOURCE_KEY
from headrace.sources.contract.mirror import Mirror
from headrace.spark import jvm
from headrace.spark.depot import Depot
from headrace.spark.jobs import DriverRunner, Jobs, Runner
from headrace.spark.lazy import LazyJobs, Opened, Shortage
from headrace.spark.paths import local_probe, prove_shared
from headrace.spark.session import SparkConfig, borrow_session, has_executors, open_session, tasks_here
from headrace.spark.warmth import ExecutorWatch, Heartbeat, warm
from headrace.spool.private import private_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


REACH = "reach"  # the request upon which an owner calls `Owner.reach`


FEW_TASKS = 2  # at once: they gain no more than it costs to send them an epoch


@dataclass(frozen=True, slots=True)
class RunContext:
    """The place of a source's run: its configuration, the lake, and who does the work."""

    name: str
    config: SourceConfig
    store: Store
    spool: Path
    driver: Jobs
    spark: LazyJobs
    lake_id: str
    copy_of: str | None = None  # the id of the lake that this one is a copy of
    ships_bytes: bool = False
    starts_spark: bool = False  # on this machine, for this run
    frees_spark: bool = False  # when nothing has needed it for some minutes
    tasks_here: int | None = None  # at once, where Spark was there before and is on this machine
    lake: LakeConfig = field(default_factory=lambda: LakeConfig(""))
    iceberg: IcebergConfig | None = None  # that of a run's configuration

    def is_quicker_here(self) -> bool:
        """Tell whether the driver is quicker than Spark, which would have to start, or has few processors."""
        if self.starts_spark:
            return not self.spark.is_up or self.spark.at_once <= FEW_TASKS
        return self.tasks_here is not None and self.tasks_here <= FEW_TASKS

    def wake_spark(self) -> None:
        """Have a Spark that rests come back beside the work, where it will be quicker than the driver."""
        if self.frees_spark and len(os.sched_getaffinity(0)) > FEW_TASKS:
            self.spark.begin()


@contextmanager
def open_contexts(
    config: Config,
    spark: SparkSession | None = None,
    *,
    soon: bool = False,
    brief: bool = False,
    free_spark: bool = False,
    elsewhere: Elsewhere | None = None,
    reads: bool = False,
) -> Iterator[list[RunContext]]:
    """Make the places of the sources; Spark is started when it is first needed, or at once if `soon`.

    With `free_spark` it is ended when nothing has needed it for some minutes, if it is of our own making.

    Raises where the lake lies elsewhere than it did and `elsewhere` does not say why, unless the caller only
    `reads`: a copy of a lake must not touch what the original has upstream. Where Spark does not come up for
    a new lake, nothing of it is left: nothing was made upstream by then.
    """
    store = open_store(config.lake.path)
    is_new = formatfile.is_new(store)
    lake_id, copy_of = formatfile.create_lake(store).lake_id, None
    if not reads:
        if not is_new:
            prove_atomic(store)  # the store may be another one, or have been set up anew
        known = placefile.settle(store, elsewhere)
        lake_id, copy_of = known.lake_id, known.copy_of
    local = spark is None and not config.spark.remote and _master(config) is None
    frees = free_spark and local and not brief
    with closing(_engine(store, config, spark, brief, frees)) as engine:
        if soon:
            engine.begin()
        try:
            yield [
                RunContext(
                    name=name,
                    config=source,
                    store=store,
                    spool=_spool(store, name, lake_id),
                    driver=DriverRunner(),
                    spark=engine,
                    lake_id=lake_id,
                    copy_of=copy_of,
                    ships_bytes=not local and not isinstance(store, LocalStore),
                    starts_spark=local,
                    frees_spark=frees,
                    tasks_here=None if spark is None else tasks_here(spark),
                    lake=config.lake,
                    iceberg=config.iceberg,
                )
                for name, source in config.sources.items()
            ]
        except HeadraceError:
            if is_new and engine.has_failed:
                _take_away(store, config)
            raise


def _master(config: Config) -> str | None:
    """Return the address of the cluster that is configured, if one is."""
    return config.spark.master if has_executors(config.spark.master or "local") else None


def _engine(store: Store, config: Config, spark: SparkSession | None, brief: bool, frees: bool) -> LazyJobs:
    shortage = Shortage()

    def rest() -> None:
        engine.rest()

    start = partial(_start, store, config, spark, brief, shortage, rest if frees else None)
    engine = LazyJobs(start, shortage, _master(config))
    return engine


def _take_away(store: Store, config: Config) -> None:
    """Remove a lake in which none of these sources has begun, and that has no others."""
    if not config.sources.keys() >= set(statusfile.sources(store)) or any(_have_begun(store, config.sources)):
        return
    for folder in ("_headrace", layout.MARKS):  # and nothing that somebody put beside them meanwhile
        if isinstance(store, LocalStore):
            shutil.rmtree(Path(store.path) / folder, ignore_errors=True)
            continue
        for key in store.list(f"{folder}/"):
            store.delete(key)
    if isinstance(store, LocalStore):
        with suppress(OSError):
            Path(store.path).rmdir()


def _have_begun(store: Store, names: Iterable[str]) -> Iterator[bool]:
    """Tell of each source whether the lake has its record; a takeover alone has a mark and no record."""
    for name in names:
        epoch = mark_log.newest_epoch(store, name)
        yield bool(epoch) and SOURCE_KEY in catalog.load(store, name, epoch).records


def _start(
    store: Store,
    config: Config,
    spark: SparkSession | None,
    brief: bool,
    shortage: Shortage,
    rest: Callable[[], None] | None,
) -> Opened[Jobs]:
    """Spark, its workers warm, the lake proved to be shared with them; and how to end it all."""
    with ExitStack() as stack:
        if spark is not None:
            session = borrow_session(spark)
        else:
            wanted = SparkConfig(config.spark.master, config.spark.remote, config.spark.conf)
            session = open_session(wanted, brief=brief)
        if not session.is_owned or tasks_here(session.spark) is None:
            rest = None  # the environment may say another Spark than ours, or one with executors
        if rest is not None:
            stack.callback(jvm.end)
        if session.is_owned:
            stack.callback(session.spark.stop)
        stack.enter_context(ExecutorWatch(session, shortage.says))
        depot = Depot.of(store)
        depot.tidy()
        runner = Runner(session, depot)
        if isinstance(store, LocalStore):
            prove_shared(runner, runner.at_once, local_probe(Path(store.path)))
        warm(runner)
        stack.enter_context(Heartbeat(runner, rest=rest))
        return runner, stack.pop_all().close


def _spool(store: Store, name: str, lake_id: str) -> Path:
    """In the lake's own directory, which executors share; beside a bucket, on this machine's disk."""
    if isinstance(store, LocalStore):
        return Path(store.path) / "_headrace" / "spool" / layout.quote(name)
    return private_folder(Path(tempfile.gettempdir()) / f"headrace-spool-{lake_id}") / layout.quote(name)


# --- the owner ------------------------------------------------------------------------------------


Errand = Callable[[], Any]


def beside(errand: Errand) -> Future[Any]:
    """Run the errand in a thread of its own."""
    with_one = ThreadPoolExecutor(1, "headrace-errand")
    done = with_one.submit(errand)
    with_one.shutdown(wait=False)
    return done


class Warner(Protocol):
    """A way to warn the operator, in the status, of a trouble in spite of which the run goes on.

    The code that warns must also end the warning: nobody believes a warning that never ends.
    """

    def warn(self, code: str, primary: str) -> None: ...
    def clear(self, code: str) -> None: ...
    def gave_up(self, name: TableName, error: HeadraceError) -> None: ...


class Owner(Protocol):
    """The owner of a source's fence: a `Run`, or a command that took it."""

    @property
    def place(self) -> RunContext: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def mirror(self) -> Mirror: ...
    def publish(self, epoch: Epoch) -> None: ...
    def reach(self, frontier: Position) -> None: ...


Answer = Mapping[str, Any]


Steps = Generator[Errand, Any, Answer]
