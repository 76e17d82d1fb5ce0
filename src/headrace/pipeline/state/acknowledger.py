"""From a published mark to the acknowledgement upstream, off the way from commit to mark.

A mark is public as soon as it is appended. It may be acknowledged only when everything that it rests on
would survive the machine losing power: data files, plan, logs, mark, and the folders above them. That
costs milliseconds of `fsync`, so a thread of its own does it, newest mark last, while the next epoch is
under way. What was not acknowledged is sent again; what was acknowledged too early is lost for ever.
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
        """The plan's mark is public; `frontier` may be acknowledged once it is durable.

        Without a plan: what was there when the source was taken over.
        """
        self._queue.put((plan, frontier))

    def check(self) -> None:
        """Raise what went wrong meanwhile."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Finish what was published, then end."""
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
