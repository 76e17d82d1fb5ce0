"""A lazy Spark: it starts beside the work, and only code that needs it waits.

Starting a session takes seconds; going on with a stream whose epochs are tiny needs none, and a command that
runs one query reads the lake meanwhile. So both begin at once:

    Lazy(open)               nothing happens yet
    .begin()                 start it in a thread
    .get()                   begin if nobody did, wait until it is there; raises what kept it from coming
    .using()                 the same for as long as a block lasts, in which it does not rest
    .rest()                  end it until somebody needs it again
    .close()                 undo what `open` did, if it came up; what is still starting ends by itself

    LazyJobs(open)           the same of a runner, which is one itself: its jobs wait for it
    lazy_session(app)        the same of a session that answers soon

`open` returns the value and the function that ends it. It runs in a thread of its own also because of
signals: on the main thread PySpark would replace our handler by its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.core.errors import HeadraceError, Transient
from headrace.spark.jobs import Jobs
from headrace.spark.session import RunningSpark, SparkConfig, open_session
from headrace.spark.worker import Merge, Split, Task

T = TypeVar("T")
Opened = tuple[T, Callable[[], None]]

CHECK_SECONDS = 0.1

# A process has one JVM and one Spark context: what is abandoned amid its start ends before another begins.
_one_at_a_time = threading.Lock()


class Lazy(Generic[T]):
    """A value that is made when it is first needed, and again after a rest."""

    def __init__(self, open: Callable[[], Opened[T]]) -> None:
        self._open = open
        self._opened: Future[Opened[T]] = Future()
        self._lock = threading.Lock()
        self._users = 0
        self._begun: float | None = None
        self._abandoned = False

    def begin(self) -> bool:
        """Start it beside other work; return False if it was begun before."""
        with self._lock:
            if self._begun is not None and not self._failed_for_now:
                return False
            if self._failed_for_now:
                self._opened = Future()
            self._begun = time.time()
        threading.Thread(target=self._start, name="headrace-spark", daemon=True).start()
        return True

    @property
    def _failed_for_now(self) -> bool:
        """Tell whether the start failed for a transient reason, so that another try may succeed."""
        return isinstance(self.failure, Transient)

    @property
    def is_up(self) -> bool:
        """Tell whether it is there."""
        return self._has_ended and self._opened.exception() is None

    @property
    def has_failed(self) -> bool:
        """Tell whether its last start failed."""
        return self._has_ended and self._opened.exception() is not None

    @property
    def _has_ended(self) -> bool:
        """Tell whether its last start has ended, and nobody gave it up."""
        return self._opened.done() and not self._opened.cancelled()

    @property
    def failure(self) -> BaseException | None:
        """The error with which its last start failed, if it did."""
        return self._opened.exception() if self.has_failed else None

    def _start(self) -> None:
        with _one_at_a_time:
            if self._abandoned:
                self._opened.cancel()
                return
            try:
                opened = self._open()
            except HeadraceError as error:
                # For whoever waits; raised here it would be printed by the thread, too.
                self._opened.set_exception(error)
                return
            except BaseException as error:
                self._opened.set_exception(error)
                raise
            with self._lock:
                self._opened.set_result(opened)
                abandoned = self._abandoned
            if abandoned:
                opened[1]()

    def get(self) -> T:
        """The thing itself, once it is there."""
        self.begin()
        value, _ = self._opened.result()
        return value

    @contextmanager
    def using(self) -> Iterator[T]:
        """Yield the thing itself, once it is there; it does not rest meanwhile."""
        with self._used():
            yield self.get()

    def await_started(self, check: Callable[[], None]) -> None:
        """Wait until it is there; raises what kept it from coming, and what `check` raises meanwhile."""
        with self._used():
            self.begin()
            opened = self._opened
            while not opened.done():
                check()
                wait([opened], CHECK_SECONDS)
            opened.result()

    @contextmanager
    def _used(self) -> Iterator[None]:
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1

    def rest(self) -> None:
        """End it in a thread of its own, unless it is used; whoever needs it later starts it again."""
        threading.Thread(target=self._rest, name="headrace-spark-rest", daemon=True).start()

    def _rest(self) -> None:
        with _one_at_a_time:  # the next start waits for the end
            with self._lock:
                if not self.is_up or self._users or self._abandoned:
                    return
                (_, end), self._opened, self._begun = self._opened.result(), Future(), None
            end()

    @property
    def starting_since(self) -> float | None:
        """The moment at which its start began, in seconds since 1970, while it is not there yet."""
        return None if self._opened.done() else self._begun

    def close(self) -> None:
        """End it, if it came up; one that is still starting ends by itself once it is there."""
        with self._lock:
            first, self._abandoned = not self._abandoned, True
            up = self._opened.done() and self._opened.exception() is None
        if first and up:
            self._opened.result()[1]()


@dataclass(slots=True)
class Shortage:
    """The resource that a running Spark lacks, and since when, in seconds since 1970."""

    what: str | None = None
    since: float = 0.0

    def says(self, what: str | None) -> None:
        """Note what is lacking now; None: nothing."""
        if what != self.what:
            self.what, self.since = what, time.time()


class LazyJobs(Lazy[Jobs]):
    """A runner; the first job that is not for the driver waits for the session, at `master` if given."""

    def __init__(
        self, open: Callable[[], Opened[Jobs]], shortage: Shortage | None = None, master: str | None = None
    ) -> None:
        super().__init__(open)
        self._shortage = shortage or Shortage()
        self._starting = "Spark is starting" if master is None else f"Spark is starting at {master}"

    @property
    def waits(self) -> tuple[str, float] | None:
        """The thing that Spark waits for, and since when; for a status, so nothing here takes time."""
        lacks = self._shortage
        if lacks.what is not None:
            return lacks.what, lacks.since
        since = self.starting_since
        return None if since is None else (self._starting, since)

    @property
    def at_once(self) -> int:
        """See `Jobs.at_once`."""
        with self.using() as jobs:
            return jobs.at_once

    def run(self, task: Task, items: Sequence[bytes]) -> list[bytes]:
        """See `Jobs.run`."""
        with self.using() as jobs:
            return jobs.run(task, items)

    def run_grouped(self, split: Split, merge: Merge, items: Sequence[bytes]) -> list[bytes]:
        """See `Jobs.run_grouped`."""
        with self.using() as jobs:
            return jobs.run_grouped(split, merge, items)

    @contextmanager
    def share(self, data: bytes) -> Iterator[bytes]:
        """See `Jobs.share`."""
        with self.using() as jobs, jobs.share(data) as shared:
            yield shared

    @contextmanager
    def behind(self) -> Iterator[None]:
        """See `Jobs.behind`."""
        with self.using() as jobs, jobs.behind():
            yield


def lazy_session(app: str) -> Lazy[RunningSpark]:
    """A session for a command that asks one question and ends.

    Where it is one of our own on this machine, its Java starts from the archive of classes (`java`), and
    writes it as it ends, after the answer, if there is none; what Java and Spark print is heard by nobody who
    asked (`jvm`). Where the environment says another Spark, that one is used.
    """

    def open_spark() -> Opened[RunningSpark]:
        session = open_session(SparkConfig(), app, brief=True, queries=True)
        return session, session.close

    return Lazy(open_spark)
