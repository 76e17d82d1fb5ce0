"""The acknowledger: makes a published mark durable and acknowledges it upstream, in a thread of its own.

A mark is public as soon as it is appended. It may be acknowledged only when everything that it rests on
would survive the machine losing power: data files, plan, logs, mark, and the folders above them. That
costs milliseconds of `fsync`, so a thread of its own does it, newest mark last, while the next epoch is
under way. The source sends unacknowledged transactions again; after an early acknowledgement they are lost
for ever.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from headrace.core.errors import HeadraceError
from headrace.core.failpoint import failpoint
from headrace.core.position import Position
from headrace.lake.format.plan import Plan

Published = tuple[Plan | None, Position]


class Acknowledger:
    """Makes published epochs durable and then acknowledges them, in order."""

    def __init__(self, sync: Callable[[Plan | None], None], acknowledge: Callable[[Position], None]) -> None:
        self._sync = sync
        self._acknowledge = acknowledge
        self._queue: queue.SimpleQueue[Published | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self.acknowledged: Position | None = None
        self._thread = threading.Thread(target=self._work, name="headrace-acknowledger", daemon=True)
        self._thread.start()

    def on_published(self, plan: Plan | None, frontier: Position) -> None:
        """Queue a plan whose mark is public; acknowledge `frontier` once the mark is durable.

        Without a plan, make durable what the lake held when the source was taken over.
        """
        self._queue.put((plan, frontier))

    def check(self) -> None:
        """Raise the error that the thread has met, if any."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Acknowledge all published marks, then end."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            plan, frontier = item
            try:
                self._sync(plan)
                failpoint("acknowledge.before")
                self._acknowledge(frontier)
                failpoint("acknowledge.after")
            except HeadraceError as error:
                self._error = error
                return
            except BaseException as error:
                # A bug must not end acknowledgement in silence: the main thread raises it.
                self._error = error
                raise
            self.acknowledged = frontier
