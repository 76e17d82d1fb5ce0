"""Spark that is started beside the work, and waited for only when somebody needs it.

Starting a session takes seconds; going on with a stream whose epochs are tiny needs none, and a command that
runs one query reads the lake meanwhile. So both begin at once:

    Lazy(open)               nothing happens yet
    .begin()                 start it in a thread
    .get()                   begin if nobody did, wait until it is there; raises what kept it from coming
    .close()                 undo what `open` did, if it was begun and came up

    LazyJobs(open)           the same of a runner, which is one itself: its jobs wait for it
    lazy_session(app)        the same of a session that answers soon

`open` gives the thing and what has to be done at the end. It runs in a thread of its own also for the
sake of signals: on the main thread PySpark would put its own handler in the place of ours.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from headrace.core.errors import HeadraceError
from headrace.spark.jobs import Jobs
from headrace.spark.session import Session, SparkConfig, open_session
from headrace.spark.worker import Merge, Split, Task

T = TypeVar("T")
Opened = tuple[T, Callable[[], None]]


class Lazy(Generic[T]):
    """A value that is made when it is first needed, at most once."""

    def __init__(self, open: Callable[[], Opened[T]]) -> None:
        self._open = open
        self._opened: Future[Opened[T]] = Future()
        self._lock = threading.Lock()
        self._begun = False

    def begin(self) -> None:
        """Start it beside what else is going on."""
        with self._lock:
            if self._begun:
                return
            self._begun = True
        threading.Thread(target=self._start, name="headrace-spark", daemon=True).start()

    def _start(self) -> None:
        try:
            self._opened.set_result(self._open())
        except HeadraceError as error:
            # For whoever waits; raised here it would be printed by the thread, too.
            self._opened.set_exception(error)
        except BaseException as error:
            self._opened.set_exception(error)
            raise

    def get(self) -> T:
        """The thing itself, once it is there."""
        self.begin()
        value, _ = self._opened.result()
        return value

    def close(self) -> None:
        """End it, if it was begun and came up."""
        if self._begun and self._opened.exception() is None:
            self._opened.result()[1]()


class LazyJobs(Lazy[Jobs]):
    """A runner; the first job that is not for the driver waits for the session."""

    @property
    def at_once(self) -> int:
        """As `Jobs.at_once`."""
        return self.get().at_once

    def run(self, task: Task, items: Sequence[bytes]) -> list[bytes]:
        """As `Jobs.run`."""
        return self.get().run(task, items)

    def run_grouped(self, split: Split, merge: Merge, items: Sequence[bytes]) -> list[bytes]:
        """As `Jobs.run_grouped`."""
        return self.get().run_grouped(split, merge, items)

    def shared(self, data: bytes) -> AbstractContextManager[bytes]:
        """As `Jobs.shared`."""
        return self.get().shared(data)

    def behind(self) -> AbstractContextManager[None]:
        """As `Jobs.behind`."""
        return self.get().behind()


def lazy_session(app: str) -> Lazy[Session]:
    """A session for a command that asks one question and ends.

    Where it is one of our own on this machine, its Java starts from the archive of classes (`archive`), and
    writes it as it ends, after the answer, if there is none; what Java and Spark print is heard by nobody who
    asked (`jvm`). Where the environment says another Spark, that one is used.
    """

    def opened() -> Opened[Session]:
        session = open_session(SparkConfig(), app, brief=True)
        return session, session.close

    return Lazy(opened)
