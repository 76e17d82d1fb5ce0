"""One Spark job for a batch of work: opaque items in, opaque results out, in a definite order.

    run          items ── mapInArrow(task) ── toArrow ──► results in the order of the items

    run_grouped  items ── mapInArrow(split) ══ shuffle of blobs by group ══ sort (order) ──
                       ── mapInArrow(merge), one group at a time ── toArrow ──► results by group

`mapInArrow` and not RDDs, so that it works on Spark Connect too. Items, blobs and results are bytes to
Spark. What a task, a split or a merge may be: a module-level function, or a `functools.partial` of one,
so that it travels by its name and drags nothing along.

`DriverRunner` runs the very same functions in this process, for epochs so small that a job's 50 ms
would be most of it. Both keep one contract, `Jobs`:

* results come in item order (`run`), or by group name and then as the merge gave them (`run_grouped`);
  within a group blobs come in ascending `order`, ties in the order of items and of the split's yield;
* an error of ours that a task raises is raised here with its code and hint; any other exception as a
  RuntimeError with the remote traceback. The first in item order wins, a split's before a merge's;
* a task may run more than once, also at the same time (Spark retries, and may speculate): only what the
  last one returned counts, so that a task must name its files uniquely and leave it to the result
  which of them are real;
* memory of a worker: one item and what its function holds; of a merge, one batch of blobs.

What has to be known of sizes: an item, a blob and a result are rows in the JVM. Of one that is larger than 64
MB only a name goes that way (`depot`); what many items have in common is `share` and goes once. All results
of one job together must fit into the driver.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from headrace.lake.read.frames import own_python
from headrace.spark.depot import LARGEST, Depot, receive, send, share
from headrace.spark.failures import engine_errors, of_job
from headrace.spark.priority import in_background, in_spare_time
from headrace.spark.session import BEHIND, RunningSpark, in_pool, preserving
from headrace.spark.wire import DDL, RESULT, Row, collect, from_batches, to_table
from headrace.spark.worker import Merge, Split, Stage, Task, divide, perform, stage, unite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A task costs 15-30 ms of a core before it does anything. Items of `run` are large (a piece of a copy,
# a file to rewrite), so many tasks for the sake of balance; those of an epoch's split are small.
_TASKS_PER_CORE: Final = 16
_TASKS_PER_CORE_GROUPED: Final = 2

_PARALLELISM: Final = "spark.sql.leafNodeDefaultParallelism"


class Jobs(Protocol):
    """Runs functions over opaque items; the contract stands in the module's essay."""

    @property
    def at_once(self) -> int:
        """The number of tasks that run at once."""
        ...

    def run(self, task: Task, items: Sequence[bytes]) -> list[bytes]:
        """The results of the task on every item, in item order."""
        ...

    def run_grouped(self, split: Split, merge: Merge, items: Sequence[bytes]) -> list[bytes]:
        """The results of the merge on every group that the splits made, by group."""
        ...

    def share(self, data: bytes) -> AbstractContextManager[bytes]:
        """Share data while it is open; items hold a stand-in, on which tasks call `depot.receive_shared`."""
        ...

    def behind(self) -> AbstractContextManager[None]:
        """Let the jobs of others have free slots before those of this thread, while it is open."""
        ...


class DriverRunner:
    """The functions of a job, run here and now: for tiny epochs."""

    at_once: Final = sys.maxsize  # whoever calls runs his own

    def run(self, task: Task, items: Sequence[bytes]) -> list[bytes]:
        """See `Jobs.run`."""
        require_reference(task)
        return collect(perform(task, _rows(items)))

    def run_grouped(self, split: Split, merge: Merge, items: Sequence[bytes]) -> list[bytes]:
        """See `Jobs.run_grouped`; holds all blobs at once."""
        require_reference(split)
        require_reference(merge)
        blobs = sorted(divide(split, _rows(items)), key=_shuffle_order)
        return collect(unite(merge, blobs))

    def share(self, data: bytes) -> AbstractContextManager[bytes]:
        """See `Jobs.share`; everything is here already."""
        return nullcontext(data)

    def behind(self) -> AbstractContextManager[None]:
        """See `Jobs.behind`; the driver has no slots."""
        return nullcontext()


@dataclass(frozen=True, slots=True)
class Background:
    """The jobs of what takes long and nobody waits for: behind all others that want a slot.

    Where a task of `run` has one, it leaves the processors to all others (`priority` says how).
    """

    jobs: Jobs
    spare: bool = False  # nothing in the source waits for it: it takes only what nobody else wants

    @property
    def at_once(self) -> int:
        """See `Jobs.at_once`."""
        return self.jobs.at_once

    def run(self, task: Task, items: Sequence[bytes]) -> list[bytes]:
        """See `Jobs.run`; not in the driver, where a task that steps back would hold the interpreter."""
        here = isinstance(self.jobs, DriverRunner)
        polite = partial(in_spare_time if self.spare else in_background, task)
        with self.jobs.behind():
            return self.jobs.run(task if here else polite, items)

    def run_grouped(self, split: Split, merge: Merge, items: Sequence[bytes]) -> list[bytes]:
        """See `Jobs.run_grouped`."""
        with self.jobs.behind():
            return self.jobs.run_grouped(split, merge, items)

    def share(self, data: bytes) -> AbstractContextManager[bytes]:
        """See `Jobs.share`."""
        return self.jobs.share(data)

    def behind(self) -> AbstractContextManager[None]:
        """See `Jobs.behind`."""
        return self.jobs.behind()


class Runner:
    """The functions of a job, run on Spark."""

    def __init__(self, session: RunningSpark, depot: Depot | None = None) -> None:
        self._session = session
        self._depot = depot
        self._at_once = session.tasks_at_once()
        self._spread: int | None = None
        self._lock = threading.Lock()
        self._last_used = time.monotonic()
        self.jobs = 0  # that have ended

    @property
    def at_once(self) -> int:
        """The number of tasks that run at once, as of the last job."""
        return self._at_once

    def idle_seconds(self) -> float:
        """The seconds since the last job ended."""
        return time.monotonic() - self._last_used

    def rest(self) -> None:
        """Let a JVM of our own give the memory back that its garbage takes."""
        if self._session.is_owned and not self._session.connect:
            try:
                cast(Any, self._session.jobs)._jvm.System.gc()
            except engine_errors() as error:
                raise of_job(error) from None

    def run(self, task: Task, items: Sequence[bytes]) -> list[bytes]:
        """See `Jobs.run`: one job of one stage."""
        require_reference(task)
        if not items:
            return []
        with self._of_job() as depot:
            frame = self._frame(items, _TASKS_PER_CORE, depot)
            return self._collect(self._map_blobs(frame, stage(perform, task, depot)))

    def run_grouped(self, split: Split, merge: Merge, items: Sequence[bytes]) -> list[bytes]:
        """See `Jobs.run_grouped`: one job of two stages."""
        require_reference(split)
        require_reference(merge)
        if not items:
            return []
        with self._of_job() as depot:
            frame = self._frame(items, _TASKS_PER_CORE_GROUPED, depot)
            blobs = self._map_blobs(frame, stage(divide, split, depot))
            shuffled = blobs.repartition(self._at_once * _TASKS_PER_CORE_GROUPED, "grp")
            # Errors (kind > 0) before all results, so that nothing is merged after a failed split.
            ordered = shuffled.sortWithinPartitions(
                shuffled.kind.desc(), shuffled.grp, shuffled.ord, shuffled.item, shuffled.part
            )
            return self._collect(self._map_blobs(ordered, stage(unite, merge, depot)))

    def share(self, data: bytes) -> AbstractContextManager[bytes]:
        """See `Jobs.share`."""
        return share(self._depot, data)

    def behind(self) -> AbstractContextManager[None]:
        """See `Jobs.behind`."""
        return in_pool(self._session, BEHIND)

    @contextmanager
    def _of_job(self) -> Iterator[Depot | None]:
        """The place of the job's large payloads while it runs."""
        if self._depot is None:
            yield None
            return
        place = self._depot.job()
        try:
            yield place
        finally:
            place.clear()

    def _map_blobs(self, frame: DataFrame, function: Stage) -> DataFrame:
        with own_python(self._session.spark):
            return frame.mapInArrow(function, DDL)

    def _frame(self, items: Sequence[bytes], tasks_per_core: int, depot: Depot | None) -> DataFrame:
        """The items as a DataFrame, spread evenly over as many partitions as are worth it."""
        if not self._session.connect:
            self._at_once = self._session.tasks_at_once()
        partitions = min(len(items), self._at_once * tasks_per_core)
        self._set_spread(partitions)
        table = to_table(list(_fit_rows(items, depot)), chunk=-(-len(items) // partitions))
        with preserving(self._session):
            frame: DataFrame = self._session.jobs.createDataFrame(table)
        return frame

    def _set_spread(self, partitions: int) -> None:
        """Small tables become a local relation, which Spark cuts by this setting and not by chunks.

        Two threads may overwrite each other's number: that costs balance and nothing else.
        """
        if self._session.jobs is self._session.spark:
            # An old Connect without a second session: this one is the user's too.
            return
        with self._lock:
            if partitions != self._spread:
                self._session.jobs.conf.set(_PARALLELISM, str(partitions))
                self._spread = partitions

    def _collect(self, frame: DataFrame) -> list[bytes]:
        try:
            table = frame.toArrow()
        except engine_errors() as error:
            raise of_job(error) from None
        finally:
            self._last_used = time.monotonic()
            self.jobs += 1
        return list(map(receive, collect(from_batches(table.to_batches()))))


def _rows(items: Sequence[bytes]) -> Iterator[Row]:
    for position, item in enumerate(items):
        yield Row(RESULT, 0, position, "", 0, 0, item)


def _fit_rows(items: Sequence[bytes], depot: Depot | None) -> Iterator[Row]:
    """The items as rows that fit into the JVM."""
    for row in _rows(items):
        payload = send(depot, row.payload)
        if len(payload) > LARGEST:
            raise ValueError(f"item {row.item} has {len(payload)} bytes, more than {LARGEST}")
        yield row._replace(payload=payload)


def _shuffle_order(row: Row) -> tuple[int, str, int, int, int]:
    return (-row.kind, row.grp, row.ord, row.item, row.part)


def require_reference(function: Any) -> None:
    """Refuses what cannot be found by its name on the other side.

    A lambda or an inner function would be shipped as code together with all that it closes over: a
    lock, a connection, a password.
    """
    while isinstance(function, partial):
        for argument in chain(function.args, function.keywords.values()):
            if callable(argument) and not isinstance(argument, type):
                require_reference(argument)
        function = function.func
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    found: Any = sys.modules.get(str(module))
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not function or module == "__main__":
        raise TypeError(f"a task must be a function of a module or a partial of one, not {name!r}")
