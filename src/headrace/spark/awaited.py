"""Spark that is started beside the work, and waited for only when a job needs it.

Starting a session takes seconds; going on with a stream whose epochs are tiny needs none. So a run begins
at once, and the first job that is not for the driver waits for the session:

    Awaited(open)            nothing happens yet
    .begin()                 start it in a thread
    .run / .run_grouped      begin if nobody did, wait until it is there, then as `jobs.Jobs`
    .close()                 undo what `open` did, if it was begun

`open` gives the runner and what has to be done at the end. It runs in a thread of its own also for the
sake of signals: on the main thread PySpark would put its own handler in the place of ours.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager

from headrace.core.errors import HeadraceError
from headrace.spark.jobs import Jobs
from headrace.spark.worker import Merge, Split, Task

Opened = tuple[Jobs, Callable[[], None]]


class Awaited:
    """A runner that comes into being when it is first needed."""

    def __init__(self, open: Callable[[], Opened]) -> None:
        self._open = open
        self._opened: Future[Opened] = Future()
        self._lock = threading.Lock()
        self._begun = False

    def begin(self) -> None:
        """Start Spark beside what else is going on."""
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

    def _jobs(self) -> Jobs:
        self.begin()
        jobs, _ = self._opened.result()
        return jobs

    def run(self, task: Task, items: Sequence[bytes]) -> list[bytes]:
        """As `Jobs.run`."""
        return self._jobs().run(task, items)

    def run_grouped(self, split: Split, merge: Merge, items: Sequence[bytes]) -> list[bytes]:
        """As `Jobs.run_grouped`."""
        return self._jobs().run_grouped(split, merge, items)

    def shared(self, data: bytes) -> AbstractContextManager[bytes]:
        """As `Jobs.shared`."""
        return self._jobs().shared(data)

    def close(self) -> None:
        """End the session, if one was begun and came up."""
        if self._begun and self._opened.exception() is None:
            self._opened.result()[1]()
